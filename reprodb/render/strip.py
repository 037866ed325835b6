"""A row over the runs as one line of cells, the nights without a result among them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from reprodb.domain import Run
from reprodb.nights import Gap, expected, missed, rhythm
from reprodb.nights import place_of as place_of  # noqa: PLC0414 -- pages ask it of the strip
from reprodb.render.text import visible
from reprodb.render.timeline import STEPS, Moment
from reprodb.render.words import run_name

# Cells in a strip.
CELLS = 120


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
    newest = max(
        (m.run for m in moments if m.run.kind == "nightly"), key=lambda r: r.started_at, default=None
    )
    usual = (expected(newest) if newest else None) or rhythm(starts)
    cells: list[Cell] = []
    gaps: list[str] = []
    last: datetime | None = None
    for when, item in found:
        run = item if isinstance(item, Run) else item.run
        if run.kind == "nightly":
            if usual is not None and last is not None and (nights_gone := missed(last, when, usual)):
                gaps.append(str(Gap(nights_gone, last, when)))
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
