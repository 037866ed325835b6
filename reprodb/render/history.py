"""The page of one kernel: a strip of its bits over the runs for each scope, and what changed when."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from reprodb.domain import Lane, Run, Scope, scope_of
from reprodb.render.strip import Strip, place_of, strip
from reprodb.render.text import count, joined
from reprodb.render.timeline import STEPS, Moment
from reprodb.render.top import Fact
from reprodb.render.views import ResultRow, result_row


@dataclass(frozen=True, slots=True)
class Row:
    moment: Moment
    result: ResultRow


@dataclass(frozen=True, slots=True)
class ScopeStrip:
    """One scope: its newest moments, oldest first, and all of them as rows, newest first."""

    anchor: str
    name: str
    where: str
    summary: str
    strip: Strip
    rows: tuple[Row, ...]
    older: int  # moments that the table leaves out


@dataclass(frozen=True, slots=True)
class HistoryPage:
    kernel: str
    command: str  # the kernel's name as a shell takes it
    headline: str
    tone: str
    mark: str
    tally: tuple[tuple[str, str, str, int], ...]  # mark, tone, step, how many
    facts: tuple[Fact, ...]
    scopes: tuple[ScopeStrip, ...]
    lane: Lane | None  # where all results share one


# Rows of the table of one scope; the strip goes further back.
ROWS = 60


def history_page(kernel: str, moments: Sequence[Moment], nights: Sequence[Run] = ()) -> HistoryPage:
    """The view of a kernel's moments, given newest first, among all nightlies."""
    scopes: dict[Scope, list[Moment]] = {}
    for m in moments:
        scopes.setdefault(scope_of(m.run, m.result), []).append(m)
    ordered = sorted(scopes.items(), key=lambda pair: _order(pair[0]))
    counts = {step: sum(m.step == step for m in moments) for step in STEPS}
    grave = next((step for step in ("lost", "moved", "no result", "latent") if counts[step]), "same")
    lanes = {m.run.lane for m in moments}
    first = moments[0].result.kernel if moments else None
    facts = (
        Fact("Operation", first.operation, (f"accumulator {first.accumulator}",)),
        Fact("Declared determinism", first.determinism.value),
        Fact("Cases", joined(sorted({m.result.case.name for m in moments}))),
        Fact("Profiles", joined(sorted({m.result.profile for m in moments}))),
    ) if first else ()  # fmt: skip
    return HistoryPage(
        kernel,
        shlex.quote(kernel),
        _headline(counts, len({m.run.uid for m in moments})),
        STEPS[grave][1],
        STEPS[grave][0],
        tuple((STEPS[step][0], STEPS[step][1], step, n) for step, n in counts.items() if n),
        facts,
        tuple(_scope(f"s{n}", scope, found, nights) for n, (scope, found) in enumerate(ordered, 1)),
        lanes.pop() if len(lanes) == 1 else None,
    )


def _order(scope: Scope) -> tuple[str, ...]:
    return (scope.case, scope.profile, scope.arch, scope.lane.value, scope.gpu or "", scope.condition)


def _headline(counts: dict[str, int], runs: int) -> str:
    over = f"over {count(runs, 'run')}"
    if counts["lost"]:
        return f"Determinism was lost {count(counts['lost'], 'time')} {over}."
    if counts["moved"]:
        return f"Bits moved {count(counts['moved'], 'time')} {over}."
    if counts["latent"]:
        return f"No result moved {over}; witness bits did {count(counts['latent'], 'time')}."
    return f"No bits moved {over}."


def _scope(anchor: str, scope: Scope, moments: Sequence[Moment], nights: Sequence[Run]) -> ScopeStrip:
    where = f"{scope.lane.value} on {scope.gpu}" if scope.gpu else scope.lane.value
    condition = "" if scope.condition == "plain" else f", {scope.condition}"
    steps = [m.step for m in moments]
    summary = ", ".join(f"{steps.count(step):,} {step}" for step in STEPS if step in steps)
    return ScopeStrip(
        anchor,
        scope.profile,
        f"{scope.case}, {scope.arch}, {where}{condition}",
        summary,
        strip(moments, (run for run in nights if place_of(run) == (scope.suite, scope.lane, scope.gpu))),
        tuple(Row(m, result_row(m.result)) for m in moments[:ROWS]),
        max(0, len(moments) - ROWS),
    )
