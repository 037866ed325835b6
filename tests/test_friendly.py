"""Inputs that hide every order of a sum: proven or tried on the CPU, and never shown as a plain pass."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reprodb.claims import Standing, claim
from reprodb.domain import FRIENDLY, Case, Composition, Input, Kernel, Lane, Result
from reprodb.friendly import cannot_show, reason_of, remark
from reprodb.inputs import generate, resolve
from reprodb.suite import bundled_suite, load_suite
from tests import orders, shared
from tests.builders import make_environment, make_kernel, make_result, make_run
from tests.command import reprodb
from tests.nights import Nights, row

Array = NDArray[Any]


def spec(pattern: str, n: int, dtype: str = "float32", **params: int | float) -> Input:
    return resolve("x", pattern, n, dtype, params)


def asked(*inputs: Input, reference: str = "sum", accumulator: str = "float32") -> str:
    kernel = replace(make_kernel("k"), accumulator=accumulator)
    case = replace(kernel.cases[0], n=inputs[0].n, inputs=inputs, reference=reference, rel_tol=1e-5)
    case = replace(case, buffers=tuple(replace(b, shape=(1,)) for b in case.buffers))
    return cannot_show(kernel, case, {i.name: generate(i) for i in inputs})


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([spec("ones", 1 << 22)], "all terms are multiples of 2^0"),
        ([spec("integers", 100_000, seed=1)], "all terms are multiples of 2^0"),
        ([spec("integers", 5000, seed=1, low=-1000, high=1000)], "no more than 2^24 of these"),
        ([spec("constant", 4096, value=0.25)], "all terms are multiples of 2^-2"),
        ([spec("constant", 4096, value=0.0)], "every term is zero"),
        ([spec("constant", 64, bits=0x7FC00001)], "every order gives NaN"),
        ([spec("constant", 64, value=float("inf"))], "orders tried on the CPU give the same bits"),
        ([spec("normal", 1)], "1 term can be added in one order"),
        ([spec("normal", 2)], "2 terms can be added in one order"),
    ],
)
def test_friendly_inputs_are_found(inputs: list[Input], said: str) -> None:
    assert said in asked(*inputs)


@pytest.mark.parametrize(
    "inputs",
    [
        [spec("normal", 1000, seed=68)],
        [spec("ramp1000", 4_194_915)],
        [spec("wide", 131_075, seed=2174)],
        [spec("cancelling", 4096, seed=68)],
        [spec("constant", 1 << 21, value=8.5)],  # 17 of 2^-1 each: too many for 24 bits, and for trying
        [spec("constant", 64, value=-0.0)],  # no order shows, but a +0 in an empty lane does
    ],
)
def test_inputs_that_can_show_an_order_are_not(inputs: list[Input]) -> None:
    assert asked(*inputs) == ""


@pytest.mark.parametrize(
    ("accumulator", "friendly"),
    [("float16", False), ("bfloat16", False), ("float32", True), ("float64", True)],
)
def test_it_depends_on_the_accumulator(accumulator: str, friendly: bool) -> None:
    """0 … 3 added 4,096 times: about 6,000, which 24 bits hold and 11 do not."""
    assert bool(asked(spec("integers", 4096, seed=1), accumulator=accumulator)) is friendly


def test_tame_float32_numbers_are_friendly_in_float64_and_wide_ones_are_not() -> None:
    """Why the bundled float64 sum has the input that it has."""
    tame = spec("uniform", 4096, seed=1)
    assert asked(tame) == ""
    assert "multiples of 2^-24" in asked(tame, accumulator="float64")
    assert asked(spec("wide", 4096, seed=1, binades=60), accumulator="float64") == ""


def test_terms_are_those_of_the_operation() -> None:
    """Ones are exact alone; their products with random numbers are not, and their squares plus 0.25 are."""
    ones, other = spec("ones", 1000), resolve("y", "normal", 1000, "float32", {"seed": 3})
    assert "2^-2" in asked(ones, reference="sum_squares_quarter")
    assert asked(ones, other, reference="dot") == ""


def test_a_kernel_whose_terms_are_unknown_is_not_judged() -> None:
    kernel = make_kernel("k")
    case = replace(kernel.cases[0], reference=None, rel_tol=None)
    assert cannot_show(kernel, case, {}) == ""
    integers = replace(kernel, accumulator="uint32")
    assert cannot_show(integers, integers.cases[0], {}) == ""


def served(*inputs: Input, requests: int = 64, accumulator: str = "float32") -> str:
    """The same of a composition whose requests are rows of the first input; its case has no reference."""
    rows = Composition(requests, 4, 0, (1, 8), 0, rows=(inputs[0].name,))
    kernel = replace(make_kernel("k"), accumulator=accumulator, composition=rows)
    case = replace(kernel.cases[0], n=inputs[0].n, inputs=inputs, reference=None, rel_tol=None)
    return cannot_show(kernel, case, {i.name: generate(i) for i in inputs})


WEIGHTS = resolve("w", "integers", 16 * 1024, "float32", {"seed": 2, "low": -8, "high": 8})


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (
            [spec("ones", 64 * 1024)],
            "are multiples of 2^0, and their sizes add up to no more than the 24 bits",
        ),
        ([spec("integers", 64 * 1024, low=-8, high=8), WEIGHTS], "are multiples of 2^0"),
        ([spec("constant", 64 * 1024, value=0.5), WEIGHTS], "are multiples of 2^-2"),  # its squares
        ([spec("constant", 64 * 1024, value=0.0), WEIGHTS], ""),  # times -1 it is -0
        ([spec("constant", 64 * 1024, value=0.0)], "every product is zero"),
        ([spec("integers", 64 * 1024, dtype="float16", high=2)], "are multiples of 2^0"),
    ],
)
def test_requests_that_no_sum_of_products_can_tell_apart(inputs: list[Input], said: str) -> None:
    assert served(*inputs).startswith("every") is bool(said)
    assert said in served(*inputs)


@pytest.mark.parametrize(
    "inputs",
    [
        [spec("normal", 64 * 1024, seed=1)],
        [spec("ones", 64 * 1024), resolve("w", "normal", 16 * 1024, "float32", {"seed": 2})],
        [spec("integers", 64 * 1024, low=-200, high=200)],  # exact but for the sum of its squares
        [spec("integers", 64 * 1024, low=-8, high=8), replace(WEIGHTS, params=(("high", 9000), ("low", 0)))],
        [resolve("x", "special", 64 * 1024, "float32", {})],
    ],
)
def test_requests_that_may_round_are_not_marked(inputs: list[Input]) -> None:
    assert served(*inputs) == ""


def test_few_rows_do_not_speak_for_all() -> None:
    """The rest of the rows round where the first quarter million elements do not."""
    rows = Composition(1024, 4, 0, (1, 8), 0, rows=("x",))
    kernel = replace(make_kernel("k"), composition=rows)
    values = np.ones(1024 * 1024, np.float32)
    case = replace(
        kernel.cases[0], n=len(values), inputs=(spec("ones", len(values)),), reference=None, rel_tol=None
    )
    values[-1] = 1e-3
    assert cannot_show(kernel, case, {"x": values}) == ""


def test_the_bundled_requests_can_show_an_order() -> None:
    for kernel in load_suite(bundled_suite()).kernels:
        if kernel.composition is not None:
            (case,) = kernel.cases
            assert remark(kernel, case, {i.name: generate(i) for i in case.inputs}) == "", kernel.name


@given(
    st.lists(st.integers(-(1 << 14), 1 << 14), min_size=3, max_size=60),
    st.integers(-40, 40),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_a_proof_holds_in_every_grouping(numbers: list[int], power: int, random: Any) -> None:
    """Scaled whole numbers of up to 2^24 units in all: any binary tree over any permutation is exact."""
    terms = (np.array(numbers, np.float64) * 2.0**power)[None]
    reason = reason_of((terms,), "float32")
    assert reason
    values = [np.float32(v) for v in terms[0]]
    while len(values) > 1:
        random.shuffle(values)
        values.append(values.pop() + values.pop())
    assert float(values[0]) == float(np.sum(terms))


# --- The bundled suite -------------------------------------------------------------------------


def _floats() -> list[tuple[Kernel, Case]]:
    kernels = load_suite(bundled_suite()).kernels
    return [(k, c) for k in kernels for c in k.cases if c.reference and "float" in k.accumulator]


@pytest.mark.parametrize(
    ("kernel", "case"), [p for p in _floats() if p[1].n <= 1 << 20], ids=lambda v: v.name
)
def test_every_bundled_sum_can_show_its_order(kernel: Kernel, case: Case) -> None:
    """But for the three-term sums whose point is one grouping against the other."""
    assert remark(kernel, case, {i.name: generate(i) for i in case.inputs}) == ""


def test_the_trial_agrees_with_the_kernels_own_orders() -> None:
    values = generate(spec("integers", 65_536, seed=3))
    totals = {float(orders.folded(orders.block_sums(values, blocks))) for blocks in (1, 4, 64)}
    assert len(totals) == 1
    assert asked(spec("integers", 65_536, seed=3))


# --- What is said of it ------------------------------------------------------------------------

NOTE = f"{FRIENDLY}: every term is zero"


def friendly(**changes: Any) -> Result:
    return replace(make_result(**changes), notes=(NOTE,))


def test_a_night_says_it_at_the_top_and_in_the_row(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    assert row(nights.night(friendly())).note == NOTE
    diff = nights.night(friendly())
    assert row(diff).note == NOTE
    assert f"sum_squares_tree ramp1000-4194915: {NOTE}" in diff.notes
    for command in (("diff", 1, 2), ("show", 2), ("show", 2, "--json"), ("diff", 1, 2, "--json")):
        assert FRIENDLY in nights.call(*command).out, command


def test_what_was_not_seen_bounds_nothing(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    for _ in range(2):
        diff = nights.night(friendly(lane=Lane.MEASURED))
    assert "bounds the rate" not in row(diff).note


@pytest.fixture
def tame_requests(tmp_path: Path) -> Path:
    """The bundled batch on whole numbers, without its pinned bits and its serial kernel."""
    root = tmp_path / "tame"
    for folder in ("_lib", "row_logits_batched"):
        shutil.copytree(bundled_suite() / folder, root / folder)
    manifest = root / "row_logits_batched" / "kernel.toml"
    lines = manifest.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("expected", "serial"))]
    text = "\n".join(kept).replace('pattern = "tied_weights"', 'pattern = "integers"')
    text = text.replace('pattern = "tied_requests", seed = 68, words = 16', 'pattern = "integers", seed = 1')
    manifest.write_text(text.replace("tags =", 'no_reference = "the bits are compared"\ntags ='))
    return root


def test_requests_of_whole_numbers_are_no_evidence_across_batches(
    tame_requests: Path, tmp_path: Path
) -> None:
    check = reprodb("suite", "check", "--suite", tame_requests)
    assert check.code == 1
    assert (
        "warning [friendly] row_logits_batched: no case can show another order (near-ties-64: " in check.out
    )
    db = ("--db", tmp_path / "r.db")
    ran = reprodb(
        *("run", "--suite", tame_requests, "--profile", "default", "--device", "model", "--repetitions", 4),
        *db,
        *("--store", shared.store()),
    )
    assert ran.code == 0, ran.err
    (result,) = reprodb("show", 1, "--json", *db).json["results"]
    assert [note for note in result["notes"] if note.startswith(FRIENDLY)]
    told = reprodb("claim", "latest", "row_logits_batched", *db).out
    assert "across batches, whatever else is served with a request: no evidence; 0 of 4 " in told


def test_the_page_says_it(tmp_path: Path) -> None:
    from reprodb.render.html import report

    result = friendly()
    page = report(make_run(), (result,), None)
    assert FRIENDLY in page
    nights = Nights(tmp_path)
    nights.night(friendly())
    diff = nights.night(friendly())
    assert FRIENDLY in report(diff.candidate, (result,), diff)


def test_the_claim_card_has_no_evidence() -> None:
    card = claim(make_run(), friendly(), ())
    assert card.promises[0].standing is Standing.UNSEEN
    assert NOTE in card.promises[0].evidence
    assert card.sentence.endswith(f"in all 100 repetitions, but {FRIENDLY}.")
    assert NOTE in card.not_covered


def test_the_claim_card_warns_of_a_grid_that_follows_the_device() -> None:
    result = make_result()
    derived = replace(result, kernel=replace(result.kernel, sm_count=132))
    card = claim(replace(make_run(), environment=make_environment()), derived, ())
    assert any("other than 132 multiprocessors" in text for text in card.not_covered)
    shape = next(pin for pin in card.pins if pin.name == "shape")
    assert "derived from the device's 132 multiprocessors" in shape.value
    assert not any("multiprocessors" in text for text in claim(make_run(), result, ()).not_covered)
