"""Reports whose cause is a card, a driver or months of runs: recorded results through store and diffs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reprodb.domain import CodeOrigin, Device, Environment, Lane, Result, Status
from reprodb.findings import Moved, Verdict
from reprodb.store import open_store
from tests.builders import (
    ATOMIC_TOTAL,
    H200,
    T4,
    TREE_TOTAL,
    make_environment,
    make_output,
    make_result,
)
from tests.nights import Nights, row, verdicts


@pytest.fixture(name="nights")
def a_folder(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def card(number: int) -> Device:
    """One of several H200 cards."""
    return replace(H200, uuid=f"GPU-{number:08d}-0000-0000-0000-000000000000", index=number)


def on(device: Device, **changes: object) -> Environment:
    return make_environment(device, **changes)


def measured(bits: str = TREE_TOTAL, repetitions: int = 100, **changes: object) -> Result:
    return make_result([bits] * repetitions, lane=Lane.MEASURED, **changes)  # type: ignore[arg-type]


# --- Cards -------------------------------------------------------------------------------------


def test_the_one_card_that_deviates_is_named_and_not_the_build(nights: Nights) -> None:
    """Three UUIDs, one build, one odd hash (rocm-libraries#12344)."""
    for number in (0, 1):
        nights.night(measured(), environment=on(card(number)))
    diff = nights.night(measured(ATOMIC_TOTAL), environment=on(card(2)))
    found = row(diff)
    assert found.verdict is Verdict.CHANGED
    assert found.attribution is not None
    assert found.attribution.moved == (Moved.ENVIRONMENT,)
    assert (
        f"device {card(2).uuid} deviates alone from 2 others of its model: look at the card, not at the build"
        in found.attribution.notes
    )
    assert any(note.startswith("code the same, bits changed") for note in diff.notes)
    assert any(note.startswith(f"device {card(2).uuid} deviates alone from 2 others") for note in diff.notes)


def test_two_cards_or_other_code_name_no_card(nights: Nights) -> None:
    nights.night(measured(), environment=on(card(0)))
    found = row(nights.night(measured(ATOMIC_TOTAL), environment=on(card(1))))
    assert found.attribution is not None
    assert not any("deviates" in note for note in found.attribution.notes)


def test_a_baseline_of_other_hardware_is_not_comparable(nights: Nights) -> None:
    """An override is labelled and does not gate (FastVideo#1532, nvbench#186)."""
    nights.night(measured(), environment=on(T4))
    nights.night(measured(ATOMIC_TOTAL), environment=on(H200))
    said = nights.call("diff", 1, 2, "--json")
    (compared,) = said.json["comparisons"]
    assert (said.code, compared["verdict"], said.json["compared"]) == (4, "not_comparable", 0)
    assert compared["note"] == "another GPU model (Tesla T4 → NVIDIA H200)"
    said = nights.call("diff", 1, 2, "--across", "gpu", "--json")
    (compared,) = said.json["comparisons"]
    assert (said.code, compared["verdict"], compared["gated"]) == (0, "changed", False)
    assert compared["note"].startswith("not gated: another GPU model (Tesla T4 → NVIDIA H200)")


def test_a_night_on_another_model_has_no_baseline_there(nights: Nights) -> None:
    nights.night(measured(), environment=on(T4))
    diff = nights.night(measured(ATOMIC_TOTAL), environment=on(H200))
    assert (verdicts(diff), diff.exit_code) == ({"sum_squares_tree": Verdict.NO_BASELINE}, 0)


# --- Drivers -----------------------------------------------------------------------------------


def test_the_driver_that_assembled_the_code_is_part_of_the_build(nights: Nights) -> None:
    """PTX-only code is assembled by the driver (libCEED#1587)."""
    for driver, bits in (("580.159.04", TREE_TOTAL), ("595.84", ATOMIC_TOTAL)):
        diff = nights.night(measured(bits, origin=CodeOrigin.JIT), environment=on(card(0), driver=driver))
    found = row(diff)
    assert (found.verdict, found.gated) == (Verdict.CHANGED, True)
    assert found.attribution is not None
    assert found.attribution.moved == (Moved.BUILD, Moved.ENVIRONMENT)
    assert found.attribution.first_layer == "toolchain"
    toolchain = next(layer for layer in found.attribution.causes if layer.name == "toolchain")
    assert toolchain.detail == "driver 580.159.04 → driver 595.84 (jit)"


def test_ptx_that_the_driver_rejects_is_no_result(nights: Nights) -> None:
    nights.night(measured(), environment=on(card(0)))
    rejected = make_result(
        lane=Lane.MEASURED, status=Status.LAUNCH_FAILED, error="unsupported PTX version 9.5"
    )
    diff = nights.night(rejected, environment=on(card(0)))
    assert (row(diff).verdict, diff.exit_code) == (Verdict.NO_RESULT, 4)
    assert row(diff).note == "launch_failed: unsupported PTX version 9.5"


# --- Long runs ---------------------------------------------------------------------------------


def test_quiet_nights_add_up_and_runs_and_cards_are_counted(nights: Nights) -> None:
    """0 of 100 bounds the rate below 3 %; repetitions of one pinned tuple count together (vllm#46531)."""
    nights.night(measured(), environment=on(card(0)))
    one = row(nights.night(measured(), environment=on(card(0))))
    assert one.note == "0 of 200 bounds the rate below 1.5 % (95 %) over 2 runs, 1 device"
    two = row(nights.night(measured(), environment=on(card(1))))
    assert two.note == "0 of 300 bounds the rate below 1 % (95 %) over 3 runs, 2 devices"
    # Another GPU model and the model of a GPU count by themselves.
    nights.night(measured(), environment=on(T4))
    again = row(nights.night(measured(), environment=on(T4)))
    assert again.note == "0 of 200 bounds the rate below 1.5 % (95 %) over 2 runs, 1 device"
    nights.night(make_result())
    assert row(nights.night(make_result())).note == ""


def test_a_first_comparison_has_its_own_bound(nights: Nights) -> None:
    """Another input is another tuple: nothing earlier counts."""
    nights.night(measured(input_digest="33" * 32), environment=on(card(0)))
    nights.night(measured(), environment=on(card(0)))
    said = nights.call("diff", 2, 2, "--json")
    assert said.json["comparisons"][0]["note"] == "0 of 100 bounds the rate below 3 % (95 %)"


def test_one_flip_of_three_hundred_is_kept_and_found_again(nights: Nights) -> None:
    """A flake nobody could reproduce (vllm#46531): which repetition, and its bits."""
    nights.night(measured(), environment=on(card(0)))
    flips = [TREE_TOTAL] * 300
    flips[137] = ATOMIC_TOTAL
    diff = nights.night(make_result(flips, lane=Lane.MEASURED), environment=on(card(0)))
    found = row(diff)
    assert (found.verdict, diff.exit_code) == (Verdict.DETERMINISM_LOST, 3)
    assert found.loss is not None
    assert (found.loss.odd, found.loss.of, found.loss.where) == (1, 300, "repetition 137 only")
    with open_store(str(nights.database)) as store:
        (output,) = store.results(2)[0].outputs
        odd = output.patterns[output.sequence[137]]
        assert (store.pattern(odd.sha256)[::-1].hex(), odd.first) == ("4b25426e", 137)


def test_padding_that_was_hashed_is_found_by_its_offsets(nights: Nights) -> None:
    """struct {char, float} as raw bytes: three of each eight bytes are left over (basis_universal#375)."""
    rows = np.zeros((64, 8), np.uint8)
    rows[:, 0] = np.arange(64) % 3
    patterns = []
    for poison in (0xA5, 0x5A):
        rows[:, 1:4] = poison
        patterns.append(rows.tobytes())
    lost = make_result(outputs=(make_output(patterns * 4, name="pairs", dtype="uint8"),))
    found = row(nights.night(lost))
    assert found.verdict is Verdict.DETERMINISM_LOST
    assert found.loss is not None
    assert found.loss.elements == (
        "192 of 512, the first at 1: bytes 1, 2, 3 of every 8, as padding does; declare the fields"
    )


def test_equality_of_profiles_may_be_demanded(tmp_path: Path) -> None:
    nights = Nights(tmp_path, '[[require_equal]]\nprofiles = ["default", "cuda12"]\nkernels = ["sum_*"]\n')
    agree = [make_result(profile=profile) for profile in ("default", "cuda12")]
    assert nights.night(*agree, make_result([ATOMIC_TOTAL] * 100, profile="no-fmad")).exit_code == 0
    diff = nights.night(agree[0], make_result([ATOMIC_TOTAL] * 100, profile="cuda12"))
    wanted = "sum_squares_tree ramp1000-4194915: profiles must be equal: {default} ≠ {cuda12}"
    assert wanted in diff.reasons
    assert diff.exit_code == 1
    failed = make_result(profile="cuda12", status=Status.BUILD_FAILED)
    assert any("cuda12 must be equal and has no result" in r for r in nights.night(agree[0], failed).reasons)
