"""Compare, attribute and gate in one step: two runs, or a night with its references. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from reprodb.compare import Earlier, Side, compare_references, compare_runs, matrix, nothing_earlier
from reprodb.deltas import Fetch
from reprodb.domain import Accuracy, Result, Run, Scope, Status, scope_of
from reprodb.findings import CanaryOutcome, Comparison, Diff, Verdict
from reprodb.gate import begins_anew, judge
from reprodb.ledger import Blessing, Ledger
from reprodb.matrix import References, Row
from reprodb.policy import Policy
from reprodb.variation import SUITE_FOLDER

_EMPTY_LEDGER = Ledger()

# Verdicts after which a row's bits may become the reference of its scope by themselves.
_QUIET = frozenset({Verdict.NO_BASELINE, Verdict.SAME, Verdict.LATENT, Verdict.CHURN})


def review_runs(
    baseline: Side,
    candidate: Side,
    fetch: Fetch,
    policy: Policy,
    *,
    now: datetime,
    by_profile: bool = True,
    by_kernel: bool = True,
    across: frozenset[str] = frozenset(),
    earlier: Earlier = nothing_earlier,
) -> Diff:
    """The judged diff of two runs (or of one profile, or one kernel, of each)."""
    rows = compare_runs(
        baseline,
        candidate,
        fetch,
        by_profile=by_profile,
        by_kernel=by_kernel,
        across=across,
        earlier=earlier,
    )
    canaries = _failed(baseline.run) + candidate.run.canaries
    return judge(Diff(baseline.run, candidate.run, rows, canaries=canaries), policy, now=now)


def review_night(
    candidate: Side,
    references: References,
    fetch: Fetch,
    policy: Policy,
    *,
    now: datetime,
    planned: Callable[[Row], bool] | None = None,
    across: frozenset[str] = frozenset(),
    earlier: Earlier = nothing_earlier,
    ledger: Ledger = _EMPTY_LEDGER,
) -> Diff:
    """The judged diff of a run with each row's own reference, and the run's profile matrix."""
    rows = compare_references(
        references,
        candidate,
        fetch,
        planned=planned,
        across=across,
        earlier=earlier,
        sources=_blessed_sources(candidate, references, ledger, now),
    )
    diff = Diff(
        None,
        candidate.run,
        _with_ended(candidate.run, rows, ledger, now),
        matrix=matrix(candidate.results, references),
        canaries=candidate.run.canaries,
    )
    return judge(diff, policy, now=now, first_night=not references)


def located(diff: Diff, suite: Path, profiles: Path | None) -> Diff:
    """The diff with the commands to try as they run on this machine: where its suite and its profiles are."""

    def exact(row: Comparison) -> Comparison:
        if row.loss is None:
            return row
        commands = []
        for command in row.loss.advice:
            words = [str(suite) if word == SUITE_FOLDER else word for word in shlex.split(command)]
            commands.append(shlex.join([*words, *(["--profiles-file", str(profiles)] if profiles else [])]))
        return replace(row, loss=replace(row.loss, advice=tuple(commands)))

    return replace(diff, comparisons=tuple(exact(row) for row in diff.comparisons))


def _with_ended(
    run: Run, rows: Iterable[Comparison], ledger: Ledger, now: datetime
) -> tuple[Comparison, ...]:
    """The rows; one that moved to bits whose blessing has ended says so, the newest such blessing first."""
    ended = ledger.ended(now)

    def told(row: Comparison) -> Comparison:
        result = row.candidate
        if result is None or row.verdict not in (Verdict.CHANGED, Verdict.LATENT):
            return row
        held = [b for b in ended.get(scope_of(run, result), ()) if b.holds(result)]
        if not held:
            return row
        how, end = ledger.how_ended(held[0]), ledger.ends(held[0])
        day = f"{end:%Y-%m-%d}" if end is not None else ""
        note = f"blessing {held[0].id} of these bits {'has ' * (how == 'expired')}{how} {day}: {held[0].why}"
        return replace(row, note="; ".join(part for part in (row.note, note) if part))

    return tuple(told(row) for row in rows)


def _blessed_sources(
    candidate: Side, references: References, ledger: Ledger, now: datetime
) -> dict[Row, str]:
    """The digest of the sources of each reference of which only the ledger knows."""
    blessed = ledger.active(now)
    found = ((r.row, blessed.get(scope_of(candidate.run, r))) for r in candidate.results)
    return {
        row: b.source for row, b in found if b is not None and row in references and not references[row][1]
    }


def references_of(
    run: Run,
    results: Iterable[Result],
    accepted: Mapping[Scope, tuple[Result, Run]],
    ledger: Ledger,
    now: datetime,
    blessed_here: Mapping[str, tuple[Result, Run]] | None = None,
) -> References:
    """Each row's reference: the blessed result, else the last accepted one of its scope.

    `accepted` holds, by scope, the last accepted result and its run, of rows that the run lacks too;
    `blessed_here` by the blessing's id those blessed results that this database has. A blessing made in
    another one stands in by its digests. What was accepted before a scope was retired is no reference.
    """
    blessed, retired = ledger.active(now), ledger.retired(now)
    here = blessed_here or {}
    standing = {
        scope: last
        for scope, last in accepted.items()
        if scope not in retired or last[1].started_at > retired[scope]
    }
    found: dict[Row, tuple[Result, Run | None, str]] = {}
    for result in results:
        scope = scope_of(run, result)
        last, blessing = standing.get(scope), blessed.get(scope)
        if blessing is not None and _decides(blessing, last, result):
            if last is not None and blessing.holds(last[0]):
                found[result.row] = (*last, "blessed")
            elif blessing.id in here:
                found[result.row] = (*here[blessing.id], "blessed")
            else:
                found[result.row] = (blessing.reference(result), None, "blessed")
        elif last is not None:
            found[result.row] = (*last, "accepted")
    for scope, last in standing.items():
        result = last[0]
        if result.row not in found and scope == scope_of(run, result):
            found[result.row] = (*last, "accepted")
    for scope, blessing in blessed.items():
        alone = blessing.row()
        if alone.row not in found and scope == scope_of(run, alone):
            found[alone.row] = (*here.get(blessing.id, (alone, None)), "blessed")
    return found


def _decides(blessing: Blessing, last: tuple[Result, Run] | None, result: Result) -> bool:
    """Whether the blessing, and not what was accepted last, is the reference of a result.

    It is, unless it belongs to another source or input than the result and the last accepted one does not, or
    came after it in a history that is over as well.
    """
    if last is None or blessing.same_history(result):
        return True
    accepted, run = last
    return not _same_history(accepted, result) and run.started_at <= blessing.when


def _same_history(one: Result, other: Result) -> bool:
    sources = [r.build.source_digest if r.build else "" for r in (one, other)]
    return sources[0] == sources[1] and one.input_digest == other.input_digest


def acceptable(comparisons: Iterable[Comparison], policy: Policy) -> tuple[int, ...]:
    """The ids of results that become the reference of their scope without anybody's decision.

    A changed result never does: it stays a difference until it is blessed or gone. Only where the policy says
    so does one begin the history of another source.
    """
    return tuple(
        c.candidate.id
        for c in comparisons
        if (c.verdict in _QUIET or begins_anew(c, policy))
        and not c.gated
        and c.candidate is not None
        and c.candidate.id is not None
        and c.candidate.status is Status.OK
        and c.accuracy is not Accuracy.OUTSIDE
        and c.loss is None
    )


def _failed(run: Run) -> tuple[CanaryOutcome, ...]:
    """A baseline's failed canaries count: its bits are as little worth as a candidate's would be."""
    return tuple(c for c in run.canaries if not c.ok and c.fatal)
