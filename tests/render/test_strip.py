"""A row over the runs: what changed beside the bits, nights without the row, nights without a run."""

from dataclasses import replace
from datetime import timedelta

from reprodb.domain import Device, Lane, SkippedProfile
from reprodb.render.strip import CELLS, strip
from reprodb.render.timeline import moments
from tests.render import samples


def marks(*numbers: int, bare: tuple[int, ...] = ()) -> str:
    found = moments((samples.run(n), samples.tree()) for n in sorted(numbers, reverse=True))
    return "".join(cell.mark for cell in strip(found, [samples.run(n) for n in bare]).cells)


def test_every_night_is_a_cell_oldest_first() -> None:
    assert marks(1, 2, 3, 4) == "○==="


def test_a_night_that_did_not_happen_is_a_cell_and_a_sentence() -> None:
    found = strip(moments((samples.run(n), samples.tree()) for n in (9, 8, 5, 4, 3, 2, 1)))
    assert "".join(cell.mark for cell in found.cells) == "○====⋯=="
    assert found.gaps == ("2 nights without a run between 2026-03-07 and 2026-03-10",)


def test_a_night_without_this_row_is_a_dot_and_no_gap() -> None:
    assert marks(1, 2, 3, 5, bare=(4,)) == "○==·="
    assert marks(1, 2, 3, bare=(4, 5)) == "○==··"


def test_nights_before_the_row_are_not_its_past() -> None:
    assert marks(3, 4, 5, bare=(1, 2)) == "○=="


def test_a_dot_says_why() -> None:
    skipped = SkippedProfile("default", "no nvrtc 13 was found", "pip install it")
    runs = [replace(samples.run(2), skipped=(skipped,)), replace(samples.run(3), finished_at=None)]
    found = strip(moments([(samples.run(1), samples.tree())]), runs)
    assert [cell.text for cell in found.cells[1:]] == [
        "nightly 2: profile skipped, no nvrtc 13 was found",
        "nightly 3: the run did not finish",
    ]


def test_runs_without_a_rhythm_miss_nothing() -> None:
    """Two runs have no rhythm, runs by hand are no nights, and runs within hours are none either."""
    assert marks(1, 9) == "○="
    by_hand = [(replace(samples.run(n), kind="run"), samples.tree()) for n in (9, 3, 2, 1)]
    assert "⋯" not in [cell.mark for cell in strip(moments(by_hand)).cells]
    start = samples.run(1).started_at
    hourly = [
        (replace(samples.run(n), started_at=start + timedelta(hours=n)), samples.tree()) for n in (9, 3, 2, 1)
    ]
    assert "⋯" not in [cell.mark for cell in strip(moments(hourly)).cells]


def test_letters_say_what_else_changed() -> None:
    """Driver and card in the third night, toolchain and flags in the fourth."""
    lane = Lane.MEASURED
    environment = samples.run(1, lane).environment
    device = environment.device
    assert device is not None
    other = Device(device.name, "GPU-other", device.compute_capability, device.sm_count, device.memory)
    environments = [environment] * 2 + [replace(environment, driver="590.1", device=other)] * 2
    results = [samples.tree(lane=lane)] * 3 + [replace(samples.tree("cuda12-no-fmad", lane=lane))]
    entries = [
        (
            replace(samples.run(n + 1, lane), environment=environments[n]),
            replace(results[n], profile="default"),
        )
        for n in range(4)
    ]
    found = strip(moments(reversed(entries)))
    assert [cell.turns for cell in found.cells] == ["", "", "DG", "TF"]
    assert "driver 580.159.04 → 590.1" in found.cells[2].text
    assert [m.run.id for m in found.turns] == [3, 4]


def test_lost_determinism_is_its_own_step() -> None:
    twice = replace(samples.atomic(), kernel=samples.TREE)
    outputs = tuple(replace(o, determinism=samples.TREE.determinism) for o in twice.outputs)
    found = moments([(samples.run(2), replace(twice, outputs=outputs)), (samples.run(1), samples.tree())])
    assert [m.step for m in found] == ["lost", "first"]


def test_a_long_past_is_cut_and_counted() -> None:
    found = strip(moments((samples.run(n), samples.tree()) for n in range(CELLS + 5, 0, -1)))
    assert (len(found.cells), found.older) == (CELLS, 5)
