"""Whether a case's input can show an order of its sum at all: the sum reordered on the CPU. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.accuracy import REFERENCES
from reprodb.bits import values_of
from reprodb.domain import FRIENDLY, Case, Input, Kernel, Role
from reprodb.patterns import storage, to_bfloat16

Array = NDArray[Any]

# Significant bits of the types that sums are accumulated in.
SIGNIFICANT = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
# The exponent below which numbers are subnormal, which a build may flush, and the largest number.
NORMAL = {
    "float16": (-14, 65504.0),
    "bfloat16": (-126, 3.3895313892515355e38),
    "float32": (-126, 3.4028234663852886e38),
    "float64": (-1022, 1.7976931348623157e308),
}
# Terms that are reordered: an order that shows among the first quarter million shows among more.
FIRST = 1 << 18
SHUFFLES = 6  # seeded permutations, each in two groupings


def remark(kernel: Kernel, case: Case, arrays: Mapping[str, Array]) -> str:
    """`this input cannot show a difference: …`, or "" where it can or where its terms are unknown."""
    reason = cannot_show(kernel, case, arrays)
    return f"{FRIENDLY}: {reason}" if reason else ""


def judged(kernel: Kernel, case: Case) -> bool:
    """Whether the terms of the sum are known, and the accumulator rounds.

    A case's reference says what they are. Cases of compositions have none: what may be made of a request's
    row is looked at instead.
    """
    known = case.reference is not None or kernel.composition is not None
    return known and kernel.accumulator in SIGNIFICANT


def cannot_show(kernel: Kernel, case: Case, arrays: Mapping[str, Array]) -> str:
    """Why no order of this case's sum moves a bit of it; "" where one does, or where that is not known.

    Proven where every partial sum is exact in the accumulator whatever its order: all terms are multiples of
    one unit, and their sizes add up to no more of these than the accumulator counts. Else found by trying up
    to a quarter million terms in several groupings and seeded permutations. `arrays` are the case's inputs.
    """
    if not judged(kernel, case):
        return ""
    if case.reference is None:
        return _of_requests(kernel, case, arrays)
    result = next((b for b in case.buffers if b.role is Role.RESULT), None)
    if result is None or not result.elements:
        return ""
    rows = result.elements
    key = (case.reference, case.inputs, rows, kernel.accumulator)
    known = _known()
    if key not in known:
        used = case.inputs[: REFERENCES[case.reference].inputs]
        stretch = _stretches(case.reference, used, arrays, rows)
        known[key] = _reason(stretch, rows, used[0].n // rows, kernel.accumulator)
    return known[key]


@lru_cache(maxsize=1)
def _known() -> dict[tuple[str, tuple[Input, ...], int, str], str]:
    """What this process has found out already."""
    return {}


# Parts of the terms from one place of a row to another: doubles, shape (rows, terms) each, that sum up
# to the exact terms.
Stretches = Callable[[int, int], tuple[Array, ...]]


def _stretches(reference: str, used: Sequence[Input], arrays: Mapping[str, Array], rows: int) -> Stretches:
    exact = all(2 * SIGNIFICANT.get(spec.dtype, 53) <= SIGNIFICANT["float64"] for spec in used)
    # A second input that has one row's length is met by every row.
    shaped = [arrays[s.name].reshape(rows if s.n == used[0].n else 1, -1) for s in used]

    def stretch(start: int, stop: int) -> tuple[Array, ...]:
        values = []
        for spec, whole in zip(used, shaped, strict=True):
            piece = values_of(np.ascontiguousarray(whole[:, start:stop]), spec.dtype).astype(np.float64)
            values.append(np.broadcast_to(piece, (rows, piece.shape[1])))
        with np.errstate(all="ignore"):
            return REFERENCES[reference].terms(values, exact)

    return stretch


def reason_of(parts: Sequence[Array], accumulator: str) -> str:
    """Why no order of the sum of these terms moves a bit, row by row; "" where one does, or nobody knows.

    `parts` are doubles of shape (rows, terms); a term is the sum of its parts, rounded to the accumulator.
    """
    rows, length = parts[0].shape
    return _reason(
        lambda start, stop: tuple(part[:, start:stop] for part in parts), rows, length, accumulator
    )


def _reason(stretch: Stretches, rows: int, length: int, accumulator: str) -> str:
    if length <= 2:
        return f"{length} term{'s' * (length != 1)} can be added in one order"
    # NumPy has no sum that rounds to bfloat16: such sums go term by term, and over fewer.
    step = max(3, (FIRST >> 4 if accumulator == "bfloat16" else FIRST) // rows)
    with np.errstate(all="ignore"):
        parts = stretch(0, min(step, length))
        first = _rounded(sum(parts[1:], parts[0]), accumulator)
        if np.isnan(first).any(axis=1).all():
            return "every order gives NaN"
        if _differ(first, accumulator, of=2):  # which nearly all inputs do
            return ""
        if proof := _exact(stretch, rows, length, step, accumulator):
            return proof
        # Of more terms than were tried nothing is known: the rest may round where these do not.
        if length > step or not first.any() or _differ(first, accumulator):
            return ""
    return f"{len(list(_orders(length)))} orders tried on the CPU give the same bits"


def _exact(stretch: Stretches, rows: int, length: int, step: int, accumulator: str) -> str:
    """The proof that every partial sum fits the accumulator, or "". Looked at a stretch at a time."""
    unit: int | None = None
    sums = np.zeros(rows)
    negative = False
    for start in range(0, length, step):
        parts = stretch(start, min(start + step, length))
        sizes = np.abs(np.concatenate(parts, axis=1))
        negative = negative or bool(np.signbit(parts[0]).any())
        if sizes.any():
            here = _unit(sizes)
            unit = here if unit is None else min(unit, here)
        sums += sizes.sum(axis=1)  # exact up to 2^53 units, which no limit but float64's own exceeds
        if unit is None:
            continue
        if not _fits(unit, float(sums.max()), accumulator):
            return ""
    if unit is None:  # padding with +0, which is no order, gives a sum of -0 another sign
        return "" if negative else "every term is zero"
    return (
        f"every order is exact: all terms are multiples of 2^{unit}, and their sizes add up to no more than "
        f"2^{SIGNIFICANT[accumulator]} of these"
    )


def _fits(unit: int, most: float, accumulator: str) -> bool:
    """Whether the accumulator holds every multiple of 2^unit up to a size, and none of them is subnormal."""
    smallest, largest = NORMAL[accumulator]
    limit = min(2.0 ** min(SIGNIFICANT[accumulator] + unit, 1023), largest)
    # Sizes are added up in float64: what reaches its own limit may have been rounded.
    return unit >= smallest and most <= limit and not (most == limit and accumulator == "float64")


def _unit(sizes: Array) -> int:
    """The exponent of the largest power of two that all finite sizes are multiples of."""
    fractions, exponents = np.frexp(sizes[(sizes > 0) & np.isfinite(sizes)])
    whole = (fractions * 2.0**53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # the place of the lowest set bit
    return int((exponents - 53 + lowest).min(initial=0))


# --- Requests ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of an input's elements."""

    unit: int  # all are multiples of 2^unit
    largest: float
    row: float  # what those of as many elements as a request has add up to, at most


def _of_requests(kernel: Kernel, case: Case, arrays: Mapping[str, Array]) -> str:
    """Why no order of the sums over a request's row moves a bit; "" where one may.

    Whether they sum elements, squares, or products with another input's elements is not known. Proven where
    all of these are exact.
    """
    composition = kernel.composition
    floats = [i for i in case.inputs if i.dtype in SIGNIFICANT and i.n]
    own = [i for i in floats if composition is not None and i.name == composition.rows[0]]
    if composition is None or not own:
        return ""
    key = ("", tuple(floats), composition.requests, kernel.accumulator)
    width = own[0].n // composition.requests

    def proof(most: int) -> str:
        with np.errstate(all="ignore"):  # NaNs that signal
            values = {
                i.name: values_of(arrays[i.name].reshape(-1)[:most], i.dtype).astype(np.float64)
                for i in floats
            }
        rows = values.pop(own[0].name).reshape(-1, width)
        return _exact_products(rows, list(values.values()), kernel.accumulator)

    if key not in _known():  # most inputs are told by their first rows
        first = proof(width * max(1, FIRST // width))
        _known()[key] = first and proof(max(i.n for i in floats))
    return _known()[key]


def _exact_products(rows: Array, others: Sequence[Array], accumulator: str) -> str:
    if not rows.any() or not all(other.any() for other in others):
        signs = any(bool(np.signbit(values).any()) for values in (rows, *others))
        return "" if signs else "every product is zero"
    sizes = [_sizes(np.abs(rows).sum(axis=1), rows)]
    sizes += [_sizes(np.abs(other).max(keepdims=True) * rows.shape[1], other) for other in others]
    sums = [(one.unit, one.row) for one in sizes]
    for place, one in enumerate(sizes):
        for other in sizes[place:]:
            most = min(one.row * other.largest, one.largest * other.row)
            sums.append((one.unit + other.unit, most))
    if not all(_fits(unit, most, accumulator) for unit, most in sums):
        return ""
    least, bits = min(unit for unit, _ in sums), SIGNIFICANT[accumulator]
    return (
        f"every order is exact: the elements of a request, and their products, are multiples of 2^{least}, "
        f"and their sizes add up to no more than the {bits} bits of {accumulator} hold"
    )


def _sizes(rows: Array, values: Array) -> _Sizes:
    return _Sizes(_unit(np.abs(values)), float(np.abs(values).max()), float(rows.max()))


# --- Orders ------------------------------------------------------------------------------------


def _differ(terms: Array, accumulator: str, of: int | None = None) -> bool:
    """Whether two of the orders, the first `of` them, give other bits in any row; NaNs are one."""
    length = terms.shape[1]
    first: Array | None = None
    for places, lanes in islice(_orders(length), of):
        sums = _summed(terms if places is None else terms[:, places], lanes, accumulator)
        bits = np.where(np.isnan(sums), np.nan, sums).astype(np.float64).view(np.uint64)
        if first is None:
            first = bits
        elif not np.array_equal(bits, first):
            return True
    return False


def _orders(length: int) -> Iterator[tuple[Array | None, int]]:
    """Permutations (None: as they are) and numbers of lanes that sum by stride before a halving tree."""
    for lanes in (1 << 62, 1024, 32, 2):
        yield None, lanes
    backwards = np.arange(length)[::-1]
    for lanes in (1 << 62, 32):
        yield backwards, lanes
    for seed in range(SHUFFLES):
        shuffled = np.random.default_rng(seed).permutation(length)
        for lanes in (1 << 62, 256):
            yield shuffled, lanes


def _summed(terms: Array, lanes: int, accumulator: str) -> Array:
    """Each row's sum: lane k takes every lanes-th term in turn, then the lanes meet in a halving tree."""
    rows, length = terms.shape
    lanes = min(lanes, length)
    whole = length - length % lanes
    if accumulator == "bfloat16":
        sums = terms[:, :lanes]
        for start in range(lanes, whole, lanes):
            sums = _rounded(sums + terms[:, start : start + lanes], accumulator)
    else:  # element after element, each sum rounded
        taken = terms[:, :whole].reshape(rows, -1, lanes)
        sums = np.add.accumulate(taken, axis=1, dtype=terms.dtype)[:, -1]
    sums = sums.copy()
    rest = length - whole
    sums[:, :rest] = _rounded(sums[:, :rest] + terms[:, whole:], accumulator)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        met = _rounded(sums[:, :half] + sums[:, half : 2 * half], accumulator)
        sums = np.concatenate([met, sums[:, 2 * half :]], axis=1)
    return sums[:, 0]


def _rounded(values: Array, accumulator: str) -> Array:
    """Values in the accumulator's type; bfloat16 as float32 numbers, whose sums of two round alike."""
    if accumulator == "bfloat16":
        return values_of(to_bfloat16(values.astype(np.float32)), "bfloat16").astype(np.float32)
    return values.astype(storage(accumulator), copy=False)
