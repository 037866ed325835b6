"""References: two computations that agree, and what passes and what does not."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprodb.accuracy import REFERENCES, exact_values, judge, kahan_values
from reprodb.domain import Accuracy, Buffer, Case, Input, Judgement, Kernel, OutputSamples, Role
from reprodb.inputs import generate, resolve
from reprodb.suite import bundled_suite, load_suite

TOTAL = Buffer("total", "float32", (1,), Role.RESULT)


def _input(pattern: str, n: int, dtype: str = "float32", name: str = "x", **params: int | float) -> Input:
    return resolve(name, pattern, n, dtype, params)


def _kernel() -> Kernel:
    return next(k for k in load_suite(bundled_suite()).kernels if k.name == "sum_tree_atomic")


def _judged(case: Case, *outputs: OutputSamples) -> Judgement:
    return judge(_kernel(), case, {}, outputs)


def _samples(values: list[float], buffer: Buffer = TOTAL) -> OutputSamples:
    patterns = tuple(np.float32(v).tobytes() for v in values)
    return OutputSamples(buffer, patterns, tuple(range(len(patterns))))


def _sum_of_ones(n: int = 4, rel_tol: float = 1e-5) -> Case:
    return Case("ones-4", n, (_input("ones", n),), (TOTAL,), "sum", rel_tol)


# --- The references ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(REFERENCES))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("pattern", ["ramp1000", "normal", "cancelling"])
@pytest.mark.parametrize("rows", [1, 3])
def test_kahan_agrees_with_the_exact_sum(name: str, dtype: str, pattern: str, rows: int) -> None:
    if (dtype, pattern) == ("float16", "cancelling"):
        pattern = "uniform"  # its large values are beyond float16
    inputs = (_input(pattern, 30_003, dtype), _input("normal", 30_003, dtype, "y", seed=1))
    arrays = {i.name: generate(i) for i in inputs}
    fast = kahan_values(name, inputs, arrays, rows)
    exact = exact_values(name, inputs, arrays, rows)
    assert fast.shape == exact.shape == (rows,)
    assert np.max(np.abs(fast - exact) / np.abs(exact)) < 4e-16


def test_the_published_sum_exactly() -> None:
    """The exact real sum of x*x + 0.25 over the published input, 10828691.454…: both ways to the last bit."""
    inputs = (_input("ramp1000", 4_194_915),)
    arrays = {"x": generate(inputs[0])}
    counts = [4195] * 915 + [4194] * 85
    ramp = generate(_input("ramp1000", 1000))
    exact = sum(c * (Fraction(float(x)) ** 2 + Fraction(1, 4)) for c, x in zip(counts, ramp, strict=True))
    assert kahan_values("sum_squares_quarter", inputs, arrays, 1)[0] == float(exact)


def test_the_exact_sum_is_exact() -> None:
    inputs = (_input("cancelling", 4_000, "float64", scale=1e20),)
    arrays = {"x": generate(inputs[0])}
    total = sum(map(Fraction, arrays["x"].tolist()), Fraction(0))
    assert exact_values("sum", inputs, arrays, 1)[0] == float(total)
    squares = sum((Fraction(v) ** 2 for v in arrays["x"].tolist()), Fraction(0))
    assert exact_values("sum_squares", inputs, arrays, 1)[0] == float(squares)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=20), st.floats(-1e150, 1e150))
def test_products_of_doubles_keep_their_error(values: list[float], factor: float) -> None:
    n = len(values)
    inputs = (_input("ones", n, "float64"), _input("ones", n, "float64", "y"))
    arrays = {"x": np.array(values), "y": np.full(n, factor)}
    exact = sum((Fraction(v) * Fraction(factor) for v in values), Fraction(0))
    if exact != 0 and abs(exact) < Fraction(10) ** -250:
        return  # errors of products this small fall below the smallest double
    got = exact_values("dot", inputs, arrays, 1)[0]
    assert got == pytest.approx(float(exact), rel=2e-16, abs=1e-300)


def test_rows_and_a_vector_that_every_row_meets() -> None:
    inputs = (_input("normal", 6 * 50), _input("normal", 50, name="y", seed=1))
    arrays = {i.name: generate(i) for i in inputs}
    expected = arrays["x"].astype(float).reshape(6, 50) @ arrays["y"].astype(float)
    assert kahan_values("dot", inputs, arrays, 6) == pytest.approx(expected, rel=1e-12)


def test_an_infinity_or_a_nan_in_the_input_is_in_the_reference() -> None:
    inputs = (_input("ones", 5000),)
    for bad, check in ((np.inf, np.isposinf), (-np.inf, np.isneginf), (np.nan, np.isnan)):
        array = np.ones(5000, np.float32)
        array[4321] = bad
        assert check(kahan_values("sum", inputs, {"x": array}, 1)[0])


def test_integers_of_32_bits_are_exact() -> None:
    inputs = (_input("constant", 1000, "uint32", value=2**32 - 1),)
    arrays = {"x": generate(inputs[0])}
    assert kahan_values("sum_squares", inputs, arrays, 1)[0] == float(1000 * (2**32 - 1) ** 2)


def test_an_empty_sum_is_zero() -> None:
    inputs = (_input("ones", 0),)
    assert kahan_values("sum", inputs, {"x": generate(inputs[0])}, 1).tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "inputs", "buffer", "said"),
    [
        ("dot", (_input("ones", 4),), TOTAL, "at least 2 inputs"),
        ("sum", (_input("ones", 4, "int64"),), TOTAL, "53 significant bits"),
        ("sum", (_input("ones", 4),), replace(TOTAL, shape=(3,)), "3 equal rows"),
        ("sum", (_input("ones", 4),), replace(TOTAL, shape=(0,)), "at least one element"),
        ("dot", (_input("ones", 4), _input("ones", 3, name="y")), TOTAL, "as long as"),
        ("dot", (_input("ones", 4), _input("ones", 2, name="y")), replace(TOTAL, shape=(2,)), ""),
        ("sum", (_input("ones", 4),), TOTAL, ""),
    ],
)
def test_misfits(name: str, inputs: tuple[Input, ...], buffer: Buffer, said: str) -> None:
    misfit = REFERENCES[name].misfit(inputs, buffer)
    assert said in misfit
    assert bool(misfit) == bool(said)


# --- Judging -----------------------------------------------------------------------------------


def test_the_published_results_and_their_errors() -> None:
    """First bits and errors as published for the tree and the two atomic kernels."""
    kernel = next(k for k in load_suite(bundled_suite()).kernels if k.name == "sum_squares_tree")
    case = kernel.cases[0]
    total = next(b for b in case.buffers if b.name == "total")

    def judged(*bits: int) -> Judgement:
        patterns = tuple(b.to_bytes(4, "little") for b in bits)
        return judge(kernel, case, {}, (OutputSamples(total, patterns, (0,)),))

    tree = judged(0x4B25426D)
    assert tree.verdict is Accuracy.OK
    assert tree.max_rel_err == pytest.approx(1.739e-9, rel=1e-3)
    three_low = judged(0x4B25426D, 0x4B25426A)
    assert three_low.max_rel_err == pytest.approx(2.753e-7, rel=0.02)


def test_the_worst_pattern_counts() -> None:
    judged = _judged(_sum_of_ones(), _samples([4.0, 4.00003, 3.9999]))
    assert judged.verdict is Accuracy.OUTSIDE
    assert judged.max_rel_err == pytest.approx(2.5e-5, rel=1e-2)
    assert "above 1e-05" in judged.note
    assert judged.reference == 4.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_a_wrong_infinity_never_pass(bad: float) -> None:
    judged = _judged(_sum_of_ones(rel_tol=1e300), _samples([4.0, bad]))
    assert judged.verdict is Accuracy.OUTSIDE
    assert judged.max_rel_err == math.inf


def test_nan_does_not_pass_even_where_the_reference_is_nan() -> None:
    case = Case("nan", 2, (_input("constant", 2, bits=0x7FC00000),), (TOTAL,), "sum", 1.0)
    assert _judged(case, _samples([math.nan])).verdict is Accuracy.OUTSIDE


def test_the_right_infinity_passes() -> None:
    case = Case("inf", 2, (_input("constant", 2, value=math.inf),), (TOTAL,), "sum", 0.0)
    judged = _judged(case, _samples([math.inf]))
    assert (judged.verdict, judged.max_rel_err) == (Accuracy.OK, 0.0)


def test_a_reference_of_zero_is_judged_absolutely() -> None:
    case = Case("zero", 4, (_input("constant", 4, value=0.0),), (TOTAL,), "sum", 1e-3)
    assert _judged(case, _samples([0.0005])).verdict is Accuracy.OK
    assert _judged(case, _samples([0.002])).verdict is Accuracy.OUTSIDE
    assert _judged(case, _samples([-0.0])).max_rel_err == 0.0


def test_a_tolerance_of_zero_asks_for_the_value() -> None:
    assert _judged(_sum_of_ones(rel_tol=0.0), _samples([4.0])).verdict is Accuracy.OK
    assert _judged(_sum_of_ones(rel_tol=0.0), _samples([4.0000005])).verdict is Accuracy.OUTSIDE


def test_no_reference_is_unknown() -> None:
    case = Case("plain", 4, (_input("ones", 4),), (TOTAL,))
    assert _judged(case, _samples([4.0])) == Judgement(Accuracy.UNKNOWN)


def test_every_element_of_a_row_result_is_judged() -> None:
    rows = replace(TOTAL, shape=(2,))
    case = Case("rows", 4, (_input("index", 4),), (rows,), "sum", 1e-6)
    right = OutputSamples(rows, (np.array([1, 5], np.float32).tobytes(),), (0,))
    wrong = OutputSamples(rows, (np.array([1, 6], np.float32).tobytes(),), (0,))
    assert _judged(case, right).verdict is Accuracy.OK
    assert _judged(case, wrong).max_rel_err == pytest.approx(0.2)
    assert _judged(case, wrong).reference is None


def test_only_the_first_result_is_judged_and_witnesses_are_not() -> None:
    witness = Buffer("partials", "float32", (1,), Role.WITNESS)
    judged = _judged(_sum_of_ones(), _samples([99.0], witness), _samples([4.0]))
    assert judged.verdict is Accuracy.OK


def test_bfloat16_results_are_read_as_their_values() -> None:
    buffer = replace(TOTAL, dtype="bfloat16")
    case = replace(_sum_of_ones(), buffers=(buffer,))
    assert _judged(case, OutputSamples(buffer, (b"\x80\x40",), (0,))).max_rel_err == 0.0  # 0x4080 = 4


def test_given_arrays_are_used() -> None:
    case = replace(_sum_of_ones(7), name="given")
    assert judge(_kernel(), case, {"x": np.ones(7, np.float32)}, (_samples([7.0]),)).verdict is Accuracy.OK


# --- Pinned bits -------------------------------------------------------------------------------


def _pinned(bits: str) -> Case:
    return Case("pinned", 4, (_input("ones", 4),), (TOTAL,), expected=(("total", bits),))


def test_pinned_bits_that_hold() -> None:
    assert _judged(_pinned("0x40800000"), _samples([4.0])) == Judgement(Accuracy.OK)


def test_pinned_bits_that_one_repetition_misses() -> None:
    judged = _judged(_pinned("0x40800000"), _samples([4.0, 4.0000005]))
    assert judged.verdict is Accuracy.OUTSIDE
    assert "0x40800001" in judged.note
    assert "expected 0x40800000" in judged.note


def test_pinned_minus_zero_is_not_plus_zero() -> None:
    assert _judged(_pinned("0x80000000"), _samples([0.0])).verdict is Accuracy.OUTSIDE


def test_a_pinned_output_that_is_absent_is_outside() -> None:
    judged = _judged(_pinned("0x40800000"))
    assert judged.verdict is Accuracy.OUTSIDE
    assert "absent" in judged.note
