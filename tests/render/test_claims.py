"""Claim cards: each scope of the promise with its evidence, and nothing more than was seen."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reprodb.claims import Standing, claim
from reprodb.cli import main
from reprodb.domain import Determinism, Lane, Result, Role, Run, Status
from reprodb.render import html
from reprodb.store import open_store
from tests.render import samples

MEASURED = Lane.MEASURED


def standings(run: Run, result: Result, history: list[tuple[Run, Result]]) -> list[Standing]:
    return [promise.standing for promise in claim(run, result, history).promises]


def evidence(run: Run, result: Result, history: list[tuple[Run, Result]]) -> list[str]:
    return [promise.evidence for promise in claim(run, result, history).promises]


def test_the_published_tree_on_a_gpu() -> None:
    """Four runs of 100 equal repetitions on one card are one pool of 400."""
    tree = samples.tree(lane=MEASURED)
    history = [(samples.run(n, MEASURED), tree) for n in (1, 2, 3, 4)]
    card = claim(history[0][0], tree, history)
    assert card.sentence == "Sum of x*x + 0.25 over 4,194,915 elements is 0x4b25426d in all 100 repetitions."
    assert card.promises[0].standing is Standing.HELD
    assert card.promises[0].evidence == "0 of 400 bounds the rate below 0.75 % (95 %) over 4 runs, 1 device"
    pins = {pin.name: pin for pin in card.pins}
    assert pins["shape"].more[0] == "sumSquaresPartials: grid 1,024, block 256"
    assert pins["accumulator"].more == ("contraction allowed", "sumSquaresPartials: 12 FADD, 4 FFMA")
    assert pins["environment"].value == "NVIDIA H200, compute capability 9.0"


def test_the_model_claims_no_bound_and_no_hardware() -> None:
    card = claim(samples.run(), samples.tree(), [])
    assert "claims no bound" in card.promises[0].evidence
    assert any(line.startswith("hardware") for line in card.not_covered)


def test_other_builds_are_counted_result_and_witness_apart() -> None:
    """Contraction moves the partials and not the total: two of four other builds keep both."""
    history = [(samples.run(1), samples.tree(profile)) for profile in samples.PROFILES]
    found = evidence(samples.run(1), samples.tree(), history)[1]
    assert found.startswith("the result's bits are equal in 4 of 4 other builds, the witnesses' too in 2")
    assert "nvrtc 12.6.85, nvrtc 13.5.37" in found


def with_partials(*counts: int) -> Result:
    """An arrival-order result whose partials are guaranteed and showed so many patterns."""
    words = tuple(range(1, len(counts) + 1))
    found = samples.atomic(lane=MEASURED)
    fixed = samples.output("partials", words, counts, Determinism.RUN_TO_RUN, Role.WITNESS)
    return replace(found, outputs=(*found.outputs, fixed))


def test_the_fixed_buffers_of_an_arrival_order_kernel_are_a_promise_of_their_own() -> None:
    kept = claim(samples.run(1, MEASURED), with_partials(100), [])
    first, second = kept.promises[:2]
    assert (first.standing, first.evidence) == (Standing.NOT_PROMISED, "9 patterns in 100 repetitions")
    assert (second.scope, second.standing) == ("run to run, its partials", Standing.HELD)
    assert kept.sentence.endswith("and that is permitted.")

    lost = claim(samples.run(1, MEASURED), with_partials(98, 2), [])
    assert [p.standing for p in lost.promises[:2]] == [Standing.NOT_PROMISED, Standing.BROKEN]
    assert lost.sentence.endswith("but partials showed 2 patterns although one is guaranteed.")
    assert '<span class="mark bad" aria-hidden="true">!</span> <span>Sum' in html.claim(lost)
    assert '<span class="mark quiet" aria-hidden="true">~</span> <span>Sum' in html.claim(kept)


def test_a_promise_that_was_broken() -> None:
    lost = samples.lost().candidate
    assert lost is not None
    card = claim(samples.run(), lost, [])
    assert card.promises[0].standing is Standing.BROKEN
    assert "3 patterns although one is guaranteed" in card.sentence
    # Equal repetitions in each run, and another pattern in an earlier run of the same code, break it too.
    other = samples.tree(bits=0x4B25426F, lane=MEASURED)
    history = [(samples.run(2, MEASURED), samples.tree(lane=MEASURED)), (samples.run(1, MEASURED), other)]
    assert standings(history[0][0], history[0][1], history)[0] is Standing.BROKEN


def test_arrival_order_is_not_promised() -> None:
    card = claim(samples.run(), samples.atomic(), [])
    assert {promise.standing for promise in card.promises} == {Standing.NOT_PROMISED}
    assert card.promises[0].evidence == "9 patterns in 100 repetitions"
    assert "permitted" in card.sentence


def test_across_gpus() -> None:
    """Promised by `gpu_to_gpu` alone: no evidence without another GPU, with one it is held or broken."""
    kernel = replace(samples.TREE, determinism=Determinism.GPU_TO_GPU)
    here = replace(samples.tree(lane=MEASURED), kernel=kernel)
    moved = replace(samples.tree(bits=0x4B25426F, lane=MEASURED), kernel=kernel)
    run = samples.run(1, MEASURED)
    device = replace(samples.H200, name="NVIDIA L4", uuid="GPU-other", compute_capability="8.9")
    elsewhere = replace(samples.run(2, MEASURED), environment=replace(run.environment, device=device))
    assert standings(run, here, [(run, here)])[2] is Standing.UNSEEN
    assert standings(run, here, [(elsewhere, here)])[2] is Standing.HELD
    assert standings(run, here, [(elsewhere, moved)])[2] is Standing.BROKEN
    plain = samples.tree(lane=MEASURED)
    assert standings(run, plain, [(elsewhere, plain)])[2] is Standing.NOT_PROMISED


def test_a_result_without_bits_claims_nothing() -> None:
    failed = replace(samples.tree(), status=Status.TIMED_OUT, outputs=())
    card = claim(samples.run(), failed, [])
    assert card.promises == ()
    assert card.sentence == "There is no answer to claim: timed out."
    assert "timed out" in html.claim(card)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, whole = tmp_path / "reprodb.db", samples.run(1)
    with open_store(str(path), write=True) as store:
        run = Run(whole.uid, whole.suite, whole.lane, whole.environment, whole.started_at)
        run_id = store.begin(run)
        store.record_many(run_id, [(r, None) for r in samples.night()])
        store.finish(run_id, 0, run.started_at + timedelta(seconds=41))

    def reprodb(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([*args, "--db", str(path)])
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    code, out, _ = reprodb("claim", "1:default", "sum_squares_tree")
    assert code == 0
    assert "✓ run to run" in out
    page = tmp_path / "claim.html"
    code, out, _ = reprodb("claim", "latest:default", "sum_squares_tree", "--json", "--html", str(page))
    assert code == 0
    assert json.loads(out)["schema"] == "reprodb.claim/1"
    assert "<code>0x4b25426d</code> in all 100 repetitions" in page.read_text()
    code, _, err = reprodb("claim", "1", "sum_squares_tree", "--html", str(page))
    assert (code, "a page holds one claim" in err) == (2, True)
    code, _, err = reprodb("claim", "1", "sum_squares_tre")
    assert (code, "did you mean 'sum_squares_tree'?" in err) == (2, True)
    code, _, err = reprodb("claim", "1", "sum_squares_tree", "--profile", "nope")
    assert code == 2
    assert err.startswith(
        "reprodb: run 1 has no result of 'sum_squares_tree' under profile 'nope'\nallowed: "
    )
    assert "default (ramp1000-4194915)" in err
    assert reprodb("claim", "baseline", "sum_squares_tree")[0] == 2
