"""`reprodb bless RUN`: decide that a run's bits are the baseline from now on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import DatabaseOption, JsonOption, LedgerOption, PolicyOption
from reprodb.domain import scope_of
from reprodb.errors import UsageError

if TYPE_CHECKING:
    from reprodb.blessing import Plan
    from reprodb.domain import Run
    from reprodb.findings import Comparison
    from reprodb.ledger import Blessing, Ledger
    from reprodb.store.store import Store

WhoOption = Annotated[
    str | None, typer.Option("--who", metavar="NAME", help="Who decides; git's user or the login by default.")
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why. It is recorded.")]


def register(app: typer.Typer) -> None:
    app.command("bless")(bless)


def bless(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Number, label, latest; RUN:PROFILE[:KERNEL].")],
    kernels: Annotated[
        list[str] | None, typer.Argument(metavar="[KERNEL]...", help="Only these kernels (globs).")
    ] = None,
    *,
    reason: ReasonOption,
    who: WhoOption = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="90d", help="Counts for so many days or weeks only.")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Retire the rows that RUN lacks: they are gone on purpose.")
    ] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Say what would be done; write nothing.")
    ] = False,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the bits of a run the baseline of their rows, in reprodb.lock and in the database.

    Refused as a whole if one of the rows lost its determinism, is inaccurate or has no bits, or if a canary
    of the run failed. Rows whose bits nobody guarantees are skipped.
    """
    from reprodb.cli.judging import LEDGER_FILE, ledger_at
    from reprodb.cli.sealing import decider
    from reprodb.ledger import parse_expiry
    from reprodb.render import decisions
    from reprodb.render.json import dumps
    from reprodb.store import open_store

    path = ledger or LEDGER_FILE
    before = ledger_at(path)
    span = parse_expiry(expires) if expires is not None else None
    if missing and span is not None:
        raise UsageError("a retirement does not expire", remedy="leave --expires out")
    names, by, now = tuple(kernels or ()), decider(who), datetime.now(UTC)
    with open_store(database) as store:
        found = _run(store, run)
        plan = _plan(store, run, found, names, before, policy, by, reason, now, span, missing=missing)
    if not report_only:
        with open_store(database, write=True) as store:
            write(store, found, plan, before, path)
    if as_json:
        document = decisions.bless_record(found, plan, path, by, reason, written=not report_only)
        typer.echo(dumps(document), nl=False)
    else:
        for line in decisions.bless_lines(found, plan, path, by, reason, written=not report_only):
            typer.echo(line)


def _run(store: Store, ref: str) -> Run:
    from reprodb.blessing import check_run

    number = store.resolve(ref).run_id
    if number is None:
        raise UsageError(
            f"{ref!r} is what is blessed or accepted already", allowed="a run's number, label, latest"
        )
    run = store.run(number)
    check_run(run)
    return run


def _plan(
    store: Store,
    ref: str,
    run: Run,
    names: tuple[str, ...],
    ledger: Ledger,
    policy: Path | None,
    who: str,
    why: str,
    now: datetime,
    expires: timedelta | None,
    *,
    missing: bool,
) -> Plan:
    from reprodb.blessing import pick, plan_blessing, plan_retirement
    from reprodb.findings import Verdict

    rows = _rows(store, ref, run, ledger, policy, now, everything=missing)
    chosen = pick((c for c in rows if (c.verdict is Verdict.MISSING) is missing), names, run)
    if missing:
        return plan_retirement(run, chosen, ledger, who=who, why=why, now=now)
    return plan_blessing(run, chosen, ledger, who=who, why=why, now=now, expires=expires, named=names)


def _rows(
    store: Store,
    ref: str,
    run: Run,
    ledger: Ledger,
    policy: Path | None,
    now: datetime,
    *,
    everything: bool,
) -> tuple[Comparison, ...]:
    """The run's rows against the references beside it, judged; with `everything` those that it lacks too."""
    from reprodb.cli.judging import load_references, policy_at
    from reprodb.compare import Side
    from reprodb.review import review_night

    part = store.resolve(ref)
    results = store.results(run.id or 0)
    references = dict(load_references(store, run, results, ledger, now, everything=everything))
    # A row that became its own reference when it was recorded is told against what was there before it.
    own = [row for row, (_, other, _) in references.items() if other is not None and other.id == run.id]
    if own:
        before = load_references(store, run, results, ledger, now, before=run.id)
        kept = {row: reference for row, reference in references.items() if row not in own}
        references = kept | {row: before[row] for row in own if row in before}
    diff = review_night(
        Side(run, results),
        references,
        store.pattern,
        policy_at(policy),
        now=now,
        planned=lambda row: everything,
        ledger=ledger,
    )
    return tuple(
        c
        for c in diff.comparisons
        if part.profile in (None, c.either.profile) and part.kernel in (None, c.kernel)
    )


def write(store: Store, run: Run, plan: Plan, before: Ledger, path: Path) -> None:
    """Record a plan in the database and in the ledger, both or neither.

    The database's part is written first and stays open; the ledger replaces its file; the database commits.
    Whatever fails or interrupts on the way undoes both. Should the machine stop between the last two steps,
    the ledger decides, and the same command completes the database's history.
    """
    from reprodb.blessing import records
    from reprodb.cli.sealing import sealed

    for record in _untold(store, run, plan, before):
        _record(store, run, [record])
    if plan.changes_anything:
        with sealed(path, before, plan.ledger) as seal:
            made = records(plan)
            if made:
                _record(store, run, made, seal)
            else:
                seal()


def _untold(store: Store, run: Run, plan: Plan, ledger: Ledger) -> list[Blessing]:
    """Blessings of this run that the ledger has and this database's history has not."""
    active = ledger.active(datetime.now(UTC))
    found = []
    for decision in plan.decisions:
        result = decision.comparison.candidate
        known = active.get(scope_of(run, result)) if result is not None and decision.record is None else None
        if result is not None and known is not None and known.run == run.uid:
            told = (b.result_id == result.id and b.withdrawn_at is None for b in store.blessings(known.scope))
            found += [] if any(told) else [known]
    return found


def _record(
    store: Store, run: Run, blessings: Sequence[Blessing], seal: Callable[[], None] = lambda: None
) -> None:
    """Blessings of one decision into the database's history, their results as accepted references."""
    numbers = {scope_of(run, r): r.id for r in store.results(run.id or 0) if r.id is not None}
    one = blessings[0]
    store.bless(
        [numbers[b.scope] for b in blessings],
        who=one.who,
        why=one.why,
        when=one.when,
        expires=one.expires,
        changed={numbers[b.scope]: b.changed for b in blessings},
        accept=True,
        seal=seal,
    )
