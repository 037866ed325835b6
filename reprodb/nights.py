"""Nights that did not happen: what a rhythm expects and a database does not have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from reprodb.domain import Lane, Run
from reprodb.errors import UsageError
from reprodb.policy import parse_policy

# Nights come at least this far apart where nobody says how often: runs closer together have no rhythm.
_NIGHT = timedelta(hours=12)
# Runs that began so close together are one night: a toolkit each, or one that was tried again.
_TOGETHER = timedelta(hours=6)

Place = tuple[str, Lane, str | None]


@dataclass(frozen=True, slots=True)
class Gap:
    """`missed` nights between one that happened and the next one; `until` is None where none came since."""

    missed: int
    since: datetime
    until: datetime | None = None

    def __str__(self) -> str:
        nights = f"{self.missed} night{'s' * (self.missed != 1)}"
        if self.until is None:
            return f"{nights} did not happen since {self.since:%Y-%m-%d %H:%M} UTC"
        return f"{nights} without a run between {self.since:%Y-%m-%d} and {self.until:%Y-%m-%d}"


def place_of(run: Run) -> Place:
    """What nights of one rhythm have in common: suite, lane and GPU model."""
    device = run.environment.device
    return (run.suite, run.lane, device.name if device else None)


def rhythm(starts: Sequence[datetime]) -> timedelta | None:
    """The usual time between nights, oldest first; None where they are too few or too close to have one."""
    steps = [(after - before).total_seconds() for before, after in pairwise(starts)]
    usual = timedelta(seconds=median(steps)) if len(steps) >= 2 else timedelta(0)
    return usual if usual >= _NIGHT else None


def missed(since: datetime, until: datetime, every: timedelta) -> int:
    """How many nights of a rhythm are lacking between two; one that came late is not missed."""
    return max(0, round((until - since) / every) - 1)


def expected(run: Run) -> timedelta | None:
    """How often the policy that a run was made under expects nights."""
    try:
        return parse_policy(run.policy).every
    except UsageError:  # the text of another version
        return None


def gaps(starts: Iterable[datetime], every: timedelta | None, now: datetime | None = None) -> tuple[Gap, ...]:
    """Every gap between nights, oldest first, and the one that is open at `now`.

    Without `every` the usual time between them counts, and none is open: nobody said that more would come.
    """
    together = _TOGETHER if every is None else min(_TOGETHER, every / 2)
    nights: list[datetime] = []
    for start in sorted(starts):
        if not nights or start - nights[-1] > together:
            nights.append(start)
    usual = every or rhythm(nights)
    if usual is None or not nights:
        return ()
    found = [Gap(missed(a, b, usual), a, b) for a, b in pairwise(nights) if missed(a, b, usual)]
    if every is not None and now is not None:
        # A night that is due today may still come: one is missed once it is half a period late.
        late = int((now - nights[-1]) / every + 0.5) - 1
        if late > 0:
            found.append(Gap(late, nights[-1]))
    return tuple(found)


def by_place(runs: Iterable[Run]) -> dict[Place, tuple[Run, ...]]:
    """The nightlies of each place, oldest first."""
    found: dict[Place, tuple[Run, ...]] = {}
    for run in sorted(runs, key=lambda run: run.started_at):
        if run.kind == "nightly":
            found[place_of(run)] = (*found.get(place_of(run), ()), run)
    return found


def told(runs: Iterable[Run], every: timedelta | None = None, now: datetime | None = None) -> tuple[str, ...]:
    """A line for each gap of each place, oldest first. `every` counts before what the nights say."""
    lines = []
    for (suite, lane, gpu), nights in by_place(runs).items():
        rhythm_now = every or expected(nights[-1])
        where = f"{suite}, {lane.value}{f' on {gpu}' if gpu else ''}"
        lines += [f"{where}: {gap}" for gap in gaps((run.started_at for run in nights), rhythm_now, now)]
    return tuple(lines)
