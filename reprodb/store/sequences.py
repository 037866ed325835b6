"""The sequence of an output: one pattern index a repetition, stored as narrow as it goes."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

# The first byte of the stored form is the width of an index in bytes, plus 8 when compressed.
_WIDTHS = (1, 2, 4)
_COMPRESSED = 8


# A million repetitions is what the command line allows; a damaged row must not ask for more memory than that.
MOST_REPETITIONS = 10_000_000


def narrow(sequence: Sequence[int], distinct: int) -> bytes | None:
    """The indexes, each as narrow as their number allows, behind a byte that says how narrow.

    None for one pattern, where the count of repetitions says it all.
    """
    if distinct <= 1:
        return None
    width = 1 if distinct <= 1 << 8 else 2 if distinct <= 1 << 16 else 4
    return bytes([width]) + b"".join(index.to_bytes(width, "little") for index in sequence)


def pack(sequence: Sequence[int], distinct: int) -> bytes | None:
    """`narrow`, compressed where that is shorter."""
    plain = narrow(sequence, distinct)
    if plain is None:
        return None
    small = bytes([plain[0] | _COMPRESSED]) + zlib.compress(plain[1:], 6)
    return small if len(small) < len(plain) else plain


@lru_cache(maxsize=16)
def _constant(repetitions: int) -> tuple[int, ...]:
    """One pattern throughout: nearly every sequence there is, so they share their memory."""
    return (0,) * repetitions


def unpack(stored: bytes | None, repetitions: int) -> tuple[int, ...]:
    """The indexes. Raises ValueError where the stored form is damaged or has another length."""
    if not 0 <= repetitions <= MOST_REPETITIONS:
        raise ValueError(f"{repetitions} repetitions, of {MOST_REPETITIONS} that are possible")
    if stored is None:
        return _constant(repetitions)
    head = stored[0] if stored else 0
    width = head & ~_COMPRESSED
    if width not in _WIDTHS:
        raise ValueError(f"sequence of unknown width {width}")
    raw = stored[1:]
    if head & _COMPRESSED:
        inflater = zlib.decompressobj()
        try:
            raw = inflater.decompress(raw, repetitions * width + 1)
        except zlib.error as error:
            raise ValueError(f"sequence does not inflate: {error}") from None
    if len(raw) != repetitions * width:
        raise ValueError(f"sequence of {len(raw)} bytes for {repetitions} repetitions of {width}")
    if width == 1:
        return tuple(raw)
    return tuple(int.from_bytes(raw[i : i + width], "little") for i in range(0, len(raw), width))


def first_and_count(sequence: Sequence[int], distinct: int) -> tuple[tuple[int, int], ...]:
    """For each pattern the repetition that showed it first, and how many did.

    Raises ValueError unless the indexes are those of `distinct` patterns in order of first appearance.
    """
    if distinct == 1 and sequence and not any(sequence):
        return ((0, len(sequence)),)
    counts = Counter(sequence)
    if tuple(counts) != tuple(range(distinct)):
        raise ValueError(f"sequence is not that of {distinct} patterns in order of first appearance")
    firsts: dict[int, int] = {}
    for repetition, index in enumerate(sequence):
        firsts.setdefault(index, repetition)
    return tuple((firsts[index], counts[index]) for index in range(distinct))
