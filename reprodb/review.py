"""Compare, attribute and gate in one step: two runs, or a night with its references. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from reprodb.compare import Side, compare_references, compare_runs, matrix
from reprodb.deltas import Fetch
from reprodb.domain import Accuracy, Result, Run, Scope, Status, scope_of
from reprodb.findings import CanaryOutcome, Comparison, Diff, Verdict
from reprodb.gate import judge
from reprodb.ledger import Ledger
from reprodb.matrix import References, Row
from reprodb.policy import Policy

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
) -> Diff:
    """The judged diff of two runs (or of one profile, or one kernel, of each)."""
    rows = compare_runs(
        baseline, candidate, fetch, by_profile=by_profile, by_kernel=by_kernel, across=across
    )  # fmt: skip
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
) -> Diff:
    """The judged diff of a run with each row's own reference, and the run's profile matrix."""
    rows = compare_references(references, candidate, fetch, planned=planned, across=across)
    diff = Diff(
        None,
        candidate.run,
        rows,
        matrix=matrix(candidate.results, references),
        canaries=candidate.run.canaries,
    )
    return judge(diff, policy, now=now, first_night=not references)


def references_of(
    run: Run,
    results: Iterable[Result],
    accepted: Mapping[Scope, tuple[Result, Run]],
    ledger: Ledger,
    now: datetime,
) -> References:
    """Each row's reference: the blessed result, else the last accepted one of its scope.

    `accepted` holds, by scope, the last accepted result and its run, of rows that the run lacks too. A
    blessing made in another database stands in by its digests; one of other sources or inputs began another
    history and steps back.
    """
    blessed = ledger.active(now)
    found: dict[Row, tuple[Result, Run | None, str]] = {}
    for result in results:
        scope = scope_of(run, result)
        last = accepted.get(scope)
        blessing = blessed.get(scope)
        if blessing is not None and (last is None or blessing.same_history(result)):
            if last is not None and blessing.holds(last[0]):
                found[result.row] = (*last, "blessed")
            else:
                found[result.row] = (blessing.reference(result), None, "blessed")
        elif last is not None:
            found[result.row] = (*last, "accepted")
    for scope, last in accepted.items():
        result = last[0]
        if result.row not in found and scope == scope_of(run, result):
            found[result.row] = (*last, "accepted")
    return found


def acceptable(comparisons: Iterable[Comparison]) -> tuple[int, ...]:
    """The ids of results that become the reference of their scope without anybody's decision.

    A changed result never does: it stays a difference until it is blessed or gone.
    """
    return tuple(
        c.candidate.id
        for c in comparisons
        if c.verdict in _QUIET
        and c.candidate is not None
        and c.candidate.id is not None
        and c.candidate.status is Status.OK
        and c.accuracy is not Accuracy.OUTSIDE
        and c.loss is None
    )


def _failed(run: Run) -> tuple[CanaryOutcome, ...]:
    """A baseline's failed canaries count: its bits are as little worth as a candidate's would be."""
    return tuple(c for c in run.canaries if not c.ok and c.fatal)
