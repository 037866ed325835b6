"""The `sweep` input pattern: arguments of a function that reach everywhere it can behave differently.

Of every 16 elements some lie in the range of interest (uniform by value, or by how many floats lie between),
some have every exponent and both signs in turn with random fractions, some sit a few floats beside landmarks
(0, 1, the ends of the range, multiples of π/4), and one is a special value. `axis` says which argument of
the function it is: arguments of one seed meet in every mixture, near-equal pairs and all pairs of specials
among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# What each of 16 neighbouring elements is, by axis: U in the range by value, B in the range by floats, E of
# every exponent, N a few floats from what axis 0 has there, L beside a landmark, S special.
MIXTURE = ("UUUUUUBBUEEEULLS", "UUUUUUBUBEEUENLS", "UUUUUUBUBEUEENLS", "UUUUUUBUBEUUUNLS")
LANDMARKS = (
    0.0,
    0.25,
    0.5,
    0.75,
    1.0,
    1.25,
    1.5,
    2.0,
    3.0,
    4.0,
    *(k * 0.7853981633974483 for k in range(1, 17)),
)
# Exponent and fraction bits.
_LAYOUT = {"float16": (5, 10), "float32": (8, 23), "float64": (11, 52)}
_NEAR_BITS = 12  # a neighbour is up to 2^12 floats away, mostly far fewer


def sweep(dtype: str, params: Mapping[str, int | float], specials: tuple[int, ...], n: int) -> Array:
    """`n` elements as their storage type (floats, or integers of `dtype`), the same on every machine.

    Only additions, multiplications and integer operations make them. A longer sweep begins with a shorter
    one whose length is a multiple of 16.
    """
    axis, seed = int(params["axis"]), int(params["seed"])
    groups = -(-n // 16)
    if dtype not in _LAYOUT:
        return _integers(dtype, seed, axis, specials, groups)[:n]
    made = _Floats(dtype, float(params["low"]), float(params["high"]), seed)
    table = np.empty((groups, 16), made.word)
    for column, kind in enumerate(MIXTURE[axis]):
        table[:, column] = made.column(kind, axis, column, groups, specials)
    return table.reshape(-1)[:n].view(np.dtype(dtype).newbyteorder("<"))


def _raw(seed: int, axis: int, column: int, count: int) -> NDArray[np.uint64]:
    """Random 64-bit words; the bit stream of PCG64 is what NumPy promises to keep between versions."""
    return np.random.PCG64([seed, axis, column]).random_raw(count)


class _Floats:
    """Columns of words of one float type."""

    def __init__(self, dtype: str, low: float, high: float, seed: int) -> None:
        self.exponent_bits, self.fraction_bits = _LAYOUT[dtype]
        self.width = 1 + self.exponent_bits + self.fraction_bits
        self.word = np.dtype(f"<u{self.width // 8}")
        self.real = np.dtype(dtype).newbyteorder("<")
        self.low, self.high, self.seed = low, high, seed

    def column(self, kind: str, axis: int, column: int, count: int, specials: tuple[int, ...]) -> Array:
        raw = _raw(self.seed, axis, column, count)
        if kind == "U":
            return self._by_value(raw)
        if kind == "B":
            return self._by_floats(raw)
        if kind == "E":
            return self._every_exponent(raw, axis, column)
        if kind == "L":
            return self._beside(self._landmarks(count, axis), raw)
        if kind == "N":
            first = MIXTURE[0][column]
            return self._beside(self.column(first, 0, column, count, specials), raw)
        words = np.array(specials, self.word)
        turn = np.arange(count) // len(specials) ** min(axis, 2)
        chosen: Array = words[turn % len(specials)]
        return chosen

    def _by_value(self, raw: NDArray[np.uint64]) -> Array:
        unit = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        with np.errstate(over="ignore"):
            return (self.low + (self.high - self.low) * unit).astype(self.real).view(self.word)

    def _by_floats(self, raw: NDArray[np.uint64]) -> Array:
        with np.errstate(over="ignore"):
            low, high = (self._place(np.array([end]).astype(self.real)) for end in (self.low, self.high))
        span = int(high[0]) - int(low[0]) + 1
        # The high 64 bits of a product would be fairer; of 2^64 words the remainder's bias is nothing here.
        return self._word(low + (raw % np.uint64(span)).astype(np.int64))

    def _every_exponent(self, raw: NDArray[np.uint64], axis: int, column: int) -> Array:
        heads = np.uint64(1 << (1 + self.exponent_bits))
        j = np.arange(len(raw), dtype=np.uint64)
        # An odd stride visits all; what is added a round lets the arguments' exponents meet in new pairs.
        stride = np.uint64((1, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)[axis])
        head = (j * stride + j // heads * np.uint64(77 * axis + 1) + np.uint64(column)) % heads
        fraction = raw >> np.uint64(64 - self.fraction_bits)
        return (head << np.uint64(self.fraction_bits) | fraction).astype(self.word)

    def _landmarks(self, count: int, axis: int) -> Array:
        marks = [*LANDMARKS, *(-mark for mark in LANDMARKS[1:]), self.low, self.high]
        with np.errstate(over="ignore"):
            words = np.array(marks).astype(self.real).view(self.word)
        chosen: Array = words[(np.arange(count) // len(marks) ** min(axis, 1)) % len(marks)]
        return chosen

    def _beside(self, words: Array, raw: NDArray[np.uint64]) -> Array:
        """Words moved by up to 2^12 floats, by a random power of two at most; NaNs stay."""
        reach = (np.uint64(1) << (raw & np.uint64(15)) % np.uint64(_NEAR_BITS + 1)).astype(np.uint64)
        steps = ((raw >> np.uint64(8)) % (np.uint64(2) * reach + np.uint64(1))).astype(np.int64)
        return self._word(self._place(words.view(self.real)) + steps - reach.astype(np.int64), words)

    def _place(self, values: Array) -> NDArray[np.int64]:
        """Where floats stand on the line of all floats; -0 just below +0."""
        words = values.view(self.word).astype(np.uint64)
        top = np.uint64(1 << (self.width - 1))
        magnitude = (words & (top - np.uint64(1))).astype(np.int64)
        return np.where(words >= top, -1 - magnitude, magnitude)

    def _word(self, places: NDArray[np.int64], kept: Array | None = None) -> Array:
        top = 1 << (self.width - 1)
        infinity = ((1 << self.exponent_bits) - 1) << self.fraction_bits
        magnitude = np.where(places < 0, -1 - places, places).astype(np.uint64)
        words = (magnitude | np.where(places < 0, np.uint64(top), np.uint64(0))).astype(self.word)
        return words if kept is None else np.where(magnitude > np.uint64(infinity), kept, words)


def _integers(dtype: str, seed: int, axis: int, specials: tuple[int, ...], groups: int) -> Array:
    """Integers of every length in bits, both signs; one of 16 special."""
    width = 8 * np.dtype(dtype).itemsize
    raw = _raw(seed, axis, 0, groups * 16)
    length = _raw(seed, axis, 1, groups * 16) % np.uint64(width) + np.uint64(1)
    words = raw >> (np.uint64(64) - length)
    negative = (_raw(seed, axis, 2, groups * 16) & np.uint64(1)).astype(np.bool_)
    words = np.where(negative, np.uint64(0) - words, words).reshape(-1, 16)
    words[:, 15] = np.resize(np.array(specials, np.uint64), groups)
    return words.reshape(-1).astype(f"<u{width // 8}").view(np.dtype(dtype).newbyteorder("<"))


def in_chunks(array: Array, sizes: Iterable[int]) -> Iterator[Array]:
    start = 0
    for size in sizes:
        yield array[start : start + size]
        start += size
