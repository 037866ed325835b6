"""Two recordings of one block, aligned by thread and source line: the first value that differs. Pure.

A line's values are compared by the last one of each of its occurrences, since one build may compute in one
fused step what the other computes in two. From there the operands lead back to where the difference began.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reprodb.executors.model import layout
from reprodb.executors.model.events import Kind, Place, Recording, Step

Line = tuple[str, int]

# A product alone is not what a fused multiply-add gives: forms that differ are not compared.
_PRODUCT, _SUM = "product", "sum"
_FORMS = {"mul": _PRODUCT, "add": _SUM, "sub": _SUM, "fma": _SUM, "mad": _SUM}
# Instructions whose first two sources may change places.
_COMMUTES = ("add", "mul", "fma", "mad", "min", "max")


@dataclass(frozen=True, slots=True)
class Moment:
    """One executed instruction of one thread: the bits of its result and of its register sources.

    `at` is its place in time among the recording's events. `origins` has, for each operand of the step, the
    moment that set its register; None where that is no recorded one. They go one step back and no further.
    """

    step: Step
    thread: int
    at: int
    value: int
    sources: tuple[int, ...]
    origins: tuple[Moment | None, ...] = ()

    def bits(self, index: int) -> int | None:
        """The bits of operand `index`, where they are known."""
        operand = self.step.operands[index]
        if operand.constant is not None:
            return operand.constant
        return self.sources[operand.slot] if operand.slot is not None else None

    @property
    def address(self) -> int | None:
        """Where an access goes, as the thread sees it."""
        if self.step.kind not in (Kind.LOAD, Kind.STORE):
            return None
        base = self.bits(0)
        return None if base is None else base + self.step.offset


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
    occurrence on either side, in order.
    """

    seen: Pair
    born: Pair
    occurrence: int
    steps: int
    lines: tuple[tuple[Moment, ...], tuple[Moment, ...]]


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


# --- Occurrences -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """One execution of a statement by a thread: positions in time of its events.

    Occurrences of one `outer` number belong to one execution of the statement outside of inlined functions.
    """

    place: Place
    outer: int
    events: tuple[int, ...]
    value: int  # the event that gives its value
    computes: bool  # else it only loads


class _Side:
    """A recording by columns."""

    def __init__(self, recording: Recording) -> None:
        import numpy as np

        self.recording = recording
        events = recording.events
        self.numbers: list[int] = events["step"].tolist()
        self.values: list[int] = events["value"].tolist()
        self.sources: list[list[int]] = events["sources"].tolist()
        threads = events["thread"]
        order = np.argsort(threads, kind="stable")
        names, starts = np.unique(threads[order], return_index=True)
        parts = np.split(order, starts[1:]) if len(names) else []
        self.threads: dict[int, list[int]] = {
            int(name): part.tolist() for name, part in zip(names, parts, strict=True)
        }

    def step(self, at: int) -> Step:
        return self.recording.steps[self.numbers[at]]

    def moment(self, thread: int, at: int, origins: tuple[Moment | None, ...] = ()) -> Moment:
        return Moment(self.step(at), thread, at, self.values[at], tuple(self.sources[at]), origins)

    def occurrences(self, thread: int) -> Iterator[_Occurrence]:
        """A thread's occurrences in the order of time, those left out that only copy."""
        for place, outer, events in self._stretches(thread):
            kinds = {self.step(at).kind for at in events}
            wanted = {Kind.VALUE, Kind.STORE} & kinds or {Kind.LOAD} & kinds
            if wanted:
                value = next(at for at in reversed(events) if self.step(at).kind in wanted)
                yield _Occurrence(place, outer, tuple(events), value, Kind.LOAD not in wanted)

    def _stretches(self, thread: int) -> Iterator[tuple[Place, int, list[int]]]:
        """A statement's execution ends where an instruction of another one runs, recorded or not, or where
        control comes back to a basic block in which it has been already: the next turn of a loop."""
        steps, numbers, runs = self.recording.steps, self.numbers, self.recording.runs
        block, run, outer = -1, 0, 0
        here = Place()
        visited: set[int] = set()
        events: list[int] = []
        for at in self.threads[thread]:
            step = steps[numbers[at]]
            if step.kind is Kind.MARK:
                passed = runs[block][run + 1 :] if block >= 0 else ()
                block, run = step.basic_block, -1
            else:
                passed = runs[block][run + 1 : step.run + 1]
                run = step.run
            for place in passed:
                if place != here:
                    if events:
                        yield here, outer, events
                    outer += place.root != here.root
                    here, events, visited = place, [], {block}
            if step.kind is not Kind.MARK:
                events.append(at)
            elif block in visited:
                if events:
                    yield here, outer, events
                outer += 1
                events, visited = [], {block}
            else:
                visited.add(block)
        if events:
            yield here, outer, events

    def lines(self, thread: int) -> dict[Line, list[_Occurrence]]:
        found: dict[Line, list[_Occurrence]] = defaultdict(list)
        for each in self.occurrences(thread):
            found[each.place.file, each.place.line].append(each)
        return found


def _matched(
    a: Sequence[_Occurrence], b: Sequence[_Occurrence], *, cut: bool
) -> list[tuple[_Occurrence, _Occurrence]] | None:
    """The occurrences of one line and thread in pairs, None where their numbers differ.

    Where one side fuses what the other computes around an inlined call, the parts of one execution of the
    outer statement count as one. Where a log was cut short, what both have is matched.
    """
    if any(each.computes for each in (*a, *b)):
        a, b = ([each for each in side if each.computes] for side in (a, b))
    if len(a) != len(b):
        outer_a, outer_b = (list({each.outer: each for each in side}.values()) for side in (a, b))
        if len(outer_a) == len(outer_b) or not cut:
            a, b = outer_a, outer_b
    return list(zip(a, b, strict=False)) if len(a) == len(b) or cut else None


def align(before: Recording, after: Recording) -> Alignment:
    """Compare two recordings of one block value by value. Values of different form are never compared."""
    old, new = _Side(before), _Side(after)
    cut = bool(before.lost or after.lost)
    both = sorted(old.threads.keys() & new.threads.keys())
    compared = differing = forms = without_line = 0
    apart: dict[Line, tuple[int, int, int]] = {}
    first: tuple[int, int, int, int] | None = None  # positions, thread, occurrence; the earliest baseline
    for thread in both:
        lines_old, lines_new = old.lines(thread), new.lines(thread)
        for line in dict.fromkeys((*lines_old, *lines_new)):
            a, b = lines_old.get(line, []), lines_new.get(line, [])
            if not line[0]:
                without_line += len(a) + len(b)
                continue
            pairs = _matched(a, b, cut=cut)
            if pairs is None:
                counts = apart.get(line, (0, 0, 0))
                apart[line] = (counts[0] + len(a), counts[1] + len(b), counts[2] + 1)
                continue
            for number, (x, y) in enumerate(pairs, 1):
                i, j = x.value, y.value
                if _form(old.step(i)) != _form(new.step(j)):
                    forms += 1
                    continue
                compared += 1
                if old.values[i] != new.values[j]:
                    differing += 1
                    if first is None or i < first[0]:
                        first = (i, j, thread, number)
    return Alignment(
        compared=compared,
        differing=differing,
        threads=len(both),
        forms=forms,
        apart=tuple(Apart(*line, *counts) for line, counts in sorted(apart.items())),
        alone=len(old.threads.keys() ^ new.threads.keys()),
        without_line=without_line,
        cut=cut,
        difference=_difference(old, new, *first) if first else None,
    )


def _form(step: Step) -> tuple[str, str]:
    if step.kind in (Kind.LOAD, Kind.STORE):
        return step.kind, step.dtype
    return _FORMS.get(step.base, step.base), step.dtype


# --- Where a difference began --------------------------------------------------------------------


class _Origins:
    """For each event of a thread up to a position, the event that set each of its register operands."""

    def __init__(self, side: _Side, thread: int) -> None:
        self._side, self._thread = side, thread
        self._set_by: dict[int, tuple[int | None, ...]] = {}
        holds: dict[str, int] = {}
        for at in side.threads[thread]:
            step = side.step(at)
            self._set_by[at] = tuple(holds.get(operand.register) for operand in step.operands)
            if step.result:
                holds[step.result] = at

    def through_moves(self, at: int | None) -> int | None:
        """What a copy copied, where that is recorded."""
        while at is not None and self._side.step(at).kind is Kind.MOVE:
            origin = self._set_by[at][0] if self._set_by[at] else None
            if origin is None:
                return at
            at = origin
        return at

    def of(self, at: int) -> tuple[int | None, ...]:
        return tuple(self.through_moves(origin) for origin in self._set_by[at])

    def moment(self, at: int) -> Moment:
        side, thread = self._side, self._thread
        origins = (None if o is None else side.moment(thread, o) for o in self.of(at))
        return side.moment(thread, at, tuple(origins))


class _Memory:
    """The stores of a block by address, to find what set the memory that one of its threads reads."""

    def __init__(self, side: _Side) -> None:
        self._stores: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
        for thread, positions in side.threads.items():
            for at in positions:
                if side.step(at).kind is Kind.STORE:
                    key = _cell(side.moment(thread, at))
                    if key is not None:
                        self._stores[key].append((at, thread))
        for found in self._stores.values():
            found.sort()

    def set_by(self, load: Moment) -> tuple[int, int] | None:
        """The last store of the block to what a load reads: its position and thread."""
        key = _cell(load)
        stores = self._stores.get(key, []) if key is not None else []
        place = bisect_left(stores, (load.at, -1))
        return stores[place - 1] if place else None


def _cell(access: Moment) -> tuple[str, int, int] | None:
    """What an access reaches: state space, address, and the thread where each has memory of its own."""
    address = access.address
    if address is None:
        return None
    space = access.step.space
    if space == "generic" and address >> 32 == layout.SHARED_WINDOW >> 32:
        space, address = "shared", address & 0xFFFFFFFF
    elif space == "generic" and address >> 32 == layout.LOCAL_WINDOW >> 32:
        space, address = "local", address & 0xFFFFFFFF
    return ("global" if space == "generic" else space, address, access.thread if space == "local" else -1)


class _Trail:
    """One side of the way back from where a difference showed."""

    def __init__(self, side: _Side) -> None:
        self.side = side
        self._origins: dict[int, _Origins] = {}
        self._memory: _Memory | None = None

    def origins(self, thread: int) -> _Origins:
        if thread not in self._origins:
            self._origins[thread] = _Origins(self.side, thread)
        return self._origins[thread]

    def moment(self, at: int, thread: int) -> Moment:
        return self.origins(thread).moment(at)

    def stored(self, load: Moment) -> tuple[int, int] | None:
        if self._memory is None:
            self._memory = _Memory(self.side)
        return self._memory.set_by(load)


def _difference(old: _Side, new: _Side, i: int, j: int, thread: int, occurrence: int) -> Difference:
    trails = _Trail(old), _Trail(new)
    seen = pair = Pair(trails[0].moment(i, thread), trails[1].moment(j, thread))
    steps = 0
    while (back := _back(trails, pair)) is not None:
        pair = back
        steps += 1
    lines = (_around(trails[0], pair.baseline), _around(trails[1], pair.candidate))
    return Difference(seen, pair, occurrence, steps, lines)


def _back(trails: tuple[_Trail, _Trail], pair: Pair) -> Pair | None:
    """The earliest pair that brings different bits into a pair of equal instructions, if there is one."""
    a, b = pair.baseline, pair.candidate
    if a.step.base != b.step.base or len(a.step.operands) != len(b.step.operands):
        return None
    if a.step.kind is Kind.LOAD:
        stores = trails[0].stored(a), trails[1].stored(b)
        if stores[0] is None or stores[1] is None:
            return None
        return Pair(trails[0].moment(*stores[0]), trails[1].moment(*stores[1]))
    bits_a, bits_b = _bits(a), _bits(b)
    order = list(range(len(bits_b)))
    if a.step.base in _COMMUTES and _agree(bits_a, bits_b, [1, 0, *order[2:]]) > _agree(
        bits_a, bits_b, order
    ):
        order = [1, 0, *order[2:]]
    found = []
    for place, other in enumerate(order):
        x, y = a.origins[place], b.origins[other]
        if a.step.kind is Kind.STORE and place == 0:
            continue  # an address is no value
        if bits_a[place] != bits_b[other] and x is not None and y is not None:
            found.append((x, y))
    if not found:
        return None
    x, y = min(found, key=lambda each: each[0].at)
    return Pair(trails[0].moment(x.at, x.thread), trails[1].moment(y.at, y.thread))


def _bits(moment: Moment) -> list[int | None]:
    return [moment.bits(index) for index in range(len(moment.step.operands))]


def _agree(a: Sequence[int | None], b: Sequence[int | None], order: Sequence[int]) -> int:
    return sum(a[place] == b[other] for place, other in enumerate(order))


def _around(trail: _Trail, moment: Moment) -> tuple[Moment, ...]:
    """Everything of the occurrence that a moment belongs to."""
    occurrences = trail.side.occurrences(moment.thread)
    events = next((o.events for o in occurrences if moment.at in o.events), (moment.at,))
    return tuple(trail.moment(at, moment.thread) for at in events)
