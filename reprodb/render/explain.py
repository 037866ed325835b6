"""An explanation as lines for people and as the document `reprodb.explain/1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reprodb.conclusions import Explanation, Trial, answer, as_what
from reprodb.render.text import count, name, visible

SCHEMA = "reprodb.explain/1"


def lines(
    runs: tuple[str, str], compared: int, found: Sequence[Explanation], *, quiet: bool = False
) -> Iterator[str]:
    """What people read: a row's answer first, then what was exchanged, then every experiment."""
    if not compared:
        yield f"{runs[0]} and {runs[1]} have no row in common"
    elif not found:
        yield f"nothing to explain: no guaranteed bit differs in {count(compared, 'row')}"
    for one in found:
        yield from _row(one, quiet)


def _row(one: Explanation, quiet: bool) -> Iterator[str]:
    comparison = one.comparison
    profiles = [name(side.profile) for side in (comparison.baseline, comparison.candidate) if side]
    mark = "explained" if one.explained else "not explained"
    yield f"{mark}: {name(comparison.kernel)} {name(comparison.case)} {' → '.join(profiles)} ({one.lane})"
    for sentence in answer(one):
        yield f"  {visible(sentence)}"
    if quiet:
        return
    for held in one.held:
        remedy = f"; {held.remedy}" if held.remedy else ""
        yield f"  held at the {held.at}'s: {visible(held.coordinate.name)}: {visible(held.why + remedy)}"
    for note in one.notes:
        yield f"  note: {visible(note)}"
    if one.trials:
        shared = sum(t.same_as is not None for t in one.trials)
        compiled = sum(t.compiled for t in one.trials)
        yield (
            f"  {count(len(one.trials), 'experiment')}, {compiled:,} compiled, {shared:,} of the same code "
            "as another; exchanged were:"
        )
        for coordinate in one.coordinates:
            if coordinate.name in one.exchangeable:
                yield f"    {visible(coordinate.change)}"
        yield from _table(one.trials)


def _table(trials: Sequence[Trial]) -> Iterator[str]:
    header = ("#", "exchanged", "bits", "shows", "against the baseline")
    rows = [header]
    for trial in trials:
        same = f" (same code as {trial.same_as})" if trial.same_as else ""
        rows.append(
            (
                str(trial.number),
                visible(", ".join(trial.exchanged)) or "nothing",
                trial.bits or "none",
                as_what(trial) + same,
                visible(trial.detail),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()


def document(
    runs: tuple[str, str], compared: int, found: Sequence[Explanation], exit_code: int
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "baseline": runs[0],
        "candidate": runs[1],
        "exit_code": int(exit_code),
        "compared": compared,
        "rows": [_record(one) for one in found],
    }


def _record(one: Explanation) -> dict[str, Any]:
    comparison, findings = one.comparison, one.findings
    sides = {"baseline": comparison.baseline, "candidate": comparison.candidate}
    return {
        "kernel": comparison.kernel,
        "case": comparison.case,
        "verdict": comparison.verdict.value,
        "lane": one.lane.value,
        "recorded": {
            which: {
                "profile": side.profile,
                "lane": side.lane.value,
                "arch": side.arch,
                "toolchain": side.build.toolchain.label if side.build else None,
                "reproduced": again,
            }
            for (which, side), again in zip(sides.items(), one.reproduced, strict=True)
            if side is not None
        },
        "outputs": list(one.outputs),
        "explained": one.explained,
        "answer": list(answer(one)),
        "coordinates": [
            {
                "name": c.name,
                "cause": c.cause.value,
                "change": c.change,
                "exchanged": c.name in one.exchangeable,
            }
            for c in one.coordinates
        ],
        "held": [{"name": h.coordinate.name, "at": h.at, "why": h.why, "remedy": h.remedy} for h in one.held],
        "environment": one.environment or None,
        "minimal": [
            {
                "names": list(m.names),
                "together": len(m.names) > 1,
                "reproduces": m.reproduces,
                "gaps": [list(gap) for gap in m.gaps],
            }
            for m in (findings.minimal if findings else ())
        ],
        "reproducing": [list(names) for names in (findings.reproducing if findings else ())],
        "smallest": findings.smallest if findings and findings.differs else None,
        "untried": findings.untried if findings else 0,
        "experiments": [
            {
                "number": t.number,
                "exchanged": list(t.exchanged),
                "shows": t.shows,
                "bits": t.bits or None,
                "detail": t.detail,
                "compiled": t.compiled,
                "same_as": t.same_as,
            }
            for t in one.trials
        ],
        "notes": list(one.notes),
    }
