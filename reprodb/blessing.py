"""What a blessing would do: the rows it takes, what it refuses, and how their bits change. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from reprodb.domain import Determinism, Result, Run, scope_of
from reprodb.errors import UsageError
from reprodb.findings import Comparison, OutputDelta, Verdict
from reprodb.ledger import Blessing, Ledger, Retirement, check_words


@dataclass(frozen=True, slots=True)
class Change:
    """One guaranteed output: its bits under the reference before and now, as people read them.

    `before` is None where nothing was known; `delta` where nothing could be compared.
    """

    output: str
    before: str | None
    after: str
    delta: OutputDelta | None


@dataclass(frozen=True, slots=True)
class Decision:
    """One row against the reference before. `record` is None where the ledger holds these bits already."""

    comparison: Comparison
    changes: tuple[Change, ...]
    record: Blessing | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The ledger as it would be, and what makes the difference."""

    ledger: Ledger
    decisions: tuple[Decision, ...] = ()
    skipped: tuple[Result, ...] = ()  # rows whose bits nobody guarantees
    retired: tuple[tuple[Retirement, Result], ...] = ()  # with the reference that is given up

    @property
    def changes_anything(self) -> bool:
        return bool(self.retired) or any(d.record is not None for d in self.decisions)


def pick(comparisons: Iterable[Comparison], names: tuple[str, ...], run: Run) -> tuple[Comparison, ...]:
    """The rows of the named kernels (globs), all of them without names.

    Raises UsageError for a name that matches nothing, with the nearest one.
    """
    rows = tuple(comparisons)
    there = sorted({c.kernel for c in rows})
    for name in names:
        if not any(fnmatchcase(kernel, name) for kernel in there):
            near = difflib.get_close_matches(name, there, n=1)
            raise UsageError(
                f"run {run.id} has no such row of kernel {name!r}",
                allowed=", ".join(there) or "nothing: there is no such row",
                remedy=f"did you mean {near[0]}?" if near else "",
            )
    return tuple(c for c in rows if not names or any(fnmatchcase(c.kernel, name) for name in names))


def check_run(run: Run) -> None:
    """Raises UsageError for a run whose rows count for nothing: not finished, or with a failed canary."""
    if not run.complete:
        raise UsageError(
            f"cannot bless run {run.id}: it is not finished", remedy="go on with it: --resume, then bless"
        )
    failed = [c for c in run.canaries if c.fatal and not c.ok]
    if failed:
        raise UsageError(
            f"cannot bless run {run.id}: canary {failed[0].name} failed: {failed[0].sentence}",
            allowed="runs whose canaries hold",
            remedy="mend the machine and run again",
        )


def changes_of(comparison: Comparison) -> tuple[Change, ...]:
    """The guaranteed outputs of the candidate beside the same outputs of the reference."""
    deltas = {d.name: d for d in comparison.outputs}
    old = {o.name: o for o in comparison.baseline.outputs} if comparison.baseline is not None else {}
    found = []
    for output in comparison.candidate.outputs if comparison.candidate is not None else ():
        if output.determinism.guaranteed:
            before = old.get(output.name)
            found.append(
                Change(
                    output.name,
                    _label(before.first_bits, before.sha256) if before is not None else None,
                    _label(output.first_bits, output.sha256),
                    deltas.get(output.name),
                )
            )
    return tuple(found)


def _label(first_bits: str | None, sha256: str) -> str:
    return first_bits or f"sha256 {sha256[:12]}"


def in_words(comparison: Comparison) -> str:
    """What changed against the reference before, for the record."""
    if comparison.baseline is None:
        return "the first bits of this row"
    return comparison.attribution.sentence if comparison.attribution is not None else comparison.verdict.value


def plan_blessing(
    run: Run,
    comparisons: Iterable[Comparison],
    ledger: Ledger,
    *,
    who: str,
    why: str,
    now: datetime,
    expires: timedelta | None = None,
    named: tuple[str, ...] = (),
) -> Plan:
    """Bless the candidates of these rows, all of them or none.

    Rows without guaranteed bits are skipped unless `named` names their kernel. Raises UsageError that lists
    every row that is refused, and why.
    """
    check_words("blessing", who, why)
    decisions: list[Decision] = []
    skipped: list[Result] = []
    refused: list[UsageError] = []
    for comparison in comparisons:
        result = comparison.candidate
        if result is None:
            continue
        if not any(b.guaranteed for b in _guarantees(result)) and result.kernel.name not in named:
            skipped.append(result)
            continue
        # The accuracy as the policy judged it.
        judged = replace(result, accuracy=replace(result.accuracy, verdict=comparison.accuracy))
        try:
            after = ledger.bless(
                run, judged, who=who, why=why, now=now, changed=in_words(comparison), expires=expires
            )
        except UsageError as error:
            refused.append(error)
            continue
        record = after.blessings[-1] if after is not ledger else None
        decisions.append(Decision(comparison, changes_of(comparison), record))
        ledger = after
    if refused:
        first = refused[0]
        more = "".join(f"\n{error.problem}" for error in refused[1:])
        others = "" if named or not decisions else "; or name the kernels to bless without it"
        raise UsageError(first.problem + more, allowed=first.allowed, remedy=first.remedy + others)
    return Plan(ledger, tuple(decisions), tuple(skipped))


def _guarantees(result: Result) -> Iterable[Determinism]:
    """The guarantees of a result's outputs; of one without outputs the kernel's own."""
    return [o.determinism for o in result.outputs] or [result.kernel.determinism]


def plan_retirement(
    run: Run, comparisons: Iterable[Comparison], ledger: Ledger, *, who: str, why: str, now: datetime
) -> Plan:
    """Retire the rows that are missing: they were taken out on purpose and have no reference any more."""
    check_words("retirement", who, why)
    retired = []
    for comparison in comparisons:
        gone = comparison.baseline
        if comparison.verdict is Verdict.MISSING and gone is not None:
            ledger = ledger.retire(scope_of(run, gone), who=who, why=why, now=now)
            retired.append((ledger.retirements[-1], gone))
    return Plan(ledger, retired=tuple(retired))


def records(plan: Plan) -> tuple[Blessing, ...]:
    """The blessings that a plan adds."""
    return tuple(d.record for d in plan.decisions if d.record is not None)
