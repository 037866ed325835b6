"""Whether a case's input can show an order of its sum at all: the sum reordered on the CPU. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """Whether the terms of the sum are known: the case has a reference, and the accumulator rounds."""
    return case.reference is not None and kernel.accumulator in SIGNIFICANT


def cannot_show(kernel: Kernel, case: Case, arrays: Mapping[str, Array]) -> str:
    """Why no order of this case's sum moves a bit of it; "" where one does, or where that is not known.

    Proven where every partial sum is exact in the accumulator whatever its order: all terms are multiples of
    one unit, and their sizes add up to no more of these than the accumulator counts. Else found by trying up
    to a quarter million terms in several groupings and seeded permutations. `arrays` are the case's inputs.
    """
    if not judged(kernel, case):
        return ""
    result = next((b for b in case.buffers if b.role is Role.RESULT), None)
    if result is None or not result.elements:
        return ""
    assert case.reference is not None  # noqa: S101 -- `judged` says so
    key = (case.reference, case.inputs, result.elements, kernel.accumulator)
    known = _known()
    if key not in known:
        used = case.inputs[: REFERENCES[case.reference].inputs]
        parts = _parts(case.reference, used, arrays, result.elements)
        known[key] = reason_of(parts, kernel.accumulator)
    return known[key]


@lru_cache(maxsize=1)
def _known() -> dict[tuple[str, tuple[Input, ...], int, str], str]:
    """What this process has found out already."""
    return {}


def _parts(
    reference: str, used: Sequence[Input], arrays: Mapping[str, Array], rows: int
) -> tuple[Array, ...]:
    """Doubles, shape (rows, terms) each, whose sum over the parts is the exact term."""
    values = []
    for spec in used:
        whole = values_of(arrays[spec.name], spec.dtype).astype(np.float64)
        long = spec.n == used[0].n
        values.append(whole.reshape(rows, -1) if long else np.broadcast_to(whole, (rows, spec.n)))
    exact = all(2 * SIGNIFICANT.get(spec.dtype, 53) <= SIGNIFICANT["float64"] for spec in used)
    with np.errstate(all="ignore"):
        return REFERENCES[reference].terms(values, exact)


def reason_of(parts: Sequence[Array], accumulator: str) -> str:
    """Why no order of the sum of these terms moves a bit, row by row; "" where one does.

    `parts` are doubles of shape (rows, terms); a term is the sum of its parts, rounded to the accumulator.
    """
    rows, length = parts[0].shape
    if length <= 2:
        return f"{length} term{'s' * (length != 1)} can be added in one order"
    with np.errstate(all="ignore"):
        terms = _rounded(sum(parts[1:], parts[0]), accumulator)
        if np.isnan(terms).any(axis=1).all():
            return "every order gives NaN"
        if not terms.any():  # padding with +0, which is no order, gives a sum of -0 another sign
            return "" if np.signbit(terms).any() else "every term is zero"
        first = terms if terms.size <= FIRST else terms[:, : max(3, FIRST // rows)]
        if _differ(first, accumulator, of=2):  # which nearly all inputs do
            return ""
        if proof := _exact(parts, accumulator):
            return proof
        if _differ(first, accumulator):
            return ""
    # Of more terms than were tried nothing is known: the rest may round where these do not.
    return (
        f"{len(list(_orders(length)))} orders tried on the CPU give the same bits" if first is terms else ""
    )


def _exact(parts: Sequence[Array], accumulator: str) -> str:
    """The proof that every partial sum fits the accumulator, or ""."""
    sizes = np.abs(np.concatenate(parts, axis=1))
    if not np.isfinite(sizes).all():
        return ""
    fractions, exponents = np.frexp(sizes[sizes > 0])
    whole = (fractions * 2.0**53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # the place of the lowest set bit
    unit = int((exponents - 53 + lowest).min())
    most = float(sizes.sum(axis=1).max())  # exact up to 2^53 units, and so are all limits but the last type's
    smallest, largest = NORMAL[accumulator]
    limit = min(2.0 ** min(SIGNIFICANT[accumulator] + unit, 1023), largest)
    if unit < smallest or most > limit or (most == limit and accumulator == "float64"):
        return ""
    return (
        f"every order is exact: all terms are multiples of 2^{unit}, and their sizes add up to no more than "
        f"2^{SIGNIFICANT[accumulator]} of these"
    )


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
    length = terms.shape[1]
    lanes = min(lanes, length)
    sums = terms[:, :lanes].copy()
    for start in range(lanes, length, lanes):
        width = min(lanes, length - start)
        sums[:, :width] = _rounded(sums[:, :width] + terms[:, start : start + width], accumulator)
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
