"""Patterns as numbers. Bit literals are IEEE 754 encodings, checkable by hand."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reprodb import bits
from reprodb.domain import Field
from tests.builders import floats, word

FLOATS = {"float16": 2, "float32": 4, "float64": 8}
finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def ulp(before: str, after: str, dtype: str = "float32") -> int | None:
    return bits.ulp_between(word(before), word(after), dtype)


def test_hex_is_the_word_not_the_bytes() -> None:
    assert bits.hex_bits(word("0x4b25426d")) == "0x4b25426d"
    assert bits.from_hex("0x4b25426d") == b"\x6d\x42\x25\x4b"
    assert bits.hex_word(0x3C00, "float16") == "0x3c00"


@given(st.binary(min_size=1, max_size=8))
def test_hex_round_trip(data: bytes) -> None:
    assert bits.from_hex(bits.hex_bits(data)) == data


@pytest.mark.parametrize(
    ("dtype", "data", "value"),
    [
        ("float16", "0x3c00", 1.0),
        ("bfloat16", "0x3fc0", 1.5),
        ("bfloat16", "0x7f80", math.inf),
        ("float32", "0x40490fdb", float(np.float32(math.pi))),
        ("float64", "0x400921fb54442d18", math.pi),
        ("int32", "0xffffffff", -1),
        ("uint64", "0xffffffffffffffff", 2**64 - 1),
    ],
)
def test_values(dtype: str, data: str, value: float) -> None:
    assert bits.to_array(word(data), dtype)[0] == value


@pytest.mark.parametrize(
    ("before", "after", "distance"),
    [
        ("0x3f800000", "0x3f800001", 1),  # 1 and the next number
        ("0x00000000", "0x80000000", 0),  # the zeros are one
        ("0x00000001", "0x80000001", 2),  # the smallest numbers around them
        ("0x7f7fffff", "0x7f800000", 1),  # infinity is one past the largest
        ("0xff800000", "0x7f800000", 2 * 0x7F800000),
        ("0x7fc00000", "0x3f800000", None),  # NaN has no place
        ("0x7fc00000", "0x7fc00000", None),
    ],
)
def test_ulp_of_float32(before: str, after: str, distance: int | None) -> None:
    assert ulp(before, after) == distance


def test_ulp_spans_the_whole_line_of_float64_without_overflow() -> None:
    assert ulp("0xfff0000000000000", "0x7ff0000000000000", "float64") == 2 * 0x7FF0000000000000


def test_ulp_of_half_types_and_of_integers() -> None:
    assert ulp("0x3c00", "0x3c01", "float16") == 1
    assert ulp("0x3f80", "0x3f7f", "bfloat16") == 1
    assert ulp("0x00000001", "0x00000002", "int32") is None


def distance(a: float, b: float) -> int:
    found = bits.ulp_between(floats(a), floats(b), "float32")
    assert found is not None
    return found


@given(finite32, finite32)
def test_ulp_is_symmetric_and_zero_only_for_equal_numbers(a: float, b: float) -> None:
    assert distance(a, b) == distance(b, a) >= 0
    assert (distance(a, b) == 0) == (a == b)


@given(finite32, finite32, finite32)
def test_ulp_obeys_the_triangle_inequality(a: float, b: float, c: float) -> None:
    assert distance(a, c) <= distance(a, b) + distance(b, c)


@given(finite32)
@example(float(np.finfo(np.float32).max))
def test_the_next_float_is_one_apart(a: float) -> None:
    with np.errstate(over="ignore"):  # infinity follows the largest
        following = float(np.nextafter(np.float32(a), np.float32(np.inf)))
    assert distance(a, following) == (0 if a == following else 1)


@given(st.floats(width=64, allow_nan=False))
def test_parts_make_up_the_number(value: float) -> None:
    data = struct.pack("<d", value)
    parts = bits.split(data, "float64")
    assert (parts.sign << 63 | parts.exponent << 52 | parts.fraction) == int.from_bytes(data, "little")
    assert parts.sign == (math.copysign(1, value) < 0)


def test_parts_of_bfloat16() -> None:
    assert bits.split(word("0xbfc0"), "bfloat16") == bits.Parts(1, 127, 64)


def test_differences() -> None:
    a, b = bits.to_bits(floats(1.0, 0.0, 4.0), "float32"), bits.to_bits(floats(1.5, 2.0, 4.0), "float32")
    assert bits.absolute_difference(a, b, "float32").tolist() == [0.5, 2.0, 0.0]
    assert bits.relative_difference(a, b, "float32").tolist() == [0.5, math.inf, 0.0]


def test_integers_are_subtracted_exactly() -> None:
    a = bits.to_bits((2**63 - 1).to_bytes(8, "little"), "int64")
    b = bits.to_bits((2**63 - 2).to_bytes(8, "little"), "int64")
    assert bits.absolute_difference(a, b, "int64").tolist() == [1.0]


def test_struct_patterns_split_into_packed_columns() -> None:
    fields = (Field("tag", "int8", 0), Field("value", "float32", 4))
    data = struct.pack("<bfbf", 7, 1.5, -1, 2.5)  # packed: 5 bytes an element
    (tag, _, tags), (value, _, values) = bits.columns(data, "struct", fields)
    assert (tag, value) == ("tag", "value")
    assert bits.values_of(tags, "int8").tolist() == [7, -1]
    assert bits.values_of(values, "float32").tolist() == [1.5, 2.5]
    assert bits.element_bytes("struct", fields) == 5


@given(st.lists(st.integers(0, 2**40 - 1), min_size=1, max_size=20), st.randoms())
def test_a_shuffle_is_the_same_multiset(values: list[int], random: object) -> None:
    parts = [v.to_bytes(5, "little") for v in values]
    shuffled = sorted(parts, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert bits.same_multiset(b"".join(parts), b"".join(shuffled), 5)
    other = [*parts[:-1], ((values[-1] + 1) % 2**40).to_bytes(5, "little")]
    assert not bits.same_multiset(b"".join(parts), b"".join(other), 5)


def test_plain_numbers_for_json() -> None:
    nan, inf, one = bits.to_array(word("0x7fc00000") + word("0xff800000") + word("0x3f800000"), "float32")
    assert [bits.plain(v) for v in (nan, inf, one)] == ["nan", "-inf", 1.0]
