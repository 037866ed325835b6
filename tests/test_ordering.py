"""The order fingerprint: pairs, trees from answers, drawings; and orders measured on the model."""

from __future__ import annotations

import ctypes
import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb import ordering
from reprodb.domain import (
    Artifact,
    Case,
    CodeOrigin,
    Determinism,
    Fingerprint,
    Kernel,
    Lane,
    OrderProbe,
    OutputSamples,
    Samples,
    Status,
)
from reprodb.executors.base import Platform
from reprodb.executors.probing import probe
from reprodb.executors.task import Outcome, Task
from reprodb.ordering import Tree, Triple
from reprodb.orders import Orders, OrderTaker
from reprodb.suite import bundled_suite, load_suite
from tests.builders import make_build, make_kernel
from tests.command import reprodb, valid

KERNELS = bundled_suite()


def answers(tree: Tree) -> tuple[Triple, ...]:
    """What a tree of floats in float32 answers: computed by adding up, not by looking at the tree."""
    n = len(ordering.leaves_of(tree))
    return tuple((i, j, n - int(_added(tree, i, j, n))) for i, j in ordering.pairs(n))


def _added(tree: Tree, i: int, j: int, n: int) -> np.float32:
    if isinstance(tree, int):
        return np.float32({i: 2.0**60, j: -(2.0**60)}.get(tree, 1.0))
    parts = [_added(child, i, j, n) for child in tree]
    total = parts[0]
    for part in parts[1:]:
        total = np.float32(total + part)
    return total


@st.composite
def binary(draw: st.DrawFn) -> Tree:
    """Any binary tree over up to 12 elements, in any order."""
    nodes: list[Tree] = list(draw(st.permutations(range(draw(st.integers(2, 12))))))
    while len(nodes) > 1:
        left = nodes.pop(draw(st.integers(0, len(nodes) - 1)))
        right = nodes.pop(draw(st.integers(0, len(nodes) - 1)))
        nodes.append((left, right))
    return nodes[0]


def canonical(tree: Tree) -> Tree:
    """Children by their smallest leaf: a + b and b + a are one order."""
    if isinstance(tree, int):
        return tree
    return tuple(sorted((canonical(child) for child in tree), key=lambda c: min(ordering.leaves_of(c))))


@given(binary())
def test_every_binary_tree_comes_back_from_its_answers(tree: Tree) -> None:
    n = len(ordering.leaves_of(tree))
    found = ordering.fingerprint_of(n, (answers(tree),))
    assert found.tree == ordering.written(canonical(tree))
    assert ordering.read(found.tree) == canonical(tree)
    assert found.distinct == 1


@given(binary(), binary())
def test_equal_digests_are_equal_orders(one: Tree, other: Tree) -> None:
    first, second = (
        ordering.fingerprint_of(len(ordering.leaves_of(tree)), (answers(tree),)) for tree in (one, other)
    )
    assert (first.digest == second.digest) == (canonical(one) == canonical(other))


def test_answers_that_no_tree_gives_have_none() -> None:
    assert ordering.recover(3, ((0, 1, 2), (0, 2, 2), (1, 2, 2))) is None
    assert ordering.recover(2, ((0, 1, 3),)) is None


def test_pairs_of_many_elements_have_every_distance() -> None:
    found = ordering.pairs(4_194_915)
    assert len(found) == 92
    assert all(i < j < 4_194_915 for i, j in found)
    assert sorted({(i ^ j).bit_length() - 1 for i, j in found}) == list(range(23))
    assert all((i ^ j).bit_count() == 1 for i, j in found)
    assert ordering.pairs(4_194_915) == found


@given(st.integers(65, 1 << 24))
def test_pairs_are_inside_and_distinct(n: int) -> None:
    found = ordering.pairs(n)
    assert len(set(found)) == len(found)
    assert all(0 <= i < j < n for i, j in found)


@pytest.mark.parametrize("text", ["", "(", "(0", "0 1", "(0)", "(0 x)", "((0 1)))", "(0 1", "(٣ 1)"])
def test_what_is_no_tree_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no tree"):
        ordering.read(text)


def test_a_tree_is_drawn_in_text_and_in_lines() -> None:
    tree = ordering.read("(((0 8) 4) (2 6))")
    assert ordering.drawn(tree) == ("sum of 5\n├─ sum of 3\n│  ├─ x[0] + x[8]\n│  └─ x[4]\n└─ x[2] + x[6]")
    root = ET.fromstring(ordering.svg(tree))  # noqa: S314 -- our own
    assert [text.text for text in root.iter("text")] == ["0", "8", "4", "2", "6"]
    assert ordering.height(tree) == 3


def test_a_claim_card_shows_the_measured_order() -> None:
    from reprodb.claims import claim
    from reprodb.render import html, terminal
    from tests.builders import make_result, make_run

    tree = ordering.read("(((0 8) 4) (2 6))")
    order = Fingerprint(9, ((0, 8, 2),), ("ab" * 32,), ordering.written(tree))
    card = claim(make_run(), replace(make_result(), fingerprint=order), ())
    assert ordering.svg(tree) in html.claim(card)
    out = io.StringIO()
    terminal.claims(terminal.console(out), [card])
    assert "order fingerprint abababababababab (1 pair of 9 elements)" in out.getvalue()
    assert "│  ├─ x[0] + x[8]" in out.getvalue()
    assert "<figure>" not in html.claim(claim(make_run(), make_result(), ()))


def test_differences_in_words() -> None:
    pairwise = ordering.fingerprint_of(3, (((0, 1, 2), (0, 2, 3), (1, 2, 3)),))
    in_turn = ordering.fingerprint_of(3, (((0, 1, 3), (0, 2, 2), (1, 2, 3)),))
    two = ordering.fingerprint_of(3, (pairwise.pairs, in_turn.pairs))
    assert ordering.difference(pairwise, pairwise) == (True, "")
    assert ordering.difference(pairwise, in_turn) == (False, "2 of 3 pairs meet elsewhere")
    assert ordering.difference(None, None) == (None, "")
    assert ordering.difference(pairwise, None) == (None, "probed on one side alone")
    assert ordering.difference(two, pairwise) == (None, "arrival order: differs between repetitions")
    assert ordering.difference(Fingerprint(reason="why"), pairwise) == (None, "not applicable: why")
    assert ordering.phrase(two) == "arrival order: differs between repetitions (3 pairs of 3 elements)"
    other = replace(pairwise, n=4)
    assert ordering.difference(pairwise, other) == (None, "of 3 and of 4 elements")


def test_what_is_said_of_an_arrival_order() -> None:
    fixed = ordering.fingerprint_of(100, (((0, 1, 2),),))
    calm = ordering.fingerprint_of(100, (((0, 64, 9), (1, 2, 3)),) * 2, 13)
    free = ordering.fingerprint_of(100, (((0, 64, 9),), ((0, 64, 7),)), 3)
    assert ordering.phrase(calm) == "arrival order: did not differ in 13 launches (2 pairs of 100 elements)"
    seen = "arrival order: differs between repetitions, seen in 3 launches"
    assert ordering.phrase(free) == f"{seen} (1 pair of 100 elements)"
    assert ordering.difference(calm, calm) == (None, "arrival order: did not differ in 13 launches")
    assert ordering.difference(calm, free) == ordering.difference(free, fixed) == (None, seen)
    assert ordering.difference(fixed, calm) == (None, "arrival order: did not differ in 13 launches")


def probed(**changes: object) -> Kernel:
    kernel = make_kernel()
    return replace(kernel, **{"fingerprint": OrderProbe("x", "total"), **changes})  # type: ignore[arg-type]


def test_where_counts_are_not_exact_the_order_is_not_applicable() -> None:
    assert ordering.misfit(probed()) == ""
    assert "accumulator int32" in ordering.misfit(probed(accumulator="int32"))
    case = probed().cases[0]
    large = replace(case, inputs=(replace(case.inputs[0], n=(1 << 24) + 1),))
    assert "16,777,217 elements: from 2 to 16,777,216" in ordering.misfit(probed(cases=(large,)))
    half = replace(case, inputs=(replace(case.inputs[0], dtype="float16"),))
    assert "input x is float16" in ordering.misfit(probed(cases=(half,)))
    assert "no element 1" in ordering.misfit(probed(fingerprint=OrderProbe("x", "total", 1)))
    whole = replace(case, buffers=(replace(case.buffers[0], dtype="int32"),))
    assert "output total is int32" in ordering.misfit(probed(cases=(whole,)))


def test_the_bundled_tree_asks_for_its_order_with_the_identity() -> None:
    kernels = {kernel.name: kernel for kernel in load_suite(KERNELS).kernels}
    assert kernels["sum_squares_tree"].fingerprint == OrderProbe("x", "total", 0, (("IDENTITY", "1"),))
    assert kernels["sum_tree_atomic"].fingerprint == OrderProbe("x", "total")


# --- Measured on the model ------------------------------------------------------------------------


@pytest.fixture(name="store", scope="module")
def one_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("order") / "store"


def test_the_order_of_the_bundled_tree_over_ten_elements(store: Path, tmp_path: Path) -> None:
    """Each block sums its one element; pass 2 folds 1,024 partials, 256 apart, in a halving tree."""
    drawing = tmp_path / "tree.svg"
    said = reprodb(
        *("order", "sum_squares_tree", "--n", 10, "--device", "model", "--store", store, "--svg", drawing)
    )
    assert said.code == 0
    assert said.out.splitlines()[0].startswith("sum_squares_tree, n10, default, modelled: ")
    assert said.out.splitlines()[1:4] == ["sum of 10", "├─ sum of 5", "│  ├─ sum of 3"]
    assert drawing.read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg" ')
    # A second time nothing is executed: the fingerprint lies beside the artifacts.
    assert len(list((store / "orders").iterdir())) == 1
    again = reprodb("order", "sum_squares_tree", "--n", 10, "--device", "model", "--store", store, "--json")
    (row,) = valid(again.json, "order")["orders"]
    assert row["fingerprint"]["tree"] == "((((0 8) 4) (2 6)) (((1 9) 5) (3 7)))"
    assert len(row["answers"]) == 45


def test_a_compensated_sum_has_a_digest_and_no_tree(store: Path, tmp_path: Path) -> None:
    """What Kahan's correction holds is not lost beside M: the answers count something else."""
    drawing = ("--svg", tmp_path / "tree.svg")
    asked = ("order", "sum_kahan_tree", "--n", 8, "--device", "model", "--store", store)
    said = reprodb(*asked)
    assert said.code == 0
    assert said.out.splitlines()[1] == ordering.UNDRAWN
    refused = reprodb(*asked, *drawing)
    assert refused.code == 2
    assert "0 trees for one drawing: sum_kahan_tree, n8, default, modelled: " in refused.err
    assert not (tmp_path / "tree.svg").exists()


def test_what_is_no_sum_of_its_input_says_so(store: Path) -> None:
    """Without the identity the tree sums x*x + 0.25."""
    said = reprodb(*("order", "sum_squares_atomic", "--n", 16, "--device", "model", "--store", store))
    assert said.code == 4
    assert "not applicable: of 16 ones total is 20, so it is not the sum of x" in said.out


def test_beyond_exact_counts_there_is_no_fingerprint(store: Path) -> None:
    said = reprodb(*("order", "sum_squares_tree", "--n", 20_000_000, "--device", "model", "--store", store))
    assert said.code == 4
    assert "not applicable: 20,000,000 elements: from 2 to 16,777,216 the counts are exact" in said.out


def test_what_no_memory_holds_is_refused(store: Path) -> None:
    """Counts of a double are exact up to 2^53; 1.8 TiB of floats are refused before they are made."""
    said = reprodb(*("order", "sum_float64", "--n", 500 * 10**9, "--device", "model", "--store", store))
    assert (said.code, said.out) == (2, "")
    assert "sum_float64 with n = 500,000,000,000 takes 1,862.6 GiB of arrays" in said.err
    assert "remedy: a smaller --n" in said.err


def test_an_arrival_order_is_another_one_in_every_repetition(store: Path) -> None:
    """x[0] … x[511] are in two blocks of the grid; which of them comes first differs."""
    said = reprodb(
        *("order", "sum_tree_atomic", "--n", 2000, "--device", "model", "--store", store, "--json")
    )
    (row,) = said.json["orders"]
    found = row["fingerprint"]
    assert (found["repetitions"], found["distinct"]) == (2, 2)
    assert found["launches"] == 1 + 2 * found["pairs"] <= 13
    # Every pair on demand, however early two repetitions differed.
    asked = ("--n", 2000, "--device", "model", "--store", store, "--json", "--every-pair")
    (row,) = valid(reprodb("order", "sum_tree_atomic", *asked).json, "order")["orders"]
    found = row["fingerprint"]
    assert (found["pairs"], found["launches"], found["distinct"]) == (44, 89, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("1", "fingerprint = 1"),
        ('{ input = "y" }', "input = 'y'"),
        ('{ output = "partial" }', "output = 'partial'"),
        ("{ element = -1 }", "element = -1"),
        ("{ defines = { BLOCKS = 7 } }", "define 'BLOCKS'"),
        ("{ inputs = 1 }", "unknown key 'inputs'"),
    ],
)
def test_a_wrong_fingerprint_is_refused(tmp_path: Path, given: str, words: str) -> None:
    from reprodb.errors import UsageError

    (tmp_path / "k").mkdir()
    for file in (KERNELS / "_lib").iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    manifest = (KERNELS / "sum_tree_atomic" / "kernel.toml").read_text()
    text = manifest.replace("fingerprint = true", f"fingerprint = {given}").replace("../_lib/", "../")
    (tmp_path / "k" / "kernel.toml").write_text(text)
    with pytest.raises(UsageError, match="fingerprint") as refused:
        load_suite(tmp_path)
    assert words in str(refused.value)


# --- Taken once, and kept -------------------------------------------------------------------------


class Queue:
    """A pool that keeps what it is given."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}

    def start(self) -> Platform:
        return Platform(Lane.MODELLED)

    def submit(self, ticket: int, task: Task) -> None:
        self.tasks[ticket] = task


TAKEN = ordering.fingerprint_of(3, (((0, 1, 2), (0, 2, 3), (1, 2, 3)),))


def taker(folder: Path) -> tuple[OrderTaker, Queue]:
    queue = Queue()
    return OrderTaker(queue, Orders(folder), "campaign"), queue  # type: ignore[arg-type]


def a_row(profile: str) -> tuple[str, str, str, str, str]:
    return ("sum_squares_tree", "ramp1000-4194915", profile, "sm_90", "plain")


def test_what_has_the_same_code_is_probed_once_and_kept(tmp_path: Path) -> None:
    orders, queue = taker(tmp_path)
    artifact, tickets = Artifact(make_build()), count()
    assert orders.ask(a_row("default"), probed(), artifact, tickets) is None
    assert orders.ask(a_row("no-fmad"), probed(), artifact, tickets) is None
    assert list(queue.tasks) == [0]
    assert queue.tasks[0].probing
    answered = list(orders.answered(0, Outcome(Status.OK, fingerprint=TAKEN)))
    assert answered == [(a_row("default"), TAKEN), (a_row("no-fmad"), TAKEN)]
    # Another night, and another launch shape.
    again, other = taker(tmp_path)
    assert again.ask(a_row("default"), probed(), artifact, tickets) == TAKEN
    stage = replace(probed().stages[0], grid=(2048, 1, 1))
    assert again.ask(a_row("default"), probed(stages=(stage,)), artifact, tickets) is None
    assert len(other.tasks) == 1


def test_a_night_without_orders_measures_none(store: Path, tmp_path: Path) -> None:
    what = ("--kernel", "sum_tree_atomic", "--profile", "default", "--device", "model", "-n", 1, "--json")
    where = ("--store", store, "--db", tmp_path / "db")
    (plain,) = reprodb("run", *what, *where).json["results"]
    assert plain["fingerprint"]["repetitions"] == 2
    assert reprodb("nightly", "--no-orders", *what, *where, "--out", tmp_path).code == 0
    (bare,) = reprodb("show", "latest", "--db", tmp_path / "db", "--json").json["results"]
    assert (bare["fingerprint"], bare["status"]) == (None, "ok")


def test_probing_is_bounded() -> None:
    """What docs/order.md says: pairs and the sum of ones, and two repetitions of a few pairs."""
    assert [len(ordering.pairs(n)) + 1 for n in (64, 1 << 22, 1 << 24)] == [2017, 89, 97]
    assert {1 + ordering.ROUNDS * len(ordering.sample(n)) for n in (5, 64, 1 << 22, 1 << 24)} == {13}
    assert [len(ordering.sample(n)) for n in (2, 3, 4)] == [1, 3, 6]


def test_a_sample_of_pairs_is_spread_over_the_distances() -> None:
    found = ordering.sample(1 << 22)
    assert set(found) <= set(ordering.pairs(1 << 22))
    assert [(i ^ j).bit_length() - 1 for i, j in found] == [12, 9, 5, 16, 20, 1]


@given(st.integers(2, 1 << 24))
def test_a_sample_is_inside_and_distinct(n: int) -> None:
    found = ordering.sample(n)
    assert len(set(found)) == len(found) >= 1
    assert all(0 <= i < j < n for i, j in found)


def arriving(answer_of: Callable[[int], int], *, every_pair: bool = False) -> tuple[Fingerprint, int]:
    """The fingerprint of a kernel without an order whose n-th launch answers so, and its launches."""
    answered = list[int]()

    class Answers:
        def execute(
            self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int
        ) -> Samples:
            for _ in range(repetitions):
                ones = case.inputs[0].pattern == "ones"
                answered.append(case.n if ones else answer_of(len(answered)))
            patterns = tuple(np.float32(answer).tobytes() for answer in answered[-repetitions:])
            output = OutputSamples(kernel.cases[0].buffers[0], patterns, tuple(range(repetitions)))
            return Samples((output,), CodeOrigin.CUBIN, 0.0)

    kernel = probed(determinism=Determinism.NOT_GUARANTEED)
    task = Task(Artifact(make_build()), kernel, 1, probing=True, every_pair=every_pair)
    return probe(Answers(), task), len(answered)  # type: ignore[arg-type]


def test_an_arrival_order_is_asked_until_two_repetitions_differ() -> None:
    at_once, launches = arriving(lambda launch: launch)
    assert (at_once.distinct, at_once.launches, launches) == (2, 3, 3)
    in_time, launches = arriving(lambda launch: launch if launch > 6 else 5)
    assert (in_time.distinct, in_time.launches, launches) == (2, 9, 9)
    never, launches = arriving(lambda launch: 5)
    assert (never.distinct, never.launches, launches) == (1, 13, 13)
    every, launches = arriving(lambda launch: launch, every_pair=True)
    assert (len(every.pairs), every.launches, launches) == (92, 185, 185)


def test_an_arrival_order_is_taken_anew_in_every_run(tmp_path: Path) -> None:
    free = probed(determinism=Determinism.NOT_GUARANTEED)
    orders, _ = taker(tmp_path)
    artifact = Artifact(make_build())
    assert orders.ask(a_row("default"), free, artifact, count()) is None
    assert list(orders.answered(0, Outcome(Status.OK, fingerprint=TAKEN))) == [(a_row("default"), TAKEN)]
    again, queue = taker(tmp_path)
    assert again.ask(a_row("default"), free, artifact, count()) is None
    assert len(queue.tasks) == 1


def test_a_probe_that_fails_costs_the_fingerprint_alone(tmp_path: Path) -> None:
    orders, _ = taker(tmp_path)
    assert orders.ask(a_row("default"), probed(), Artifact(make_build()), count()) is None
    crashed = Outcome(Status.TIMED_OUT, error="\nran past its limit\nmore")
    ((_, found),) = orders.answered(0, crashed)
    assert ordering.phrase(found) == "not applicable: timed out: ran past its limit"
    failed = Artifact(make_build(status=Status.BUILD_FAILED))
    no_build = orders.ask(a_row("default"), probed(), failed, count())
    assert no_build is not None and no_build.reason.startswith("the build that probes it failed: ")
    absent = orders.ask(a_row("default"), probed(), "not in the store builds/store", count())
    assert absent is not None and absent.reason.endswith("not in the store builds/store")


def test_a_damaged_file_is_probed_again(tmp_path: Path) -> None:
    kept = Orders(tmp_path)
    kept.put("ab", TAKEN)
    assert kept.get("ab") == TAKEN
    (tmp_path / "orders" / "ab.json").write_text("{")
    assert kept.get("ab") is None
    assert kept.get("cd") is None


def test_probing_inputs_do_not_pile_up_on_a_device() -> None:
    """A stand-in for CuPy adds in order; the order is that of a loop, and one probe at most stays."""
    from reprodb.executors.arrays import Arrays
    from reprodb.executors.cuda import CudaExecutor
    from reprodb.executors.task import perform
    from tests.executors.fake_cupy import FakeCupy
    from tests.executors.things import a_kernel, an_artifact

    def total_of(x: int, n: int, total: int) -> None:
        values = np.ctypeslib.as_array((ctypes.c_float * n).from_address(x))
        (ctypes.c_float * 1).from_address(total)[0] = float(np.add.accumulate(values)[-1])

    kernel = a_kernel()
    wanted = OrderProbe(kernel.cases[0].inputs[0].name, "total")
    executor = CudaExecutor(FakeCupy({"sum": (3, total_of)}), 0, Arrays())
    task = Task(an_artifact(), replace(kernel, fingerprint=wanted), 1, probing=True)
    outcome = perform(executor, task, Arrays())
    assert outcome.fingerprint is not None, outcome.error
    n = kernel.cases[0].n
    in_turn = "0"
    for i in range(1, n):
        in_turn = f"({in_turn} {i})"
    assert outcome.fingerprint.tree == (in_turn if n > 1 else "")
    assert len([kept for kept in executor._inputs if kept.pattern == "probe"]) <= 1
