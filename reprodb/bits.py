"""Patterns seen as numbers: values, hex, ULP distance, relative difference, sign, exponent and fraction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from reprodb.domain import DTYPE_BYTES, Field

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bits = npt.NDArray[np.unsignedinteger[Any]]
    Values = npt.NDArray[Any]
    Mask = npt.NDArray[np.bool_]

# Fraction bits of the IEEE formats; the rest of the word is the sign and the exponent.
FRACTION_BITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def is_float(dtype: str) -> bool:
    return dtype in FRACTION_BITS


def to_bits(data: bytes, dtype: str) -> Bits:
    """The elements of a pattern as unsigned words, shape (n,). Little endian."""
    import numpy as np

    return np.frombuffer(data, dtype=f"<u{DTYPE_BYTES[dtype]}")


def to_array(data: bytes, dtype: str) -> Values:
    """The elements of a pattern as numbers, shape (n,). bfloat16 comes as float32, which holds it exactly."""
    return values_of(to_bits(data, dtype), dtype)


def values_of(bits: Bits, dtype: str) -> Values:
    """Words seen as numbers of `dtype`, same shape."""
    import numpy as np

    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(np.dtype(dtype).newbyteorder("<"))


def hex_word(word: int, dtype: str) -> str:
    """One element as people read it: `0x4b25426d`, as many digits as the type has."""
    return f"0x{word:0{2 * DTYPE_BYTES[dtype]}x}"


def hex_bits(data: bytes) -> str:
    """The bytes of one element (little endian) as one number: `0x4b25426d`."""
    return f"0x{int.from_bytes(data, 'little'):0{2 * len(data)}x}"


def from_hex(text: str) -> bytes:
    """The inverse of `hex_bits`: `0x4b25426d` → 6d 42 25 4b."""
    digits = text.removeprefix("0x")
    return bytes.fromhex(digits)[::-1]


def plain(value: Any) -> float | int | str:
    """A NumPy scalar as a Python number; what is not finite as `nan`, `inf` or `-inf`."""
    number = value.item()
    if isinstance(number, int):
        return number
    return float(number) if isfinite(number) else str(number)


def _magnitude_mask(dtype: str) -> int:
    return (1 << (8 * DTYPE_BYTES[dtype] - 1)) - 1


def _infinity(dtype: str) -> int:
    return _magnitude_mask(dtype) & ~((1 << FRACTION_BITS[dtype]) - 1)


def nan_mask(bits: Bits, dtype: str) -> Mask:
    """Which words are NaN; none of an integer type."""
    import numpy as np

    if not is_float(dtype):
        return np.zeros(bits.shape, dtype=np.bool_)
    word = bits.dtype.type
    return (bits & word(_magnitude_mask(dtype))) > word(_infinity(dtype))


def zero_mask(bits: Bits, dtype: str) -> Mask:
    """Which words are +0 or -0."""
    zero: Mask = (bits & bits.dtype.type(_magnitude_mask(dtype))) == 0
    return zero


def ordinals(bits: Bits, dtype: str) -> npt.NDArray[np.int64]:
    """Where floats stand on the line of all floats, 0 for both zeros, negative below; undefined for NaN.

    An infinity is one past the largest number. Fits: the largest float64 magnitude is below 2**63.
    """
    import numpy as np

    word = bits.dtype.type
    magnitude = (bits & word(_magnitude_mask(dtype))).astype(np.int64)
    negative = (bits >> word(8 * DTYPE_BYTES[dtype] - 1)).astype(np.bool_)
    return np.where(negative, -magnitude, magnitude)


def ulp_distance(before: Bits, after: Bits, dtype: str) -> tuple[npt.NDArray[np.uint64], Mask]:
    """How many floats lie between two words, and where that is defined (no NaN on either side).

    +0 and -0 are 0 apart; an infinity is one past the largest number. Distances are exact up to
    the whole line (2**64 - 2**53 for float64); they are 0 where undefined.
    """
    import numpy as np

    defined = ~(nan_mask(before, dtype) | nan_mask(after, dtype))
    a, b = ordinals(before, dtype), ordinals(after, dtype)
    # Wrapping subtraction of the larger minus the smaller is the exact unsigned distance.
    distance = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
    return np.where(defined, distance, np.uint64(0)), defined


def ulp_between(before: bytes, after: bytes, dtype: str) -> int | None:
    """ULP distance of two single elements; None for NaN and for integer types."""
    if not is_float(dtype):
        return None
    distance, defined = ulp_distance(to_bits(before, dtype), to_bits(after, dtype), dtype)
    return int(distance[0]) if defined[0] else None


def absolute_difference(before: Bits, after: Bits, dtype: str) -> npt.NDArray[np.float64]:
    """|after - before| in float64; integers are subtracted exactly first. NaN where undefined."""
    import numpy as np

    a, b = values_of(before, dtype), values_of(after, dtype)
    if is_float(dtype):
        with np.errstate(all="ignore"):
            return np.abs(b.astype(np.float64) - a.astype(np.float64))
    wide = np.uint64
    return (np.maximum(a, b).astype(wide) - np.minimum(a, b).astype(wide)).astype(np.float64)


def relative_difference(before: Bits, after: Bits, dtype: str) -> npt.NDArray[np.float64]:
    """|after - before| / |before| in float64; infinite where `before` is 0 and `after` is not."""
    import numpy as np

    with np.errstate(all="ignore"):
        gap = absolute_difference(before, after, dtype)
        base = np.abs(values_of(before, dtype).astype(np.float64))
        return np.where(gap == 0, 0.0, gap / base)


@dataclass(frozen=True, slots=True)
class Parts:
    """A float taken apart: sign bit, biased exponent, fraction field."""

    sign: int
    exponent: int
    fraction: int


def split(data: bytes, dtype: str) -> Parts:
    """Sign, exponent and fraction of one float element."""
    word, fraction = int.from_bytes(data, "little"), FRACTION_BITS[dtype]
    width = 8 * DTYPE_BYTES[dtype]
    return Parts(
        word >> (width - 1),
        (word >> fraction) & ((1 << (width - 1 - fraction)) - 1),
        word & ((1 << fraction) - 1),
    )


def columns(data: bytes, dtype: str, fields: Sequence[Field]) -> Iterator[tuple[str | None, str, Bits]]:
    """(field, dtype, words of shape (n,)) of a pattern: one column, or one a field of a packed struct."""
    if not fields:
        yield None, dtype, to_bits(data, dtype)
        return
    import numpy as np

    layout = np.dtype([(f.name, f"<u{DTYPE_BYTES[f.dtype]}") for f in fields])
    table = np.frombuffer(data, dtype=layout)
    for field in fields:
        yield field.name, field.dtype, np.ascontiguousarray(table[field.name])


def element_bytes(dtype: str, fields: Sequence[Field]) -> int:
    """Bytes of one element in a pattern: padding of structs is not in it."""
    return sum(DTYPE_BYTES[f.dtype] for f in fields) if fields else DTYPE_BYTES[dtype]


def same_multiset(before: bytes, after: bytes, size: int) -> bool:
    """Whether two patterns hold the same elements of `size` bytes in any order."""
    import numpy as np

    if len(before) != len(after):
        return False
    # Sorted as bytes: any total order will do.
    a, b = (np.sort(np.frombuffer(pattern, dtype=f"S{size}")) for pattern in (before, after))
    return bool(a.tobytes() == b.tobytes())
