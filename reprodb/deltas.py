"""How one buffer's pattern differs from another's: which elements, how far, and what kind of difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reprodb import bits
from reprodb.domain import Output, Pattern
from reprodb.errors import StoreError
from reprodb.findings import ElementDelta, OutputDelta

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from reprodb.bits import Bits, Mask

Fetch = Callable[[str], bytes]

SHOWN_ELEMENTS = 16
LISTED_INDICES = 65_536
SIGN_OF_ZERO = "sign of zero only, 0 ULP apart"
NAN_PAYLOAD = "NaN payload only"
SAME_MULTISET = "order only, same multiset"
DIGESTS_ONLY = "only the digest of one side is at hand: how many elements moved is unknown"


def representative(output: Output) -> Pattern:
    """The pattern that stands for an output: the most frequent one, the earliest of equals."""
    return min(output.patterns, key=lambda p: (-p.count, p.first))


def data_of(pattern: Pattern, fetch: Fetch) -> bytes | None:
    """The bytes of a pattern, or None where nobody has them (a blessing knows digests only)."""
    if pattern.data is not None:
        return pattern.data
    try:
        return fetch(pattern.sha256)
    except (LookupError, StoreError):
        return None


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(f"{n:,}" for n in shape)


def unchanged(output: Output) -> OutputDelta:
    """The delta of a buffer whose patterns have equal digests: nothing was fetched."""
    floats = bits.is_float(output.dtype) or any(bits.is_float(f.dtype) for f in output.fields)
    return OutputDelta(
        output.name,
        output.role,
        output.dtype,
        output.shape,
        changed=0,
        of=output.elements,
        max_ulp=0 if floats else None,
    )


def output_delta(before: Output, after: Output, fetch: Fetch) -> OutputDelta:
    """The delta between the representative patterns of one buffer on two sides."""
    old, new = representative(before), representative(after)
    if (before.dtype, before.shape, before.fields) != (after.dtype, after.shape, after.fields):
        return OutputDelta(
            after.name,
            after.role,
            after.dtype,
            after.shape,
            changed=max(before.elements, after.elements),
            of=max(before.elements, after.elements),
            note=f"{before.dtype} {_shape(before.shape)} → {after.dtype} {_shape(after.shape)}: "
            "elements have no counterparts",
        )
    if old.sha256 == new.sha256:
        return unchanged(after)
    a, b = data_of(old, fetch), data_of(new, fetch)
    if a is None or b is None:
        return OutputDelta(
            after.name,
            after.role,
            after.dtype,
            after.shape,
            changed=1,
            of=after.elements,
            note=DIGESTS_ONLY if after.elements > 1 else "only the digest of one side is at hand",
        )
    return pattern_delta(a, b, after)


@dataclass(frozen=True, slots=True)
class _Column:
    """A plain buffer's only column, or a struct field's, of two patterns: words of shape (n,) and masks."""

    name: str | None
    dtype: str
    before: Bits
    after: Bits
    differs: Mask
    distance: npt.NDArray[np.uint64]  # ULP, 0 where undefined
    defined: Mask  # nowhere for integers
    nan_before: Mask
    nan_after: Mask
    zeros: Mask  # where only the sign of zero differs

    def element(self, index: int) -> ElementDelta:
        one = slice(index, index + 1)
        before, after = self.before[one], self.after[one]
        return ElementDelta(
            index,
            self.name,
            bits.hex_word(int(before[0]), self.dtype),
            bits.hex_word(int(after[0]), self.dtype),
            bits.plain(bits.values_of(before, self.dtype)[0]),
            bits.plain(bits.values_of(after, self.dtype)[0]),
            int(self.distance[index]) if self.defined[index] else None,
        )


def _column(name: str | None, dtype: str, before: Bits, after: Bits) -> _Column:
    import numpy as np

    differs = np.not_equal(before, after)
    nowhere = np.zeros(before.shape, dtype=np.bool_)
    if not bits.is_float(dtype):
        distance = np.zeros(before.shape, dtype=np.uint64)
        return _Column(name, dtype, before, after, differs, distance, nowhere, nowhere, nowhere, nowhere)
    distance, defined = bits.ulp_distance(before, after, dtype)
    nans = bits.nan_mask(before, dtype), bits.nan_mask(after, dtype)
    zeros = differs & bits.zero_mask(before, dtype) & bits.zero_mask(after, dtype)
    return _Column(name, dtype, before, after, differs, distance, defined, *nans, zeros)


def _columns(before: bytes, after: bytes, output: Output) -> list[_Column]:
    sides = (bits.columns(data, output.dtype, output.fields) for data in (before, after))
    return [_column(name, dtype, a, b) for (name, dtype, a), (_, _, b) in zip(*sides, strict=True)]


def _finite_max(values: bits.Values) -> float | None:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else None


def _note(columns: list[_Column], before: bytes, after: bytes, size: int) -> str | None:
    """What kind of difference it is, where all differing elements (or a count of them) are of one kind."""
    changed = sum(int(c.differs.sum()) for c in columns)
    zeros = sum(int(c.zeros.sum()) for c in columns)
    payload = sum(int((c.differs & c.nan_before & c.nan_after).sum()) for c in columns)
    to_nan = sum(int((c.nan_after & ~c.nan_before).sum()) for c in columns)
    from_nan = sum(int((c.nan_before & ~c.nan_after).sum()) for c in columns)
    if zeros == changed:
        return SIGN_OF_ZERO
    if payload == changed:
        return NAN_PAYLOAD
    if zeros + payload == changed:
        return "sign of zero and NaN payload only"
    notes = [
        f"{count:,} of {changed:,} {kind}"
        for count, kind in (
            (to_nan, "from a number to NaN"),
            (from_nan, "from NaN to a number"),
            (zeros, "by the sign of zero only"),
            (payload, "by NaN payload only"),
        )
        if count
    ]
    if len(before) > size and bits.same_multiset(before, after, size):
        notes.insert(0, SAME_MULTISET)
    return "; ".join(notes) or None


def pattern_delta(before: bytes, after: bytes, output: Output) -> OutputDelta:
    """Element by element: two patterns of one buffer. `output` gives name, type, shape and fields."""
    import numpy as np

    columns = _columns(before, after, output)
    moved = np.flatnonzero(np.logical_or.reduce([c.differs for c in columns]))
    ulps: list[int | None] = []
    rels: list[float | None] = []
    gaps: list[float | None] = []
    for column in columns:
        where = column.differs
        if not where.any():
            continue
        a, b = column.before[where], column.after[where]
        if bits.is_float(column.dtype):
            ulps.append(int(column.distance[where].max()) if column.defined[where].all() else None)
        rels.append(_finite_max(bits.relative_difference(a, b, column.dtype)))
        gaps.append(_finite_max(bits.absolute_difference(a, b, column.dtype)))
    shown = [c.element(int(i)) for i in moved[:SHOWN_ELEMENTS] for c in columns if c.differs[i]]
    return OutputDelta(
        output.name,
        output.role,
        output.dtype,
        output.shape,
        changed=len(moved),
        of=output.elements,
        first=int(moved[0]) if len(moved) else None,
        max_ulp=max((u for u in ulps if u is not None), default=None) if None not in ulps else None,
        max_rel=max((r for r in rels if r is not None), default=None),
        max_abs=max((g for g in gaps if g is not None), default=None),
        note=_note(columns, before, after, bits.element_bytes(output.dtype, output.fields)),
        moved=tuple(int(i) for i in moved[:LISTED_INDICES]),
        elements=tuple(shown[:SHOWN_ELEMENTS]),
    )
