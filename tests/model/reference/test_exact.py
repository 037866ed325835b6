"""The exact arithmetic against NumPy's correctly rounded operations, known bits and laws of rounding."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.reference import exact
from tests.model.reference.exact import BF16, F16, F32, F64, Format

MODES = ("rn", "rz", "rm", "rp")
TYPES = {F32: (np.uint32, np.float32), F64: (np.uint64, np.float64)}


def bits_of(f: Format) -> st.SearchStrategy[int]:
    """Any bits, and the neighbourhoods of the special ones."""
    near = [0, 1 << f.fraction_bits, f.one, f.infinity, f.infinity - (1 << f.fraction_bits)]
    close = st.builds(lambda a, d: (a + d) % f.sign, st.sampled_from(near), st.integers(-3, 3))
    positive = close | st.integers(0, f.sign - 1)
    return st.builds(lambda a, s: a | (f.sign if s else 0), positive, st.booleans())


pairs = st.sampled_from([F32, F64]).flatmap(lambda f: st.tuples(st.just(f), bits_of(f), bits_of(f)))


@given(pairs)
@settings(max_examples=300, deadline=None)
def test_nearest_is_what_the_processor_computes(case: tuple[Format, int, int]) -> None:
    f, a, b = case
    unsigned, real = TYPES[f]
    x, y = np.array(a, unsigned).view(real), np.array(b, unsigned).view(real)
    with np.errstate(all="ignore"):
        expected = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}
        root = np.sqrt(x)
    for name, value in expected.items():
        same_float(f, getattr(exact, name)(f, a, b), value)
    same_float(f, exact.sqrt(f, a), root)


def same_float(f: Format, got: int, expected: object) -> None:
    unsigned, real = TYPES[f]
    value = np.asarray(expected, real)
    if np.isnan(value):
        assert got == f.nan if f is not F64 else exact.is_nan(f, got)
    else:
        assert got == int(value.view(unsigned))


@given(bits_of(F64))
@settings(max_examples=200, deadline=None)
def test_narrowing_is_what_the_processor_computes(a: int) -> None:
    value = np.array(a, np.uint64).view(np.float64)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        single, half = value.astype(np.float32), value.astype(np.float16)
    if np.isnan(value):
        assert exact.is_nan(F32, exact.convert(F64, F32, a))
        assert exact.is_nan(F16, exact.convert(F64, F16, a))
    else:
        assert exact.convert(F64, F32, a) == int(single.view(np.uint32))
        assert exact.convert(F64, F16, a) == int(half.view(np.uint16))


@given(st.sampled_from([F16, BF16, F32, F64]), st.fractions().filter(bool))
@settings(max_examples=200, deadline=None)
def test_roundings_enclose_the_number(f: Format, value: Fraction) -> None:
    value *= exact.power_of_two(f.least_exponent // 2)
    down, up = exact.round_to(f, value, "rm"), exact.round_to(f, value, "rp")
    assert exact.round_to(f, value, "rn") in (down, up)
    assert exact.round_to(f, value, "rz") == (up if value < 0 else down)
    if not exact.is_inf(f, down):
        assert exact.number(f, down) <= value
    if not exact.is_inf(f, up):
        assert value <= exact.number(f, up)
    assert exact.key(f, up) - exact.key(f, down) in (0, 1)


@given(bits_of(F32), bits_of(F32))
@settings(max_examples=100, deadline=None)
def test_a_root_is_the_largest_float_whose_square_does_not_exceed(a: int, b: int) -> None:
    a &= ~F32.sign
    if exact.is_nan(F32, a) or exact.is_inf(F32, a) or exact.is_zero(F32, a):
        return
    root = exact.sqrt(F32, a, "rm")
    assert exact.number(F32, root) ** 2 <= exact.number(F32, a) < exact.number(F32, root + 1) ** 2


@pytest.mark.parametrize(
    ("a", "b", "c", "mode", "bits"),
    [
        # (1 + 2^-23)^2 - 2^-46 = 1 + 2^-22 exactly.
        (0x3F800001, 0x3F800001, 0xA8800000, "rn", 0x3F800002),
        # Just above the middle of 1 and its successor; and 2^-70 below the middle of two floats, which a sum
        # in double would take for the middle and round to even.
        (0x33800000, 0x3F800001, 0x3F800000, "rn", 0x3F800001),
        (0x3F7FFFFE, 0x33800001, 0x3F800001, "rn", 0x3F800001),
        (0x33800000, 0x3F800000, 0x3F800000, "rn", 0x3F800000),
        (0x33800000, 0x3F800000, 0x3F800001, "rn", 0x3F800002),
        # A product below everything still moves a directed rounding.
        (0x00000001, 0x00000001, 0x3F800000, "rp", 0x3F800001),
        (0x80000001, 0x00000001, 0x3F800000, "rm", 0x3F7FFFFF),
        (0x80000001, 0x00000001, 0x3F800000, "rn", 0x3F800000),
        # Exact cancellation: +0, or -0 when rounding down.
        (0x40000000, 0x40400000, 0xC0C00000, "rn", 0x00000000),
        (0x40000000, 0x40400000, 0xC0C00000, "rm", 0x80000000),
        (0x80000000, 0x3F800000, 0x80000000, "rn", 0x80000000),
        # 0 * inf, inf - inf, NaN payloads: one NaN.
        (0x00000000, 0x7F800000, 0x3F800000, "rn", 0x7FFFFFFF),
        (0x7F800000, 0x3F800000, 0xFF800000, "rn", 0x7FFFFFFF),
        (0xFFC12345, 0x3F800000, 0x3F800000, "rn", 0x7FFFFFFF),
        # Overflow in each direction.
        (0x7F7FFFFF, 0x40000000, 0x00000000, "rz", 0x7F7FFFFF),
        (0x7F7FFFFF, 0x40000000, 0x00000000, "rm", 0x7F7FFFFF),
        (0xFF7FFFFF, 0x40000000, 0x00000000, "rm", 0xFF800000),
    ],
)
def test_fused_products(a: int, b: int, c: int, mode: str, bits: int) -> None:
    assert exact.fma(F32, a, b, c, mode) == bits


def test_minima_and_maxima_know_zeros_and_nans() -> None:
    assert exact.minimum(F32, 0x80000000, 0) == exact.minimum(F32, 0, 0x80000000) == 0x80000000
    assert exact.maximum(F32, 0x80000000, 0) == exact.maximum(F32, 0, 0x80000000) == 0
    assert exact.minimum(F32, 0x7FC00001, 0x3F800000) == 0x3F800000
    assert exact.minimum(F32, 0x7FC00001, 0xFFC00001) == 0x7FFFFFFF
    assert exact.minimum(F32, 0x7FC00001, 0x3F800000, propagate=True) == 0x7FFFFFFF


@pytest.mark.parametrize(
    ("a", "width", "signed", "mode", "expected"),
    [
        (0x3F000000, 32, True, "rn", 0),  # 0.5 to even
        (0x3FC00000, 32, True, "rn", 2),  # 1.5 to even
        (0xBF000000, 32, True, "rm", 0xFFFFFFFF),
        (0xBF000000, 32, False, "rp", 0),
        (0x4F000000, 32, True, "rz", 0x7FFFFFFF),  # 2^31, clamped
        (0xCF800000, 32, True, "rz", 0x80000000),
        (0xBF800000, 32, False, "rz", 0),
        (0x7F800000, 16, True, "rz", 0x7FFF),
        (0x7FC00000, 32, True, "rz", 0),  # NaN: 0 in 32 bits, the top bit alone in 64
        (0x7FC00000, 64, True, "rz", 1 << 63),
        (0x7FC00000, 64, False, "rz", 1 << 63),
    ],
)
def test_floats_to_integers(a: int, width: int, signed: bool, mode: str, expected: int) -> None:
    assert exact.to_integer(F32, a, width, signed, mode) == expected


@pytest.mark.parametrize(
    ("operation", "operands", "mode", "tiny"),
    [
        # As an H200 does: 2^-126 (1 - 2^-26) rounds to 2^-126 and stays; 2^-126 (1 - 2^-24) flushes, although
        # rounding among the subnormals, to even, would reach 2^-126 too.
        (exact.mul, (0x00800400, 0x3F7FF800), "rn", False),
        (exact.mul, (0x00800000, 0x3F7FFFFF), "rn", True),
        (exact.mul, (0xAB8F08B2, 0x146517AA), "rn", False),
        (exact.mul, (0xA3E72C46, 0x9C0DBF27), "rp", False),
        (exact.fma, (0x00800001, 0x00800001, 0x80800000), "rn", False),
        (exact.fma, (0xA49DD254, 0x094FA079, 0x00800000), "rn", False),
    ],
)
def test_tiny_is_judged_after_rounding(
    operation: Callable[..., int], operands: tuple[int, ...], mode: str, tiny: bool
) -> None:
    assert exact.is_tiny(F32, operation, operands, mode) is tiny


def test_doubles_pass_nans_on() -> None:
    """Measured on an H200: fma takes the second operand's NaN before the third's, and makes it quiet."""
    a, c = 0x7FF8ABCD00000000, 0xFFF8000000000000
    assert exact.fma(F64, a, 0x4000000000000000, c) == c
    assert exact.add(F64, 0x7FF0000000000001, 0x3FF0000000000000) == 0x7FF8000000000001
    assert exact.sub(F64, F64.infinity, F64.infinity) == 0xFFF8000000000000
