"""A recording by thread: which events belong to one execution of a statement, and how sides match. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reprodb.executors.model.events import Kind, Place, Recording, Step

Line = tuple[str, int]

# A product alone is not what a fused multiply-add gives: values of different forms are not compared.
_PRODUCT, _SUM = "product", "sum"
_FORMS = {"mul": _PRODUCT, "add": _SUM, "sub": _SUM, "fma": _SUM, "mad": _SUM}

_VALUES = (Kind.VALUE, Kind.STORE, Kind.LOAD)  # what gives an occurrence its value, best first


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One execution of a statement by a thread: its events, positions in the recording's order of time.

    Occurrences of one `visit` lie in one execution of a basic block, those of one `outer` in one execution of
    the statement outside of all inlined functions.
    """

    place: Place
    visit: int
    outer: int
    events: tuple[int, ...]
    value: int  # the event that gives its value: the last that computes, else that stores, else that loads
    computes: bool  # else it only loads


class Events:
    """A recording by columns and by thread."""

    def __init__(self, recording: Recording) -> None:
        import numpy as np

        self.recording = recording
        events = recording.events
        self.numbers: list[int] = events["step"].tolist()
        self.values: list[int] = events["value"].tolist()
        self.sources: list[list[int]] = events["sources"].tolist()
        self.thread_of: list[int] = events["thread"].tolist()
        threads = events["thread"]
        order = np.argsort(threads, kind="stable")
        names, starts = np.unique(threads[order], return_index=True)
        parts = np.split(order, starts[1:]) if len(names) else []
        self.threads: dict[int, list[int]] = {
            int(name): part.tolist() for name, part in zip(names, parts, strict=True)
        }

    def step(self, at: int) -> Step:
        return self.recording.steps[self.numbers[at]]

    def occurrences(self, thread: int) -> Iterator[Occurrence]:
        """A thread's occurrences in the order of time, those left out that only copy."""
        for place, visit, outer, events in self._stretches(thread):
            kinds = {step.kind for step in map(self.step, events) if step.dtype or step.kind is Kind.STORE}
            wanted = next((kind for kind in _VALUES if kind in kinds), None)
            if wanted is not None:
                value = next(at for at in reversed(events) if self.step(at).kind is wanted)
                yield Occurrence(place, visit, outer, tuple(events), value, wanted is not Kind.LOAD)

    def _stretches(self, thread: int) -> Iterator[tuple[Place, int, int, list[int]]]:
        """A statement's execution ends where an instruction of another one runs, recorded or not, or where
        control comes back to a basic block in which it has been already: the next turn of a loop."""
        steps, numbers, runs = self.recording.steps, self.numbers, self.recording.runs
        block, run, visit, began, outer = -1, 0, 0, 0, 0
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
                        yield here, began, outer, events
                    outer += place.root != here.root
                    here, events, visited = place, [], {block}
            if step.kind is not Kind.MARK:
                began = began if events else visit
                events.append(at)
                continue
            if block in visited:
                if events:
                    yield here, began, outer, events
                outer += 1
                events, visited = [], {block}
            else:
                visited.add(block)
            visit += 1
        if events:
            yield here, began, outer, events

    def lines(self, thread: int) -> dict[Line, list[Occurrence]]:
        found: dict[Line, list[Occurrence]] = defaultdict(list)
        for each in self.occurrences(thread):
            found[each.place.file, each.place.line].append(each)
        return found


# How occurrences of one line are counted, from fine to coarse: each by itself, those of one execution of a
# basic block as one (a compiler may interleave statements), and those of one outer statement as one (it may
# fuse across an inlined call).
_COUNTS: tuple[Callable[[Occurrence], object], ...] = (
    lambda each: each.value,
    lambda each: each.visit,
    lambda each: each.outer,
)


def matched(
    old: Events, new: Events, a: Sequence[Occurrence], b: Sequence[Occurrence], *, cut: bool
) -> list[tuple[Occurrence, Occurrence]] | None:
    """The occurrences of one line and thread in pairs, None where their numbers differ in every count.

    The finest count at which all pairs are of one form is taken. Where a log was `cut` short, what both have
    is paired.
    """
    if any(each.computes for each in (*a, *b)):
        a, b = ([each for each in side if each.computes] for side in (a, b))
    first = None
    for count in _COUNTS:
        x, y = (list({count(each): each for each in side}.values()) for side in (a, b))
        if len(x) == len(y) or cut:
            pairs = list(zip(x, y, strict=False))
            if all(form(old.step(p.value)) == form(new.step(q.value)) for p, q in pairs):
                return pairs
            first = first or pairs
    return first


def form(step: Step) -> tuple[str, str]:
    """What kind of value an instruction gives; only values of one form are compared."""
    if step.kind in (Kind.LOAD, Kind.STORE):
        return step.kind, step.dtype
    return _FORMS.get(step.base, step.base), step.dtype
