"""Two recordings of one block, aligned by thread and source line: the first value that differs. Pure.

A line's values are compared by the last one of each of its occurrences, since one build may compute in one
fused step what the other computes in two. From there the operands lead back to where the difference began.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reprodb.executors.model.events import Kind, Recording
from reprodb.occurrences import Events, Line, form, matched
from reprodb.provenance import Moment, Trail

# Instructions whose first two sources may change places.
_COMMUTES = ("add", "mul", "fma", "mad", "min", "max")
_FRACTIONS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}  # bits after the point


@dataclass(frozen=True, slots=True)
class Pair:
    """A moment of each side that belong together."""

    baseline: Moment
    candidate: Moment


@dataclass(frozen=True, slots=True)
class Apart:
    """A source line that ran another number of times on the two sides, in how many threads."""

    file: str
    line: int
    baseline: int  # occurrences over those threads
    candidate: int
    threads: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The first value that differs.

    `seen` is the pair of last values at which it showed, the `occurrence`-th time (from 1) that the thread
    executed its line. `born` is the pair that its operands lead back to: either one instruction got the same
    operands and gave something else, or the sides compute by different instructions, or the difference came
    in from memory. `steps` counts how far back that is. `lines` are all values of the born moment's
    occurrence on either side, in order. `related` says whether the traced value was computed from it, as far
    as that can be followed; else it is merely the first difference in the block.
    """

    seen: Pair
    born: Pair
    occurrence: int
    steps: int
    lines: tuple[tuple[Moment, ...], tuple[Moment, ...]]
    related: bool


@dataclass(frozen=True, slots=True)
class Alignment:
    """What aligning found.

    `compared` counts pairs of last values over the `threads` of both sides, `differing` those with other
    bits, `forms` pairs that were left out because one is a product, say, and the other a sum. `apart` are
    lines that could not be aligned; `alone` counts threads of one side only.
    """

    compared: int
    differing: int
    threads: int
    forms: int = 0
    apart: tuple[Apart, ...] = ()
    alone: int = 0
    without_line: int = 0  # values that have no line information
    cut: bool = False  # a log was full before the block ended
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A pair of last values that differ, by their positions in time."""

    old: int
    new: int
    occurrence: int


@dataclass
class _Tally:
    """What comparing has counted so far."""

    compared: int = 0
    forms: int = 0
    without_line: int = 0
    apart: dict[Line, tuple[int, int, int]] = field(default_factory=dict)
    differing: list[_Found] = field(default_factory=list)


def align(before: Recording, after: Recording, stored: int | None = None) -> Alignment:
    """Compare two recordings of one block value by value.

    `stored` is the baseline's event that stored the traced value: what went into it comes first.
    """
    old, new = Events(before), Events(after)
    cut = bool(before.lost or after.lost)
    both = sorted(old.threads.keys() & new.threads.keys())
    tally = _Tally()
    for thread in both:
        _compare(old, new, thread, tally, cut=cut)
    return Alignment(
        compared=tally.compared,
        differing=len(tally.differing),
        threads=len(both),
        forms=tally.forms,
        apart=tuple(Apart(*line, *counts) for line, counts in sorted(tally.apart.items())),
        alone=len(old.threads.keys() ^ new.threads.keys()),
        without_line=tally.without_line,
        cut=cut,
        difference=_first(old, new, tally.differing, stored),
    )


def _compare(old: Events, new: Events, thread: int, tally: _Tally, *, cut: bool) -> None:
    lines_old, lines_new = old.lines(thread), new.lines(thread)
    for line in dict.fromkeys((*lines_old, *lines_new)):
        a, b = lines_old.get(line, []), lines_new.get(line, [])
        if not line[0]:
            tally.without_line += len(a) + len(b)
            continue
        pairs = matched(old, new, a, b, cut=cut)
        if pairs is None:
            counts = tally.apart.get(line, (0, 0, 0))
            tally.apart[line] = (counts[0] + len(a), counts[1] + len(b), counts[2] + 1)
            continue
        for number, (x, y) in enumerate(pairs, 1):
            if form(old.step(x.value)) != form(new.step(y.value)):
                tally.forms += 1
                continue
            tally.compared += 1
            if old.values[x.value] != new.values[y.value]:
                tally.differing.append(_Found(x.value, y.value, number))


def _first(old: Events, new: Events, differing: Sequence[_Found], stored: int | None) -> Difference | None:
    """The first difference in what went into the traced value; where there is none, the first of all."""
    if not differing:
        return None
    trails = Trail(old), Trail(new)
    behind = trails[0].behind(stored) if stored is not None else set()
    related = [each for each in differing if each.old in behind]
    found = {each.old: each for each in related or differing}
    first = found[trails[0].untouched(found)[0]]
    seen = pair = Pair(trails[0].moment(first.old), trails[1].moment(first.new))
    steps = 0
    while (back := _back(trails, pair)) is not None:
        pair = back
        steps += 1
    lines = tuple(_around(trails[0], pair.baseline)), tuple(_around(trails[1], pair.candidate))
    return Difference(seen, pair, first.occurrence, steps, lines, bool(related))


def _back(trails: tuple[Trail, Trail], pair: Pair) -> Pair | None:
    """The earliest pair that brings different bits into a pair of equal instructions, if there is one."""
    a, b = pair.baseline, pair.candidate
    if a.step.base != b.step.base or len(a.step.operands) != len(b.step.operands):
        return None
    if a.step.kind is Kind.LOAD or a.step.base == "shfl":
        brought = trails[0].brought(a.at), trails[1].brought(b.at)
        if brought[0] is None or brought[1] is None:
            return None
        return Pair(trails[0].moment(brought[0]), trails[1].moment(brought[1]))
    found = [(x, y) for x, y in _operands(a, b) if x is not None and y is not None]
    if not found:
        return None
    x, y = min(found, key=lambda each: each[0].at)
    return Pair(trails[0].moment(x.at), trails[1].moment(y.at))


def _operands(a: Moment, b: Moment) -> list[tuple[Moment | None, Moment | None]]:
    """The origins of operands that belong together and have different bits, of two equal instructions."""
    bits_a, bits_b = _bits(a), _bits(b)
    if a.step.base == "selp":
        if a.value not in bits_a[:2] or b.value not in bits_b[:2]:
            return []
        return [(a.origins[bits_a.index(a.value)], b.origins[bits_b.index(b.value)])]
    order = list(range(len(bits_b)))
    swapped = [1, 0, *order[2:]]
    commutes = a.step.base in _COMMUTES and len(order) > 1
    if commutes and _agree(bits_a, bits_b, swapped) > _agree(bits_a, bits_b, order):
        order = swapped
    first = 1 if a.step.kind is Kind.STORE else 0  # an address is no value
    places = [p for p in range(first, len(order)) if bits_a[p] != bits_b[order[p]]]
    if len(places) > 1 and len(places) == len(order) - first:
        # Nothing agrees: two ways to compute it, unless the operands are neighbours.
        places = [p for p in places if _near(bits_a[p], bits_b[order[p]], a.step.operands[p].dtype)]
    return [(a.origins[p], b.origins[order[p]]) for p in places]


def _near(a: int | None, b: int | None, dtype: str) -> bool:
    """Whether two floating-point operands differ by what rounding may do: in their last bits."""
    if a is None or b is None or dtype not in _FRACTIONS:
        return False
    return abs(a - b) < 1 << _FRACTIONS[dtype] // 2


def _bits(moment: Moment) -> list[int | None]:
    return [moment.bits(index) for index in range(len(moment.step.operands))]


def _agree(a: Sequence[int | None], b: Sequence[int | None], order: Sequence[int]) -> int:
    return sum(a[place] == b[other] for place, other in enumerate(order))


def _around(trail: Trail, moment: Moment) -> Iterator[Moment]:
    """All values of the occurrence that a moment belongs to; copies and words are no values."""
    occurrences = trail.events.occurrences(moment.thread)
    events = next((o.events for o in occurrences if moment.at in o.events), (moment.at,))
    return (trail.moment(at) for at in events if trail.events.step(at).kind not in (Kind.MOVE, Kind.WORD))
