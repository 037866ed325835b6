"""High-precision references computed on the CPU, and the accuracy verdict of a result against them.

A reference is the exact real-number answer on the input's values, so contraction does not enter into it.
Each is computed in two ways: with compensated sums in double precision (fast, what results are judged by),
and exactly with `math.fsum` (slow, what the first is tested by).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.bits import to_array, values_of
from reprodb.digest import sha256
from reprodb.domain import DTYPE_BYTES, Accuracy, Buffer, Case, Input, Judgement, Kernel, OutputSamples, Role
from reprodb.inputs import generate

Array = NDArray[Any]
Doubles = NDArray[np.float64]
# (inputs as doubles, whether products of two of them are exact) → terms whose sum is the answer.
Terms = Callable[[Sequence[Doubles], bool], tuple[Doubles, ...]]

LANES = 4096  # compensated sums side by side, shared out over a result's rows

# Input types whose values are exact doubles, and those whose products are too.
_EXACT = frozenset(DTYPE_BYTES) - {"int64", "uint64"}
_EXACT_PRODUCTS = frozenset(("float16", "bfloat16", "float32", "int8", "uint8", "int16", "uint16"))


@dataclass(frozen=True, slots=True)
class Reference:
    """A sum of terms over each row of the first input.

    A result of R elements splits the first input of n elements into R rows of n / R. A second input has n
    elements too, or n / R that every row meets.
    """

    summary: str
    inputs: int
    terms: Terms

    def misfit(self, inputs: Sequence[Input], result: Buffer) -> str:
        """What a case must have for this reference, or "" where it has it."""
        if len(inputs) < self.inputs:
            return f"a case of at least {self.inputs} inputs"
        used = inputs[: self.inputs]
        if any(i.dtype not in _EXACT for i in used):
            return "inputs of at most 53 significant bits: no int64 or uint64"
        if result.fields or result.elements == 0:
            return "a first result of at least one element that is no struct"
        if used[0].n % result.elements:
            return f"an input that splits into {result.elements} equal rows"
        if any(i.n not in (used[0].n, used[0].n // result.elements) for i in used[1:]):
            return "a second input as long as the first, or as one of its rows"
        return ""


def _product(a: Doubles, b: Doubles, exact: bool) -> tuple[Doubles, ...]:
    """Terms that sum to a * b exactly: the rounded product, and its error by Dekker's splitting."""
    product = a * b
    if exact:
        return (product,)
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, np.where(np.isfinite(error), error, 0.0)


def _split(a: Doubles) -> tuple[Doubles, Doubles]:
    scaled = a * 134217729.0  # 2^27 + 1: halves of at most 26 bits, whose products are exact
    high = scaled - (scaled - a)
    return high, a - high


def _quarters(like: Doubles) -> Doubles:
    return np.full_like(like, 0.25)


REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {
        "sum": Reference("sum of x", 1, lambda v, exact: (v[0],)),
        "sum_squares": Reference("sum of x*x", 1, lambda v, exact: _product(v[0], v[0], exact)),
        "sum_squares_quarter": Reference(
            "sum of x*x + 0.25", 1, lambda v, exact: (*_product(v[0], v[0], exact), _quarters(v[0]))
        ),
        "dot": Reference("sum of x*y", 2, lambda v, exact: _product(v[0], v[1], exact)),
    }
)


# --- Values ------------------------------------------------------------------------------------


def _doubles(array: Array, dtype: str) -> Doubles:
    return values_of(array, dtype).astype(np.float64)


def _rows(spec: Input, array: Array, first: Input, rows: int) -> Array:
    """The input as `rows` rows; one row's worth of values is met by every row."""
    if spec.n == first.n:
        return array.reshape(rows, spec.n // rows)
    return np.broadcast_to(array, (rows, spec.n))


def kahan_values(name: str, inputs: Sequence[Input], arrays: Mapping[str, Array], rows: int) -> Doubles:
    """The reference of each row, shape (rows,), by compensated sums in double precision.

    Kahan's sum in Neumaier's form runs in up to 4,096 fixed lanes, lane k taking every 4,096th term; the
    lanes' sums and compensations are then folded exactly. Infinities and NaNs come out as in a plain sum.
    """
    reference = REFERENCES[name]
    used = tuple(inputs[: reference.inputs])
    exact = all(i.dtype in _EXACT_PRODUCTS for i in used)
    shaped = [_rows(i, arrays[i.name], used[0], rows) for i in used]
    length = used[0].n // rows
    lanes = max(1, LANES // rows)
    total, lost = np.zeros((rows, lanes)), np.zeros((rows, lanes))
    with np.errstate(all="ignore"):
        for start in range(0, length, lanes):
            values = [
                _doubles(a[:, start : start + lanes], i.dtype) for a, i in zip(shaped, used, strict=True)
            ]
            width = values[0].shape[1]
            for term in reference.terms(values, exact):
                head = total[:, :width]
                step = head + term
                larger = np.abs(head) >= np.abs(term)
                lost[:, :width] += np.where(larger, (head - step) + term, (term - step) + head)
                total[:, :width] = step
        return np.array([_fold(t, c) for t, c in zip(total, lost, strict=True)])


def _fold(total: Doubles, lost: Doubles) -> float:
    plain = float(np.sum(total))
    return math.fsum([*total.tolist(), *lost.tolist()]) if math.isfinite(plain) else plain


def exact_values(name: str, inputs: Sequence[Input], arrays: Mapping[str, Array], rows: int) -> Doubles:
    """The reference of each row, shape (rows,), rounded once from the exact sum; finite inputs only."""
    reference = REFERENCES[name]
    used = tuple(inputs[: reference.inputs])
    exact = all(i.dtype in _EXACT_PRODUCTS for i in used)
    shaped = [_rows(i, arrays[i.name], used[0], rows) for i in used]
    answers = []
    for row in range(rows):
        terms = reference.terms([_doubles(a[row], i.dtype) for a, i in zip(shaped, used, strict=True)], exact)
        answers.append(math.fsum(value for term in terms for value in term))
    return np.array(answers)


@lru_cache(maxsize=1)
def _known() -> dict[tuple[str, tuple[Input, ...], int], Doubles]:
    """References that this process has computed already."""
    return {}


def _reference_values(case: Case, arrays: Mapping[str, Array], rows: int) -> Doubles:
    assert case.reference is not None  # noqa: S101 -- the caller asks only where there is one
    key = (case.reference, case.inputs, rows)
    known = _known()
    if key not in known:
        used = case.inputs[: REFERENCES[case.reference].inputs]
        present = {i.name: arrays[i.name] if i.name in arrays else generate(i) for i in used}
        known[key] = kahan_values(case.reference, case.inputs, present, rows)
    return known[key]


# --- Judging -----------------------------------------------------------------------------------


def judge(
    kernel: Kernel, case: Case, arrays: Mapping[str, Array], outputs: Sequence[OutputSamples]
) -> Judgement:
    """Accuracy of a result: the largest relative error of all its distinct patterns, and its pinned bits.

    `arrays` are the case's inputs by name; what is not in it is generated. The first result output is
    judged by the case's reference within `rel_tol`, relative to the reference (absolute where that is 0).
    A NaN never passes; an infinity passes where the reference is the same one. Without a reference and
    without pinned bits the verdict is `unknown`.
    """
    notes = _mismatches(case, outputs)
    worst: float | None = None
    value: float | None = None
    result = next((o for o in outputs if o.buffer.role is Role.RESULT), None)
    if case.reference is not None and result is not None:
        expected = _reference_values(case, arrays, result.buffer.elements)
        worst = max(_error(_decode(result.buffer, p), expected) for p in result.patterns)
        value = float(expected[0]) if len(expected) == 1 else None
        tolerance = case.rel_tol or 0.0
        if not worst <= tolerance:
            notes.append(f"relative error {worst:.3g} is above {tolerance:g}")
    elif not case.expected:
        return Judgement(Accuracy.UNKNOWN)
    return Judgement(Accuracy.OUTSIDE if notes else Accuracy.OK, worst, value, "; ".join(notes))


def _mismatches(case: Case, outputs: Sequence[OutputSamples]) -> list[str]:
    """A note for every output whose pinned bits are not those of every repetition."""
    by_name = {o.buffer.name: o for o in outputs}
    notes = []
    for name, bits in case.expected:
        patterns = by_name[name].patterns if name in by_name else ()
        if bits.startswith("sha256:"):
            found = [f"sha256:{sha256(p)}" for p in patterns]
        else:
            found = [f"0x{p[::-1].hex()}" for p in patterns]
        if found != [bits]:
            notes.append(f"{name} is {', '.join(found[:3]) or 'absent'}, expected {bits}")
    return notes


def _decode(buffer: Buffer, pattern: bytes) -> Doubles:
    return to_array(pattern, buffer.dtype).astype(np.float64)


def _error(values: Doubles, expected: Doubles) -> float:
    """The largest relative error of the elements; infinite for a NaN or a wrong infinity."""
    with np.errstate(all="ignore"):
        gap = np.abs(values - expected)
        error = np.where(expected == 0, gap, gap / np.abs(expected))
        error = np.where(np.isfinite(error), error, np.inf)
        same_infinity = np.isinf(expected) & (values == expected)
        return float(np.max(np.where(same_infinity, 0.0, error)))
