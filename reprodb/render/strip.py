"""A row over the runs as one line of cells, the nights without a result among them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from reprodb.domain import Lane, Run
from reprodb.render.text import count, visible
from reprodb.render.timeline import STEPS, Moment
from reprodb.render.words import run_name

# Cells in a strip.
CELLS = 120
# Nights come at least this far apart; runs closer together have no rhythm to miss.
_NIGHT = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: a mark, a tone, what it says in words, and the letters of what else changed there."""

    mark: str
    tone: str
    word: str
    text: str
    turns: str = ""


@dataclass(frozen=True, slots=True)
class Strip:
    """The newest cells, oldest first, and as a list the moments at which something else changed."""

    cells: tuple[Cell, ...]
    turns: tuple[Moment, ...]
    gaps: tuple[str, ...]  # nights that are missing
    older: int  # cells that have no room

    @property
    def summary(self) -> str:
        """The cells as words, for who cannot see them: `1 first, 34 same, 1 moved`."""
        words = [cell.word for cell in self.cells]
        return ", ".join(f"{words.count(word):,} {word}" for word in dict.fromkeys(words))


def place_of(run: Run) -> tuple[str, Lane, str | None]:
    """What nights of one rhythm have in common: suite, lane and GPU model."""
    device = run.environment.device
    return (run.suite, run.lane, device.name if device else None)


def strip(moments: Sequence[Moment], nights: Iterable[Run] = (), room: int = CELLS) -> Strip:
    """The strip of one scope's moments, given newest first, at most `room` cells long.

    `nights` are the nightlies of the same suite, lane and GPU: one that has no such row is a cell, and so is
    every stretch that is too long for the usual time between nights.
    """
    if not moments:
        return Strip((), (), (), 0)
    began = moments[-1].run.started_at
    have = {m.run.uid for m in moments}
    bare = [run for run in nights if run.uid not in have and run.started_at > began]
    found: list[tuple[datetime, Moment | Run]] = [(m.run.started_at, m) for m in reversed(moments)]
    found = sorted([*found, *((run.started_at, run) for run in bare)], key=lambda pair: pair[0])
    starts = [when for when, item in found if (item if isinstance(item, Run) else item.run).kind == "nightly"]
    usual = _rhythm(starts)
    cells: list[Cell] = []
    gaps: list[str] = []
    last: datetime | None = None
    for when, item in found:
        run = item if isinstance(item, Run) else item.run
        if run.kind == "nightly":
            if usual is not None and last is not None and (missed := round((when - last) / usual) - 1) > 0:
                gaps.append(_gap(missed, last, when))
                cells.append(Cell("⋯", "gap", "gap", gaps[-1]))
            last = when
        cells.append(_bare(item, moments[0].result.profile) if isinstance(item, Run) else _cell(item))
    shown = moments[:room]
    return Strip(
        tuple(cells[-room:]),
        tuple(m for m in reversed(shown) if m.turns),
        tuple(gaps),
        max(0, len(cells) - room),
    )


def _rhythm(starts: Sequence[datetime]) -> timedelta | None:
    """The usual time between nights; None where runs are too few or too close to have one."""
    steps = [(after - before).total_seconds() for before, after in pairwise(starts)]
    usual = timedelta(seconds=median(steps)) if len(steps) >= 2 else timedelta(0)
    return usual if usual >= _NIGHT else None


def _gap(missed: int, last: datetime, when: datetime) -> str:
    return f"{count(missed, 'night')} without a run between {last:%Y-%m-%d} and {when:%Y-%m-%d}"


def _cell(m: Moment) -> Cell:
    mark, tone, _ = STEPS[m.step]
    told = "; ".join((f"run {m.run.id}: {m.step}", *m.changed))
    return Cell(mark, tone, m.step, told, "".join(turn.letter for turn in m.turns))


def _bare(run: Run, profile: str) -> Cell:
    """A night that recorded other rows, and not this one."""
    why = next((visible(s.reason) for s in run.skipped if s.profile == profile), "")
    if why:
        why = f"profile skipped, {why}"
    else:
        why = "not in this run" if run.complete else "the run did not finish"
    return Cell("·", "quiet", "not in the run", f"{run_name(run)}: {why}")
