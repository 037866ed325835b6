"""`reprodb trace`: aligned by thread and line, recorded on the model, from an element to an instruction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.cli.flow import RunOptions, opened_bench
from reprodb.cli.progress import Silent
from reprodb.cli.rows import common_rows
from reprodb.domain import Artifact, Build, Kernel, Lane, Status, Toolchain
from reprodb.errors import ReprodbError, UnsupportedError, UsageError
from reprodb.executors.model.engine import run_stages
from reprodb.executors.model.events import RECORD, Kind, Operand, Place, Recording, Step
from reprodb.executors.model.ptx import parse
from reprodb.executors.model.recording import Recorder, Target, Watch
from reprodb.experiments import Laboratory, Workshop
from reprodb.findings import Comparison
from reprodb.inputs import generate
from reprodb.occurrences import Events
from reprodb.provenance import Trail
from reprodb.recovery import Compilers, Library
from reprodb.render.json import dumps
from reprodb.render.trace import document
from reprodb.render.trace import lines as rendered
from reprodb.store import open_store
from reprodb.suite import load_suite
from reprodb.toolchains import catalog
from reprodb.trace import align
from reprodb.tracing import Choice, Means, Trace, nothing, trace
from tests import shared
from tests.builders import make_build
from tests.command import Said, reprodb, valid

SUITE = Path(__file__).parent / "suites" / "trace"
EVIDENCE = Path(__file__).parents[1] / "reports" / "evidence"


# --- Aligning, on recordings made by hand ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Did:
    """One instruction of a loop's body: opcode, line, result and source registers."""

    opcode: str
    line: int
    result: str = "%f1"
    sources: tuple[str, ...] = ()
    kind: Kind = Kind.VALUE
    root: int = 0  # line of the outer statement, where it is inlined


Values = dict[tuple[int, int, int], int]  # (thread, turn, instruction) → bits


def recorded(body: Sequence[Did], threads: int, turns: int, values: Values) -> Recording:
    """What a block leaves whose threads execute a loop of one basic block, one thread after another.

    A value that is not given is its thread and turn.
    """
    runs: list[Place] = []
    steps = {0: Step(0, Kind.MARK, 0, -1, Place())}
    for number, did in enumerate(body, 1):
        place = Place("k.cu", did.line, 1, ("k.cu", did.root or did.line, 1))
        if runs[-1:] != [place]:
            runs.append(place)
        operands = tuple(Operand(name, "f32", name, slot=i) for i, name in enumerate(did.sources))
        steps[number] = Step(
            number,
            did.kind,
            0,
            len(runs) - 1,
            place,
            did.opcode,
            did.opcode,
            number,
            "f32",
            did.result,
            operands,
        )
    events = []
    for thread in range(threads):
        holds: dict[str, int] = {}
        for turn in range(turns):
            events.append((0, thread, 0, (0, 0, 0), 0, (0, 0)))
            for number, did in enumerate(body, 1):
                bits = values.get((thread, turn, number - 1), 1000 * thread + turn)
                a, b, c = (*(holds.get(name, 0) for name in did.sources), 0, 0, 0)[:3]
                events.append((number, thread, bits, (a, b, c), 0, (0, 0)))
                holds[did.result] = bits
    return Recording(steps, (tuple(runs),), np.array(events, np.dtype(RECORD)))


FUSED = (Did("fma.rn.f32", 11, "%f2", ("%f1", "%f1")), Did("add.f32", 11, "%f3", ("%f3", "%f2")))
APART = (
    Did("mul.rn.f32", 11, "%f2", ("%f1", "%f1")),
    Did("add.rn.f32", 11, "%f4", ("%f2",)),
    Did("add.rn.f32", 11, "%f3", ("%f3", "%f4")),
)


def test_a_product_alone_is_not_compared_with_a_fused_sum() -> None:
    products: Values = {(thread, turn, 0): 0xDEAD for thread in range(2) for turn in range(3)}
    found = align(recorded(FUSED, 2, 3, {}), recorded(APART, 2, 3, products))
    assert (found.compared, found.differing, found.difference) == (6, 0, None)


def test_the_fused_value_and_the_sum_of_two_steps_are_where_it_began() -> None:
    fused: Values = {(1, 2, 0): 7, (1, 2, 1): 70}
    apart: Values = {(1, 2, 0): 5, (1, 2, 1): 8, (1, 2, 2): 71}
    found = align(recorded(FUSED, 2, 4, fused), recorded(APART, 2, 4, apart)).difference
    assert found is not None
    assert (found.born.baseline.step.opcode, found.born.candidate.step.opcode) == ("fma.rn.f32", "add.rn.f32")
    assert (found.born.baseline.value, found.born.candidate.value) == (7, 8)
    assert (found.seen.baseline.value, found.seen.candidate.value) == (70, 71)
    assert (found.born.baseline.thread, found.occurrence, found.steps) == (1, 3, 1)
    assert [m.step.base for m in found.lines[0]] == ["fma", "add"]
    assert [m.step.base for m in found.lines[1]] == ["mul", "add", "add"]


def test_lines_that_run_another_number_of_times_are_told_and_not_compared() -> None:
    found = align(recorded(FUSED, 2, 3, {}), recorded(APART, 2, 5, {}))
    assert found.difference is None
    (apart,) = found.apart
    assert (apart.file, apart.line, apart.baseline, apart.candidate, apart.threads) == ("k.cu", 11, 6, 10, 2)


def test_a_full_log_compares_what_both_have() -> None:
    before = replace(recorded(FUSED, 1, 3, {}), lost=4)
    found = align(before, recorded(APART, 1, 5, {(0, 1, 2): 99}))
    assert found.cut and found.compared == 3 and not found.apart
    assert found.difference is not None and found.difference.occurrence == 2


def test_statements_that_a_compiler_interleaves_count_once_a_basic_block() -> None:
    """Line 7 stands in two pieces on one side and in one on the other."""
    pieces = (Did("mul.f32", 7, "%f7"), Did("sub.f32", 6, "%f8"), Did("fma.rn.f32", 7, "%f9", ("%f7",)))
    whole = (Did("mul.f32", 7, "%f7"), Did("add.f32", 7, "%f9", ("%f7",)), Did("sub.f32", 6, "%f8"))
    found = align(recorded(pieces, 2, 2, {}), recorded(whole, 2, 2, {}))
    assert (found.compared, found.forms, found.apart) == (8, 0, ())


def test_a_call_that_is_inlined_counts_with_its_statement() -> None:
    """One side fuses the outer statement with the helper on line 3, the other does not."""
    fused = (Did("mul.f32", 3, "%f2", root=11), Did("fma.rn.f32", 11, "%f3", ("%f2",)))
    apart = (
        Did("mul.f32", 11, "%f1"),
        Did("mul.f32", 3, "%f2", root=11),
        Did("add.f32", 11, "%f3", ("%f1", "%f2")),
    )
    found = align(recorded(fused, 1, 2, {}), recorded(apart, 1, 2, {(0, 1, 2): 5}))
    assert (found.apart, found.differing) == ((), 1)
    assert found.difference is not None and found.difference.born.candidate.step.base == "add"


@given(st.data())
def test_one_changed_value_is_found_wherever_it_is(data: st.DataObject) -> None:
    """The last value of any line, turn and thread: exactly that pair is named, and nothing else differs."""
    lines = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    body = tuple(Did("add.f32", line, f"%f{n}") for n, line in enumerate(lines))
    threads, turns = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    last = [n for n in range(len(body)) if n + 1 == len(body) or lines[n + 1] != lines[n]]
    where = (
        data.draw(st.integers(0, threads - 1)),
        data.draw(st.integers(0, turns - 1)),
        data.draw(st.sampled_from(last)),
    )
    before = recorded(body, threads, turns, {})
    assert align(before, before).difference is None
    found = align(before, recorded(body, threads, turns, {where: 0xFFFF}))
    assert found.differing == 1 and not found.apart
    assert found.difference is not None
    born = found.difference.born.candidate
    assert (born.thread, born.value, born.step.number) == (where[0], 0xFFFF, where[2] + 1)


def test_what_went_into_the_traced_value_comes_first() -> None:
    body = (Did("add.f32", 5, "%f1"), Did("st.global.f32", 6, "", ("%rd1", "%f1"), Kind.STORE))
    before = recorded(body, 3, 1, {})
    after = recorded(body, 3, 1, {(0, 0, 0): 8, (2, 0, 0): 9})
    stored = len(before.events) - 1  # thread 2's
    related, first = align(before, after, stored).difference, align(before, after).difference
    assert related is not None and first is not None
    assert (related.born.candidate.thread, related.related) == (2, True)
    assert (first.born.candidate.thread, first.related) == (0, False)


# --- Recording, on PTX written by hand ----------------------------------------------------------

PTX = """.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_x, .param .u64 k_n, .param .u64 k_out)
{
.reg .pred %p<4>; .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
.shared .align 4 .b8 box[128];
ld.param.u64 %rd1, [k_x];
ld.param.u64 %rd2, [k_out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 8;
add.s64 %rd1, %rd1, %rd3;
.loc 1 3 1
ld.global.v2.f32 {%f1, %f2}, [%rd1];
.loc 1 4 1
setp.lt.f32 %p1, %f1, %f2;
mov.f32 %f3, 0f3F800000;
@!%p1 add.f32 %f3, %f3, %f1;
.loc 1 5 1
fma.rn.f32 %f3, %f3, %f3, 0f40000000;
shl.b32 %r2, %r1, 2;
mov.u32 %r3, box;
add.s32 %r3, %r3, %r2;
.loc 1 6 1
st.shared.f32 [%r3], %f3;
bar.sync 0;
.loc 1 7 1
ld.shared.f32 %f4, [box+4];
mov.b32 %r4, %f4;
shfl.sync.bfly.b32 %r5|%p2, %r4, 1, 31, -1;
mov.b32 %f5, %r5;
add.f32 %f5, %f5, %f3;
mul.wide.u32 %rd4, %r1, 4;
add.s64 %rd2, %rd2, %rd4;
.loc 1 8 1
st.global.f32 [%rd2], %f5;
ret;
}
.file 1 "folder/k.cu"
"""
MANIFEST = """
[kernel]
name = "k"
source = "k.cu"
operation = "for a test"
determinism = "run_to_run"
accumulator = "float32"
[[buffer]]
name = "out"
dtype = "float32"
size = 32
role = "result"
[[stage]]
entry = "k"
grid = 2
block = 32
args = ["x", "n", "out"]
[[case]]
input = "ramp1000"
n = 128
"""


@pytest.fixture(scope="module", name="kernel")
def a_kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """Both of its blocks do the same."""
    folder = tmp_path_factory.mktemp("by_hand")
    (folder / "suite.toml").write_text('name = "by-hand"\n')
    (folder / "k").mkdir()
    (folder / "k" / "kernel.toml").write_text(MANIFEST)
    (folder / "k" / "k.cu").write_text("")
    return load_suite(folder).kernels[0]


def recorder_of(kernel: Kernel, limit: int = 5000) -> Recorder:
    return Recorder(Artifact(make_build(), ptx=PTX), kernel, kernel.cases[0], limit=limit)


@pytest.fixture(scope="module", name="by_hand")
def a_recorder(kernel: Kernel) -> Recorder:
    return recorder_of(kernel)


def float_of(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def test_every_value_is_recorded_with_its_operands_as_they_were(by_hand: Recorder) -> None:
    log = by_hand.record(Target(0, 1))
    x = generate(by_hand.case.inputs[0])
    trail = Trail(Events(log.recording))
    moments = [trail.moment(at) for at in trail.events.threads[3]]
    found = {(m.step.base, m.step.place.line, m.step.result): m for m in moments}
    for register, index in (("%f1", 6), ("%f2", 7)):
        load = found["ld", 3, register]
        assert float_of(load.value) == x[index]
        assert load.address == by_hand.regions[0].address + 4 * index
    assert ("add", 4, "%f3") not in found  # its guard does not hold: the ramp rises
    fused = found["fma", 5, "%f3"]  # overwrites its own operands
    assert [fused.bits(index) for index in range(3)] == [0x3F800000, 0x3F800000, 0x40000000]
    assert float_of(fused.value) == 3.0
    assert [origin and origin.step.base for origin in fused.origins] == ["mov", "mov", None]
    assert str(fused.step.place) == "folder/k.cu:5"
    # Thread 1's store is what all threads load; the last sum's operand came by a shuffle.
    store = trail.brought(found["ld", 7, "%f4"].at)
    assert store is not None and trail.bare(store).thread == 1
    total = found["add", 7, "%f5"]
    assert float_of(total.value) == 6.0
    shuffle = total.origins[0]
    assert shuffle is not None and shuffle.step.base == "shfl"
    given_by = trail.brought(shuffle.at)
    assert given_by is not None and trail.bare(given_by).thread == 2  # 3 xor 1


def test_a_recorded_kernel_gives_the_bits_that_it_gives_unrecorded(by_hand: Recorder, kernel: Kernel) -> None:
    arrays = {i.name: generate(i) for i in by_hand.case.inputs}
    plain = run_stages(PTX, kernel.stages, by_hand.case.buffers, arrays, by_hand.case.n)
    assert by_hand.record(Target(0, 0)).raws == {name: held[0] for name, held in plain.items()}


def test_who_stored_an_element_is_found_by_its_address(by_hand: Recorder) -> None:
    stores = by_hand.record(None, Watch(by_hand.address_of("out") + 4 * 5, 4)).stores
    assert {(s.target.block, s.thread) for s in stores} == {(0, 5), (1, 5)}
    assert stores[0].at < stores[1].at and stores[1].step.text == "st.global.f32 [%rd2], %f5"
    log = by_hand.record(stores[1].target, Watch(by_hand.address_of("out") + 4 * 5, 4))
    own = [s for s in log.stores if s.target == stores[1].target]
    assert log.times.tolist().count(own[-1].at) == 1  # the store is in the recording, too


def test_a_full_log_says_what_it_lost_and_keeps_the_last_stores(by_hand: Recorder, kernel: Kernel) -> None:
    small = recorder_of(kernel, limit=10)
    whole, cut = (r.record(Target(0, 0)).recording for r in (by_hand, small))
    assert len(cut.events) == 10 and cut.lost == len(whole.events) - 10
    assert (cut.events == whole.events[:10]).all()
    watch = Watch(by_hand.address_of("out"), 4 * 32)
    assert [s.thread for s in small.record(None, watch).stores] == list(range(22, 32))
    assert len(by_hand.record(None, watch).stores) == 64


def test_line_information_names_files_that_stand_behind_the_code_and_roots_of_inlined_lines() -> None:
    text = (
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.loc 1 13 5\n"
        ".loc 2 10 9, function_name $L__info0, inlined_at 1 13 5\nbar.sync 0;\n"
        ".loc 3 7 1, function_name $L__info1, inlined_at 2 10 9\nret;\n}\n"
        '.file 1 "_lib/a.cu"\n.file 2 "_lib/b.cuh"\n.file 3 "/usr/include/c.h"\n'
    )
    barrier, end = parse(text).functions[0].instructions
    assert barrier.source is not None and end.source is not None
    assert str(barrier.source) == "_lib/b.cuh:10" and str(barrier.source.root) == "_lib/a.cu:13"
    assert str(end.source) == "c.h:7" and str(end.source.root) == "_lib/a.cu:13"


# --- From two runs to an instruction ---------------------------------------------------------------


@pytest.fixture(scope="module", name="here")
def recorded_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose run 1 has the suite here under its profiles, and run 2 what an H200 measured."""
    folder = tmp_path_factory.mktemp("traced")
    shared.store_below(folder)
    ours = (
        "--suite",
        SUITE,
        "--profiles-file",
        SUITE / "profiles.toml",
        "-n",
        "2",
        "--device",
        "model",
        "-q",
    )
    for command in (("run", *ours), ("import", EVIDENCE / "h200-suite-1.reprodb")):
        said = reprodb(*command, "--db", "x.db", folder=folder)
        assert said.code == 0, said.err
    return folder


def command(here: Path, *arguments: object) -> Said:
    return reprodb("trace", *arguments, "--db", "x.db", "--suite", SUITE, folder=here)


@pytest.fixture(scope="module", name="means")
def one_bench(here: Path) -> Iterator[Means]:
    """What traces are carried out with, opened once for all of them."""
    options = RunOptions(device="model", store=here / "builds" / "store", jobs=1)
    with opened_bench(options, Silent()) as bench:
        laboratory = Laboratory(Workshop(bench.store, 1), bench.pool, bench.platform, repetitions=1)
        compilers = Compilers(catalog.find())
        yield Means(laboratory, Library([SUITE]), compilers, 100_000, bench.store.root / "model")


def row(here: Path, kernel: str, left: str = "1:default", right: str = "1:no-fmad") -> Comparison:
    with open_store(str(here / "x.db")) as store:
        ((comparison, _, _),) = common_rows("trace", store, left, right, kernel, (), None)
    return comparison


def as_json(found: Trace) -> Any:
    """What `--json` prints of a trace."""
    shown = document(("1", "1"), found.comparison, found, (), 0)
    return valid(json.loads(dumps(shown)), "trace")["trace"]


def rounded(exact: Fraction) -> np.float32:
    """The float32 nearest to a number that float64 holds exactly: one rounding."""
    assert Fraction(float(exact)) == exact
    return np.float32(float(exact))


def fused_and_separate(x: np.float32) -> tuple[np.float32, np.float32]:
    """x*x + 0.25 with one rounding, and with two."""
    fused = rounded(Fraction(float(x)) ** 2 + Fraction(1, 4))
    return fused, np.float32(np.float32(x * x) + np.float32(0.25))


def hex_of(value: np.float32) -> str:
    return f"0x{value.view(np.uint32):08x}"


def test_contraction_of_the_tree_is_traced_to_its_line_and_an_element_that_differs(here: Path) -> None:
    of_run_2 = ("2:default", "2:no-fmad", "sum_squares_tree", "--db", "x.db")
    said = reprodb("trace", *of_run_2, "--json", folder=here)
    assert said.code == 0, said.err
    found = valid(said.json, "trace")["trace"]
    assert found["output"] == {"name": "partials", "role": "witness", "changed": 73, "of": 1024}
    (leg,) = found["legs"]
    block = found["element"]["index"]
    assert leg["stored_by"]["baseline"]["block"] == leg["stored_by"]["candidate"]["block"] == [block, 0, 0]
    assert leg["aligned"]["not_aligned"] == []
    difference = leg["difference"]
    assert (difference["file"], difference["line"]) == ("_lib/sum_squares.cu", 11)
    assert difference["source"] == "sum += x[i] * x[i] + 0.25f;"
    assert difference["related"]
    old, new = difference["born"]["baseline"], difference["born"]["candidate"]
    assert old["instruction"].startswith("fma.rn.f32") and new["instruction"].startswith("add.rn.f32")
    # The element is one of the 39 of 1,000 input values whose fused and separate results differ.
    ramp = np.float32(1) + np.arange(1000, dtype=np.float32) * np.float32(0.001)
    differing = {hex_of(x) for x in ramp if len(set(map(hex_of, fused_and_separate(x)))) == 2}
    assert len(differing) == 39
    bits = old["operands"][0]["bits"]
    assert bits in differing
    x = np.uint32(int(bits, 16)).view(np.float32)
    assert (old["bits"], new["bits"]) == tuple(map(hex_of, fused_and_separate(x)))
    assert new["operands"][0]["bits"] == hex_of(np.float32(x * x))
    index = int(re.fullmatch(r"x\[(\d+)\]", old["operands"][0]["cell"])[1])  # type: ignore[index]
    assert hex_of(ramp[index % 1000]) == bits
    assert index % (1024 * 256) == block * 256 + old["thread"][0]
    # What was checked on the way: the bits are a GPU's, and the model has them.
    assert {side["lane"] for side in found["recorded"].values()} == {"measured"}
    assert sorted(found["reproduced"]) == ["partials", "total"]
    assert {side["sass"] for side in found["recorded"].values()} == {"same"}
    assert {side["ptx"] for side in found["recorded"].values()} == {"same"}
    assert "-lineinfo" in found["recorded"]["baseline"]["options"]


def test_people_read_the_line_both_instructions_and_what_was_checked(here: Path, means: Means) -> None:
    text = "\n".join(rendered(trace(row(here, "through_helper"), Choice(), means)))
    assert "_lib/trace.cu:12, thread" in text
    assert "12 | out[i] = x[i] * 0.75f + square(x[i]);" in text
    assert re.search(r"default: PTX line \d+: fma\.rn\.f32", text)
    assert re.search(r"no-fmad: PTX line \d+: add\.rn\.f32", text)
    assert "have the recorded SASS and PTX; the model has the recorded bits of out on both sides" in text


def test_a_difference_that_was_only_loaded_is_followed_to_its_stage(here: Path, means: Means) -> None:
    found = as_json(trace(row(here, "two_stages"), Choice(), means))
    gather, terms = found["legs"]
    assert gather["cell"] == "total[0]" and gather["stored_by"]["baseline"]["stage"] == "gather"
    assert gather["difference"]["born"]["baseline"]["cell"] == terms["cell"]
    index = int(terms["cell"].removeprefix("squares[").removesuffix("]"))
    stored = terms["stored_by"]["candidate"]
    assert stored["stage"] == "terms"
    x, y, _ = stored["thread"]
    block_x, block_y, _ = stored["block"]
    assert (block_y * 2 + block_x) * 64 + y * 8 + x == index
    assert terms["difference"]["born"]["baseline"]["thread"] == stored["thread"]
    assert terms["difference"]["source"] == "squares[i] = x[i] * x[i] + 0.25f;"


def test_values_are_followed_through_shuffles_of_halves_of_doubles(here: Path, means: Means) -> None:
    found = as_json(trace(row(here, "by_shuffles"), Choice(), means))
    difference = found["legs"][0]["difference"]
    assert difference["related"] and difference["source"] == "double v = x[i] * x[i] + 0.25f;"
    assert difference["born"]["baseline"]["thread"][0] // 32 == found["element"]["index"] % 2


def test_the_same_bits_are_no_matter_for_a_trace(here: Path) -> None:
    said = command(here, "1:default", "1:by-pairs", "two_stages")
    same = "nothing differs: two_stages has the same guaranteed bits on both sides\n"
    assert (said.code, said.out) == (0, same)
    said = command(here, "1:default", "1:by-pairs", "two_stages", "--json")
    found = valid(said.json, "trace")
    assert (found["differs"], found["trace"], found["exit_code"]) == (False, None, 0)


def test_what_is_not_guaranteed_and_what_never_ran_is_not_called_equal(here: Path) -> None:
    said = command(here, "2:default", "2:no-fmad", "sum_global_atomic")
    assert said.out == "nothing to trace: sum_global_atomic guarantees none of its bits\n"
    failed = candidate_with(row(here, "two_stages"), status=Status.BUILD_FAILED, outputs=(), error="no way")
    with pytest.raises(ReprodbError, match="the candidate has no bits of two_stages: build failed: no way"):
        nothing(failed)


def test_lines_that_have_no_counterpart_are_no_answer_and_said_so(here: Path) -> None:
    said = command(here, "1:default", "1:by-pairs", "in_order")
    assert said.code == 4
    assert "no value that could be aligned differs in that block" in said.out
    ran = "ran 64 times on default and 0 on by-pairs, in 32 threads"
    assert f"not aligned: _lib/trace.cu:53 {ran}" in said.out


def test_an_element_may_be_chosen_and_must_differ(
    here: Path, means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = row(here, "through_helper")
    with pytest.raises(UsageError, match=r"out\[0\] has the same bits on both sides") as caught:
        trace(comparison, Choice(element=0), means)
    with pytest.raises(UsageError, match=r"out has \d+ elements and no \[99999999\]"):
        trace(comparison, Choice(element=99_999_999), means)
    other = int(caught.value.allowed.removesuffix(" …").split(", ")[-1])
    found = as_json(trace(comparison, Choice("out", other), means))
    assert found["element"]["index"] == other
    assert found["legs"][0]["difference"]["born"]["candidate"]["thread"] == [other % 64, 0, 0]
    # Also one that a list of the first 65,536 differing elements would not have.
    monkeypatch.setattr("reprodb.deltas.LISTED_INDICES", 1)
    assert as_json(trace(comparison, Choice("out", other), means))["element"]["index"] == other
    with pytest.raises(UsageError, match="'total' of through_helper is no recorded output") as caught:
        trace(comparison, Choice("total"), means)
    assert caught.value.allowed == "out"


def test_a_record_that_is_full_is_said_so(here: Path, means: Means) -> None:
    found = trace(row(here, "through_helper"), Choice(), replace(means, limit=40))
    text = "\n".join(rendered(found))
    assert "the record is full: what came later was not compared; --limit takes more" in text


def test_a_mistyped_kernel_gets_the_nearest_name(here: Path) -> None:
    said = command(here, "1:default", "1:no-fmad", "two_stage")
    assert said.code == 2 and "did you mean two_stages?" in said.err


# --- Refusals, and measured runs ---------------------------------------------------------------------


def candidate_with(comparison: Comparison, **changed: Any) -> Comparison:
    assert comparison.candidate is not None
    return replace(comparison, candidate=replace(comparison.candidate, **changed))


def build_of(comparison: Comparison) -> Build:
    assert comparison.candidate is not None and comparison.candidate.build is not None
    return comparison.candidate.build


def test_a_measured_run_is_traced_by_re_execution_and_says_so(here: Path, means: Means) -> None:
    measured = candidate_with(row(here, "through_helper"), lane=Lane.MEASURED)
    found = trace(measured, Choice(), means)
    said = "those were measured on a GPU, this trace is the model's re-execution"
    assert said in "\n".join(rendered(found))
    assert as_json(found)["recorded"]["candidate"]["lane"] == "measured"


def test_bits_that_the_model_does_not_have_are_not_traced(here: Path, means: Means) -> None:
    comparison = row(here, "through_helper")
    assert comparison.candidate is not None
    (output,) = comparison.candidate.outputs
    other = replace(output, patterns=(replace(output.patterns[0], sha256="0" * 64, data=None),))
    measured = candidate_with(comparison, outputs=(other,), lane=Lane.MEASURED)
    with pytest.raises(ReprodbError, match="other bits of the candidate's out than a GPU measured"):
        trace(measured, Choice(), means)
    several = replace(output, patterns=(*output.patterns, *other.patterns), sequence=(0, 1))
    with pytest.raises(ReprodbError, match="candidate's out has 2 patterns; a trace needs one"):
        trace(candidate_with(comparison, outputs=(several,)), Choice(), means)


def test_line_info_that_changes_the_code_is_refused(here: Path, means: Means) -> None:
    comparison = row(here, "through_helper")
    build = build_of(comparison)
    assert build.code is not None
    for sass, words in (("0" * 64, "has other SASS with line information"), (None, "recorded without SASS")):
        other = replace(build, code=replace(build.code, sass=sass))
        with pytest.raises(ReprodbError, match=words):
            trace(candidate_with(comparison, build=other), Choice(), means)


def test_a_missing_toolchain_comes_with_the_command_that_installs_it(here: Path, means: Means) -> None:
    comparison = row(here, "through_helper")
    absent = replace(build_of(comparison), toolchain=Toolchain("nvrtc", "13.99.0", "", "wheel"))
    with pytest.raises(ReprodbError, match="cannot be built with line information") as caught:
        trace(candidate_with(comparison, build=absent), Choice(), means)
    assert caught.value.remedy == "reprodb toolchains install nvrtc 13.99.0"


def test_sources_that_are_gone_are_named(here: Path, means: Means) -> None:
    comparison = row(here, "through_helper")
    gone = replace(build_of(comparison), sources=(("_lib/gone.cu", "0" * 64),))
    with pytest.raises(ReprodbError, match=r"the kernel cannot be built again: _lib/gone\.cu"):
        trace(candidate_with(comparison, build=gone), Choice(), means)


def test_what_the_model_cannot_execute_is_its_own_refusal(kernel: Kernel) -> None:
    approximate = PTX.replace("add.f32 %f5, %f5, %f3", "ex2.approx.f32 %f5, %f3")
    with pytest.raises(UnsupportedError, match=r"ex2\.approx\.f32 at PTX line \d+ \(folder/k\.cu:7\)"):
        Recorder(Artifact(make_build(), ptx=approximate), kernel, kernel.cases[0])
