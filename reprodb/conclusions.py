"""What experiments showed of one comparison, and the sentences that say it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reprodb.coordinates import Coordinate
from reprodb.counterfactual import Findings, Minimal
from reprodb.domain import Lane, Result, Status
from reprodb.findings import Comparison


@dataclass(frozen=True, slots=True)
class Held:
    """A coordinate that could not be exchanged: which side's value every experiment had, and why."""

    coordinate: Coordinate
    at: str  # baseline | candidate
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment as it is told. `shows` is baseline, candidate, other or nothing."""

    number: int
    exchanged: tuple[str, ...]
    shows: str
    bits: str  # of the first of `outputs`: 0x4b25426d, or the beginning of its SHA-256
    detail: str  # how the bits differ from the baseline's, or why there are none
    compiled: bool
    same_as: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was found for one row.

    `reproduced` says of baseline and candidate whether their recorded bits came again; None where that end
    gave none.
    """

    comparison: Comparison
    lane: Lane
    outputs: tuple[str, ...] = ()  # whose bits are judged
    coordinates: tuple[Coordinate, ...] = ()
    held: tuple[Held, ...] = ()
    reproduced: tuple[bool | None, bool | None] = (None, None)
    findings: Findings | None = None
    trials: tuple[Trial, ...] = ()
    environment: str = ""  # what differs in it, which no experiment exchanges
    obstacle: str = ""  # why no experiment could be carried out
    notes: tuple[str, ...] = ()

    @property
    def explained(self) -> bool:
        """Whether the recorded bits came again on both sides, and sets were found that move them."""
        return self.findings is not None and self.findings.differs and self.reproduced == (True, True)

    @property
    def exchangeable(self) -> tuple[str, ...]:
        held = {h.coordinate.name for h in self.held}
        return tuple(c.name for c in self.coordinates if c.name not in held)


def answer(found: Explanation) -> tuple[str, ...]:
    """The sentences of an explanation, what must be known before the rest first."""
    if found.findings is None:
        return (_sentence(found.obstacle),)
    said = [*_ends(found)]
    if found.findings.differs:
        return (*said, *_sets(found, found.findings))
    return (*said, *_nothing_moved(found))


def _ends(found: Explanation) -> Iterator[str]:
    """Whether the recorded bits came again here."""
    names = ("baseline", "candidate")
    sides = (found.comparison.baseline, found.comparison.candidate)
    trials = (_trial(found, ()), _trial(found, found.exchangeable))
    for name, side, trial, again in zip(names, sides, trials, found.reproduced, strict=True):
        if again is None:
            yield f"The {name} gives no bits here: {trial.detail}."
        elif not again and side is not None:
            where = f" on the {side.lane} lane" if side.lane is not found.lane else ""
            yield (
                f"The {name}'s bits did not come again: {shown(side, found.outputs)} was recorded{where}, "
                f"{trial.bits} came here; something that is not exchanged moved them."
            )
    if found.reproduced != (True, True) and found.environment:
        yield f"The environment of the recorded runs differs: {found.environment}."


def _nothing_moved(found: Explanation) -> Iterator[str]:
    if None in found.reproduced:
        return
    left = [h.coordinate.name for h in found.held]
    left += [f"the environment ({found.environment})"] if found.environment else []
    names = found.exchangeable
    what = f"Exchanging {joined(names)} moves no bit" if names else "There is nothing to exchange"
    yield f"{what}; what is left is {joined(left, 'or') or 'what no record holds'}."


def _sets(found: Explanation, findings: Findings) -> Iterator[str]:
    names = found.exchangeable
    for one in findings.minimal:
        yield _minimal(one, len(names))
    if not any(one.reproduces for one in findings.minimal):
        for group in findings.reproducing:
            every = "all " if len(group) == len(names) > 2 else ""
            sure = "" if findings.smallest else "; smaller sets were not all tried"
            yield f"{_capital(every + joined(group))} together give the candidate's bits{sure}."
    named = {name for one in findings.minimal for name in one.names}
    named |= {name for group in findings.reproducing for name in group}
    alone = {t.exchanged[0]: t.shows for t in found.trials if len(t.exchanged) == 1}
    for shows, verb in (("baseline", "nothing alone"), ("nothing", "what could not be seen: no bits alone")):
        idle = [name for name in names if name not in named and alone.get(name) == shows]
        if idle:
            yield f"{_capital(joined(idle))} {'moves' if len(idle) == 1 else 'move'} {verb}."
    if findings.untried:
        yield f"The limit on experiments left {findings.untried:,} sets untried; --limit raises it."


def _minimal(one: Minimal, coordinates: int) -> str:
    names = joined(one.names)
    to = "to the candidate's bits" if one.reproduces else "but not to the candidate's bits"
    if len(one.names) == 1:
        text = f"{names} moves the bits{' alone' if coordinates > 1 else ''}, {to}"
    else:
        parts = "neither does alone" if len(one.names) == 2 else "no smaller part of them does"
        text = f"{names} move the bits only together, {to}; {parts}"
    if one.gaps:
        gaps = joined([" with ".join(gap) for gap in one.gaps])
        text += f", as far as it could be tried: {gaps} gave no bits"
    return _sentence(text)


def told(trial: Trial) -> str:
    """One line of a trial: `7  -fmad=false with -ftz=true: 0x00a00000, as the candidate`."""
    what = " with ".join(trial.exchanged) or "nothing exchanged"
    shows = f"no bits: {trial.detail}" if trial.shows == "nothing" else f"{trial.bits}, {as_what(trial)}"
    same = f"; the same code and launch as {trial.same_as}" if trial.same_as else ""
    return f"{trial.number}  {what}: {shows}{same}"


def as_what(trial: Trial) -> str:
    return {"baseline": "as the baseline", "candidate": "as the candidate", "other": "as neither"}.get(
        trial.shows, "no bits"
    )


def shown(result: Result, outputs: Sequence[str]) -> str:
    """A result's bits in a word: those of the first of `outputs`."""
    output = next((o for o in result.outputs if o.name in outputs[:1]), None)
    if output is None or result.status is not Status.OK:
        return ""
    return f"{output.distinct} patterns" if output.distinct > 1 else output.first_bits or output.sha256[:12]


def _trial(found: Explanation, names: tuple[str, ...]) -> Trial:
    return next(trial for trial in found.trials if trial.exchanged == names)


def joined(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return _capital(text) if text.endswith(".") else _capital(text) + "."
