"""Hunt for a change along a list of places: probe, and verify what was found. See bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reprodb import bisection
from reprodb.bisection import Boundary, Key, Step
from reprodb.errors import ReprodbError
from reprodb.experiments import Setting
from reprodb.lenses import SHORT, CaseChange, Lens, Look


class Places(Protocol):
    """An ordered list of what is probed, the good end first."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    def settings(self, place: int) -> tuple[Setting, ...]:
        """One setting a case. Raises ReprodbError where the place cannot be tried; that skips it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change between two places. `verified`: looked at once more, both showed the same again.

    `skipped` are places between the two that could not be tried; `returns_to` is an earlier place that
    showed what `first` shows.
    """

    before: int
    first: int
    skipped: tuple[int, ...] = ()
    returns_to: int | None = None
    verified: bool = False
    cases: tuple[CaseChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a hunt found. `whole`: every place was probed, not only those of a halving search."""

    what: str  # bits | code
    labels: tuple[str, ...]
    looks: tuple[tuple[int, Look], ...]  # place and what it showed, in the order of probing
    changes: tuple[Change, ...]
    whole: bool
    notes: tuple[str, ...] = ()

    def at(self, place: int) -> Look | None:
        return dict(self.looks).get(place)

    @property
    def ends(self) -> tuple[Look | None, Look | None]:
        return self.at(0), self.at(len(self.labels) - 1)

    @property
    def answered(self) -> bool:
        """Whether a verified change was found, or every place was probed and none is there."""
        if self.changes:
            return all(change.verified for change in self.changes)
        return self.whole and all(look.key is not None for _, look in self.looks)


def hunt(
    places: Places, lens: Lens, *, whole: bool = False, say: Callable[[str], None] = lambda _: None
) -> Found:
    """Find one change by probing about log2 of the places, or every change by probing all (`whole`)."""
    hunter = _Hunter(places, lens, say)
    count = len(places.labels)
    if whole:
        keys = [hunter.key(place) for place in range(count)]
        changes = [hunter.verified(_boundary(step), step.returns_to) for step in bisection.steps(keys)]
    else:
        boundary = bisection.carry_out(count, hunter.key)
        changes = [hunter.verified(boundary, None)] if boundary else []
    looks = tuple(hunter.looks.items())
    return Found(lens.what, places.labels, looks, tuple(changes), whole, lens.notes)


def _boundary(step: Step) -> Boundary:
    """A step of a walk; what lies between its ends gave no key."""
    return Boundary(step.before, step.first, tuple(range(step.before + 1, step.first)))


class _Hunter:
    def __init__(self, places: Places, lens: Lens, say: Callable[[str], None]) -> None:
        self.looks: dict[int, Look] = {}
        self._places, self._lens, self._say = places, lens, say
        self._settings: dict[int, tuple[Setting, ...]] = {}

    def key(self, place: int) -> Key:
        try:
            self._settings[place] = self._places.settings(place)
            look = self._lens.look(self._settings[place])
        except ReprodbError as error:
            look = Look(None, why=error.problem)
        self.looks[place] = look
        self._say(f"{len(self.looks)}  {self._places.labels[place]}: {self._told(place, look)}")
        return look.key

    def verified(self, boundary: Boundary, returns_to: int | None) -> Change:
        before, first = boundary.before, boundary.first
        self._say(f"once more: {self._places.labels[before]} and {self._places.labels[first]}")
        looks = self.looks[before], self.looks[first]
        same, cases = self._lens.again(self._settings[before], self._settings[first], looks)
        return Change(before, first, boundary.skipped, returns_to, same, cases)

    def _told(self, place: int, look: Look) -> str:
        if look.key is None:
            return f"skipped, {look.why}"
        good = self.looks[0]
        shows = "" if place == 0 else "as at the good end, " if look.key == good.key else "moved, "
        code = f"code {look.code[:SHORT]}" if look.code else "code unknown"
        bits = "".join(f", {case} {shown}" for case, shown in look.bits)
        known = "" if look.compiled or look.executed else ", known from before"
        return f"{shows}{code}{bits}{known}"
