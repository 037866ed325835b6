"""Requests served in ever other batches: by both executors, and what a row says when bits follow them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from reprodb import build
from reprodb.artifacts import ArtifactStore
from reprodb.claims import Standing, claim
from reprodb.cli.run import verdict
from reprodb.compare import Side, compare_references, compare_runs
from reprodb.domain import (
    Accuracy,
    Arg,
    ArgKind,
    Artifact,
    Buffer,
    Case,
    Composition,
    Determinism,
    Input,
    Judgement,
    Kernel,
    Lane,
    OutputSamples,
    Result,
    Role,
    Samples,
    Stage,
    Status,
)
from reprodb.environment import find_gpus
from reprodb.errors import ExecutionError, Exit
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import output_of
from reprodb.executors.cuda import CudaExecutor
from reprodb.executors.model import ModelExecutor
from reprodb.findings import Comparison, Diff, Moved, Verdict
from reprodb.gate import judge
from reprodb.inputs import digest, generate
from reprodb.invariance import served
from reprodb.policy import Policy
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.render import html, terminal
from reprodb.render.json import result_record
from reprodb.render.top import diff_top
from reprodb.store import open_store
from reprodb.suite import bundled_suite, load_suite
from reprodb.toolchains import catalog
from tests import shared
from tests.builders import make_run
from tests.command import reprodb
from tests.executors.fake_cupy import FakeCupy
from tests.executors.things import an_artifact
from tests.test_row_logits import in_parts, logits_of, ranked_of

FIXED = (1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 127, 256)


# --- On a stand-in for a GPU -------------------------------------------------------------------

WIDTH, REQUESTS, PROBES = 4, 24, 5


def small(*, invariant: bool = True, batches: tuple[int, ...] = (1, 3, 8)) -> Kernel:
    """`y` is the first element of each request twice, and `launches` what a launch says of itself."""
    parts = () if invariant else (len(batches),)
    buffers = (
        Buffer("y", "float32", (*parts, PROBES, 2), Role.RESULT),
        Buffer("seen", "uint64", (*parts, 1), Role.WITNESS, determinism=Determinism.NOT_GUARANTEED),
        Buffer("work", "float32", (PROBES, 1), Role.SCRATCH),
    )
    names = [(ArgKind.INPUT, "x"), (ArgKind.BUFFER, "y"), (ArgKind.BUFFER, "work"), (ArgKind.BUFFER, "seen")]
    args = (*(Arg(kind, name) for kind, name in names), Arg(ArgKind.BATCH, "BATCH", "uint64"))
    return Kernel(
        name="rows",
        source="rows.cu",
        operation="first elements",
        determinism=Determinism.RUN_TO_RUN,
        accumulator="float32",
        defines=(),
        shape_defines=(),
        stages=(Stage("rows", (2, 1, 1), (32, 1, 1), args, per_batch=(False, True, False)),),
        cases=(Case("c", WIDTH, (Input("x", "index", REQUESTS * WIDTH),), buffers),),
        batch_invariant=invariant,
        composition=Composition(REQUESTS, PROBES, 4, batches, 1, ("x", "y", "work")),
    )


def floats(address: int, count: int) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * count).from_address(address)


def rows(x: int, y: int, work: int, seen: int, batch: int) -> None:
    """What a right kernel does: each row of its own request alone."""
    for request in range(batch):
        first = floats(x + 4 * WIDTH * request, 1)[0]
        floats(y + 8 * request, 2)[:] = [first, first]
        floats(work + 4 * request, 1)[0] = first
    ctypes.c_uint64.from_address(seen).value = batch


def leaking(x: int, y: int, work: int, seen: int, batch: int) -> None:
    """From 8 requests on, the second element of the last request of a launch is another."""
    rows(x, y, work, seen, batch)
    if batch >= 8:
        floats(y + 8 * (batch - 1), 2)[1] += 0.5


def on_fake(kernel: Kernel, function: Callable[..., None], repetitions: int) -> tuple[Samples, FakeCupy]:
    fake = FakeCupy({"rows": (5, function)})
    executor = CudaExecutor(fake, 0, Arrays())
    return executor.execute(an_artifact(), kernel, kernel.cases[0], repetitions), fake


def test_probes_come_back_in_the_order_of_the_requests() -> None:
    samples, fake = on_fake(small(), rows, 40)
    y = samples.outputs[0]
    wanted = np.repeat(np.arange(PROBES, dtype=np.float32) * WIDTH, 2)
    assert list(y.patterns) == [wanted.tobytes()]
    assert len(y.sequence) == len(samples.batches) == 40
    assert samples.batches[:3] == (1, 3, 8)
    assert set(samples.batches) >= {1, 2, 3, 4, 5, 7, 8}
    assert fake.calls.count("launchKernel") == sum(-(-9 // batch) for batch in samples.batches)
    assert "graphLaunch" not in fake.calls  # every launch has a shape of its own


def test_what_has_no_rows_is_recorded_as_it_is() -> None:
    samples, _ = on_fake(small(), rows, 12)
    seen = samples.outputs[1]
    assert [int.from_bytes(seen.patterns[i], "little") for i in seen.sequence] == list(samples.batches)


def test_a_kernel_that_promises_nothing_shows_every_size_in_each_repetition() -> None:
    samples, _ = on_fake(small(invariant=False), leaking, 4)
    y = samples.outputs[0]
    assert (samples.batches, y.sequence) == ((1, 3, 8), (0, 0, 0, 0))
    one, three, eight = np.frombuffer(y.patterns[0], np.float32).reshape(3, PROBES, 2)
    assert one.tolist() == three.tolist()
    assert len(y.patterns[0]) == 3 * PROBES * 2 * 4
    assert set((eight - one).reshape(-1).tolist()) <= {0.0, 0.5}


def test_a_leak_shows_as_several_patterns() -> None:
    y = on_fake(small(), leaking, 40)[0].outputs[0]
    assert len(y.patterns) > 1
    assert y.sequence[:2] == (0, 0)


def clobbering(x: int, y: int, work: int, seen: int, batch: int) -> None:
    rows(x, y, work, seen, batch)
    floats(x, 1)[0] = -1.0


def overrunning(x: int, y: int, work: int, seen: int, batch: int) -> None:
    rows(x, y, work, seen, batch)
    ctypes.c_uint64.from_address(seen + 8).value = 1


@pytest.mark.parametrize(
    ("function", "said"),
    [(clobbering, "changed its input 'x'"), (overrunning, "past the end of buffer 'seen'")],
)
def test_what_a_kernel_may_not_do(function: Callable[..., None], said: str) -> None:
    with pytest.raises(ExecutionError, match=said):
        on_fake(small(), function, 2)


# --- On the model and on a GPU -----------------------------------------------------------------


def kernel_of(name: str) -> Kernel:
    return next(k for k in load_suite(bundled_suite()).kernels if k.name == name)


@cache
def artifact_of(name: str, arch: str = "sm_90") -> Artifact:
    suite, profile = load_suite(bundled_suite()), load_profiles(bundled_profiles())["default"]
    found = tuple(catalog.find())
    toolchain = catalog.match(profile, found) or next(t for t in found if t.version >= "13")
    request = build.request(suite, kernel_of(name), profile, toolchain, arch)
    ((_, artifact),) = build.build_each([request], ArtifactStore(shared.store()), 1)
    assert artifact.build.status is Status.OK, artifact.build.log
    return artifact


Execute = Callable[[str, int], tuple[Kernel, Samples]]


@cache
def model() -> ModelExecutor:
    return ModelExecutor(shared.store() / "model")


@cache
def gpu() -> CudaExecutor:
    return CudaExecutor.open(0, Arrays())


def on_model(name: str, repetitions: int) -> tuple[Kernel, Samples]:
    kernel = kernel_of(name)
    return kernel, model().execute(artifact_of(name), kernel, kernel.cases[0], repetitions, seed=1)


def on_gpu(name: str, repetitions: int) -> tuple[Kernel, Samples]:
    kernel = kernel_of(name)
    artifact = artifact_of(name, find_gpus().devices[0].arch)
    return kernel, gpu().execute(artifact, kernel, kernel.cases[0], repetitions)


LANES = [pytest.param(on_model, id="model"), pytest.param(on_gpu, id="gpu", marks=pytest.mark.gpu)]
SOAK = [pytest.param(on_model, id="model", marks=pytest.mark.soak), *LANES[1:]]


def outputs(samples: Samples) -> dict[str, OutputSamples]:
    return {output.buffer.name: output for output in samples.outputs}


def best_words(samples: Samples) -> list[tuple[int, ...]]:
    """The best word of each probe, a repetition."""
    ranked = outputs(samples)["ranked"]
    tops = [tuple(np.frombuffer(p, np.uint32).reshape(-1, 16)[:, 0].tolist()) for p in ranked.patterns]
    return [tops[index] for index in ranked.sequence]


@pytest.mark.parametrize("execute", LANES)
def test_12_of_12_fixed_sizes_have_the_serial_bits(execute: Execute) -> None:
    _, serial = execute("row_logits_serial", 1)
    _, batched = execute("row_logits_batched", 14)
    assert batched.batches[:12] == FIXED
    for name in ("logits", "ranked"):
        assert outputs(batched)[name].patterns == outputs(serial)[name].patterns
    assert len(set(best_words(batched))) == 1


@pytest.mark.parametrize("execute", SOAK)
def test_2345_of_2345_shuffled_compositions_have_the_same_best_words(execute: Execute) -> None:
    _, samples = execute("row_logits_batched", 12 + 2345)
    fixed, *shuffled = best_words(samples)[11:]
    assert len(shuffled) == 2345
    assert sum(words == fixed for words in shuffled) == 2345
    assert {output.sequence for output in samples.outputs} == {(0,) * 2357}
    assert set(range(1, 130)) <= set(samples.batches[12:])


@pytest.mark.parametrize("execute", SOAK)
def test_484_of_484_ranked_lists_are_numpys(execute: Execute) -> None:
    kernel, samples = execute("row_logits_ranked", 12)
    assert samples.batches == FIXED
    arrays = {i.name: generate(i).reshape(-1, 1024) for i in kernel.cases[0].inputs}
    ranked = ranked_of(logits_of(arrays["weights"], arrays["requests"]))
    (pattern,) = outputs(samples)["ranked"].patterns
    equal = (np.frombuffer(pattern, np.uint32).reshape(484, 16) == ranked).all(axis=1)
    assert np.count_nonzero(equal) == 484


@pytest.mark.parametrize("execute", LANES)
def test_the_comparator_repeats_and_flips_best_words(execute: Execute) -> None:
    kernel, samples = execute("row_logits_split_k", 3)
    assert samples.batches == (8, 64)
    arrays = {i.name: generate(i).reshape(-1, 1024) for i in kernel.cases[0].inputs}
    weights, requests = arrays["weights"], arrays["requests"][:64]
    wanted = np.stack([in_parts(weights, requests, 2), in_parts(weights, requests, 1)])
    assert outputs(samples)["logits"].patterns == (wanted.tobytes(),)
    split, whole = np.frombuffer(outputs(samples)["ranked"].patterns[0], np.uint32).reshape(2, 64, 16)[..., 0]
    assert np.count_nonzero(split != whole) == 14


@pytest.mark.parametrize("execute", LANES)
@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("sum24_left", "00000000"),
        ("sum24_right", "3f800000"),
        ("sum24_widened", "0000000000000000"),
        ("sum24_float64", "3ff0000000000000"),
    ],
)
def test_four_groupings_of_three_numbers(execute: Execute, name: str, bits: str) -> None:
    _, samples = execute(name, 3)
    (total,) = samples.outputs
    assert [p[::-1].hex() for p in total.patterns] == [bits]


# --- What a row says ---------------------------------------------------------------------------


def result_of(name: str, samples: Samples, **changes: object) -> Result:
    kernel = kernel_of(name)
    found = Result(
        kernel=kernel,
        case=kernel.cases[0],
        profile="default",
        arch="sm_90",
        lane=Lane.MODELLED,
        status=Status.OK,
        repetitions=len(samples.outputs[0].sequence),
        outputs=tuple(output_of(kernel, output) for output in samples.outputs),
        input_digest=digest(kernel.cases[0].inputs),
        batches=samples.batches,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def moved(result: Result, probe: int, repetitions: tuple[int, ...]) -> Result:
    """The result with the lowest bit of a probe's first logit flipped in some repetitions."""
    kernel, found = result.kernel, []
    for output in result.outputs:
        raws = [output.patterns[i].data or b"" for i in output.sequence]
        if output.name == "logits":
            for at in repetitions:
                raw = bytearray(raws[at])
                raw[probe * 64] ^= 1
                raws[at] = bytes(raw)
        patterns = tuple(dict.fromkeys(raws))
        sequence = tuple(patterns.index(raw) for raw in raws)
        buffer = next(b for b in result.case.buffers if b.name == output.name)
        found.append(output_of(kernel, OutputSamples(buffer, patterns, sequence)))
    return replace(result, outputs=tuple(found))


@cache
def night() -> tuple[Result, Result, Result]:
    names = ("row_logits_serial", "row_logits_batched", "row_logits_split_k")
    serial, batched, split = (result_of(n, on_model(n, r)[1]) for n, r in zip(names, (1, 14, 2), strict=True))
    return serial, batched, split


def absent(sha256: str) -> bytes:
    raise LookupError(sha256)


def judged(*results: Result) -> tuple[Diff, dict[str, Comparison]]:
    """A first night of these results."""
    run = make_run(lane=Lane.MODELLED)
    rows = compare_references({}, Side(run, results), absent)
    diff = judge(Diff(None, run, rows), Policy(), now=datetime(2026, 1, 1, tzinfo=UTC), first_night=True)
    return diff, {row.kernel: row for row in diff.comparisons}


def test_a_sound_night_says_what_follows_the_batch_and_gates_nothing() -> None:
    diff, rows = judged(*night())
    assert diff.exit_code == Exit.CLEAN
    assert rows["row_logits_batched"].batch == ()
    split = rows["row_logits_split_k"]
    assert split.verdict is Verdict.NO_BASELINE
    assert not split.gated
    assert [effect.output for effect in split.batch] == ["logits", "ranked"]
    assert {effect.moved for effect in split.batch} == {Moved.SHAPE}
    assert {(e.against, e.batch, e.sizes, e.promised) for e in split.batch} == {
        ("row_logits_serial", 8, (8,), False)
    }
    assert "moved: shape: logits of 64 and ranked of 57 of 64 probes differ from row_l" in split.note
    assert split.note.endswith("this does not gate: batch_invariant is not declared")
    (fact,) = (fact for fact in diff_top(diff).facts if fact.name == "Batches")
    assert fact.text == "the bits of row_logits_split_k follow the batch: shape moved, nothing gates"
    assert fact.more == (
        "row_logits_split_k: logits of 64 and ranked of 57 of 64 probes differ from row_logits_serial "
        "with BATCH 8, probe 0 first (1 of 2 compositions) (default)",
    )
    out = StringIO()
    terminal.diff(terminal.console(out), diff)  # a first night has no table of rows
    assert " ".join(out.getvalue().split()).endswith(f"○ moved: shape: {fact.more[0]}; this does not gate")


def test_without_the_serial_kernel_batches_are_held_against_the_first() -> None:
    _, batched, split = night()
    diff, rows = judged(batched, split)
    assert {effect.against for effect in rows["row_logits_split_k"].batch} == {"BATCH 8"}
    assert "row_logits_serial has no result in this run" in rows["row_logits_batched"].note
    assert diff.exit_code == Exit.CLEAN


def test_a_broken_promise_names_batch_and_probe_and_gates() -> None:
    serial, batched, _ = night()
    diff, rows = judged(serial, moved(batched, 37, (4, 10)))
    row = rows["row_logits_batched"]
    assert (diff.exit_code, row.verdict, row.gated) == (Exit.UNTRUSTWORTHY, Verdict.DETERMINISM_LOST, True)
    assert row.loss is not None
    assert (row.loss.odd, row.loss.of) == (2, 14)
    assert row.loss.where == "BATCH 7, 127, against row_logits_serial"
    assert row.loss.elements == "1 of 64 probes, the first at 37"
    assert "batch composition moved bits that batch_invariant promises" in row.note
    assert "with BATCH 7, probe 37 first (2 of 14 compositions)" in row.note
    assert row.loss.advice == ()  # the size decides: 7 and 127 differ whenever they come


def test_one_pattern_that_is_not_the_serial_one_gates_too() -> None:
    serial, batched, _ = night()
    diff, rows = judged(serial, moved(batched, 5, tuple(range(14))))
    row = rows["row_logits_batched"]
    assert (diff.exit_code, row.verdict) == (Exit.UNTRUSTWORTHY, Verdict.DETERMINISM_LOST)
    assert row.loss is not None
    assert (row.loss.distinct, row.loss.odd, row.loss.of) == (1, 14, 14)
    assert row.loss.where == "BATCH 1, 2, 3 and 10 more, against row_logits_serial"
    assert verdict((serial, batched), ())[0] is Exit.CLEAN
    unlike = moved(batched, 5, tuple(range(14)))
    assert verdict((serial, unlike), ()) == (Exit.UNTRUSTWORTHY, "1 lost determinism")


def test_the_next_night_is_the_same_and_says_it_again() -> None:
    run = make_run(lane=Lane.MODELLED)
    side = Side(run, night())
    rows = {row.kernel: row for row in compare_runs(side, side, absent)}
    assert {row.verdict for row in rows.values()} == {Verdict.SAME}
    assert "moved: shape" in rows["row_logits_split_k"].note


def test_one_kernel_of_a_night_is_held_against_its_serial_kernel_all_the_same(tmp_path: Path) -> None:
    serial, batched, _ = night()
    with open_store(str(tmp_path / "runs.db"), write=True) as store:
        for number, found in enumerate((batched, moved(batched, 5, tuple(range(14))))):
            run = replace(make_run(number, lane=Lane.MODELLED), id=None, finished_at=None)
            record = store.begin(run)
            store.record_many(record, [(serial, None), (found, None)])
            store.finish(record, Exit.CLEAN, run.started_at)
    db = ("--db", tmp_path / "runs.db")
    sound = reprodb("diff", "1:default:row_logits_serial", "1:default:row_logits_batched", *db)
    assert (sound.code, "1 same" in sound.out) == (Exit.CLEAN, True)
    assert "has no result" not in sound.out
    unlike = reprodb("diff", "2:default:row_logits_batched", "2:default:row_logits_batched", *db)
    assert unlike.code == Exit.UNTRUSTWORTHY
    assert "14 of 14 repetitions of logits differ" in " ".join(unlike.out.split())


def test_two_groupings_differ_by_their_order() -> None:
    left, right = (result_of(n, on_model(n, 2)[1]) for n in ("sum24_left", "sum24_right"))
    run = make_run(lane=Lane.MODELLED)
    (row,) = compare_runs(Side(run, (left,)), Side(run, (right,)), absent, by_kernel=False)
    assert row.verdict is Verdict.CHANGED
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.ORDER,)
    assert row.attribution.alarms == ()
    assert "repeatability and agreement are two questions" in row.note


def test_other_sizes_are_another_shape() -> None:
    serial, batched, _ = night()
    composition = batched.kernel.composition
    assert composition is not None
    other = replace(composition, batches=(1, 5), seed=3)
    edited = replace(batched, kernel=replace(batched.kernel, composition=other))
    run = make_run(lane=Lane.MODELLED)
    (row,) = compare_runs(Side(run, (batched,)), Side(run, (edited,)), absent)
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.SHAPE,)
    assert "64, 127, 256 → 1, 5" in row.attribution.sentence
    (across,) = compare_runs(Side(run, (serial,)), Side(run, (batched,)), absent, by_kernel=False)
    assert across.verdict is Verdict.SAME


def test_a_reader_sees_how_requests_were_served() -> None:
    serial, batched, split = night()
    assert served(serial) == "1 composition, BATCH 1"
    assert served(batched) == "14 compositions, 13 sizes of BATCH from 1 to 256"
    assert served(split) == "2 compositions in each repetition, BATCH 8 and 64"
    run = make_run(lane=Lane.MODELLED)
    held, not_promised = (claim(run, r, (), beside=(serial,)).promises[1] for r in (batched, split))
    assert (held.standing, not_promised.standing) == (Standing.HELD, Standing.NOT_PROMISED)
    told = "0 of 14 compositions differ: 13 sizes of BATCH from 1 to 256; the bits are"
    assert held.evidence == f"{told} row_logits_serial's"
    assert claim(run, batched, ()).promises[1].evidence == f"{told} not compared with row_logits_serial's"
    assert result_record(split)["batches"] == [8, 64]


def test_a_claim_across_batches_is_broken_by_a_batch_or_by_the_serial_kernel() -> None:
    serial, batched, _ = night()
    run = make_run(lane=Lane.MODELLED)
    of_itself, broken = claim(run, moved(batched, 3, (2,)), (), beside=(serial,)).promises[:2]
    assert (broken.standing, broken.evidence) == (Standing.BROKEN, "2 patterns in 14 compositions")
    assert of_itself.standing is Standing.UNSEEN, "BATCH 3 was served once: nothing lost its repeatability"
    of_itself = claim(run, moved(batched, 0, (12,)), ()).promises[0]  # of two compositions with BATCH 1
    assert of_itself.standing is Standing.BROKEN
    unlike = claim(run, moved(batched, 5, tuple(range(14))), (), beside=(serial,)).promises[1]
    assert unlike.standing is Standing.BROKEN
    assert unlike.evidence == "one pattern in 14 compositions, and other bits than row_logits_serial's"
    alone = claim(run, serial, ()).promises[1]
    assert alone.standing is Standing.UNSEEN
    assert alone.evidence == "1 composition of no other size than BATCH 1"


@pytest.mark.parametrize(("found", "words"), [(Accuracy.OK, "ok, the"), (Accuracy.OUTSIDE, "outside, the")])
def test_a_claim_says_that_bits_are_pinned_where_they_are(found: Accuracy, words: str) -> None:
    run, (serial, _, split) = make_run(lane=Lane.MODELLED), night()
    line = claim(run, replace(serial, accuracy=Judgement(found)), ()).not_covered[-1]
    no = "not " if found is Accuracy.OUTSIDE else ""
    assert line == f"accuracy is a claim apart: {words} bits are {no}those that the manifest pins"
    assert claim(run, split, ()).not_covered[-1] == "accuracy: no reference was computed"


@pytest.mark.parametrize(
    ("repetition", "where", "step"),
    [(2, "BATCH 3", "Look for what follows the number of requests"), (12, "BATCH 1", "Look for a race")],
)
def test_the_page_says_what_to_look_for(repetition: int, where: str, step: str) -> None:
    """BATCH 3 comes once, BATCH 1 twice: there the size does not decide."""
    serial, batched, _ = night()
    diff, _ = judged(serial, moved(batched, 3, (repetition,)))
    page = html.diff(diff)
    assert step in page
    assert f"differ: {where}, against row_logits_serial. 2 distinct patterns." in page
    assert ("Look for a race" in page) == step.endswith("race")


def test_a_race_is_looked_for_where_the_size_does_not_decide() -> None:
    """BATCH 1 comes twice in these 14 compositions, as the first and as the thirteenth."""
    serial, batched, _ = night()
    assert batched.batches[0] == batched.batches[12] == 1
    _, rows = judged(serial, moved(batched, 0, (12,)))
    loss = rows["row_logits_batched"].loss
    assert loss is not None
    assert loss.where == "BATCH 1, against row_logits_serial"
    assert any("racecheck" in command for command in loss.advice)
