"""Blessings for people and as JSON: what one would do or did, and the list of a ledger."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprodb.blessing import Change, Decision, Plan
from reprodb.domain import Result, Run, Scope
from reprodb.ledger import Blessing, Ledger, Retirement
from reprodb.render.json import row_record
from reprodb.render.text import count, full_stop, name, utc, visible
from reprodb.render.words import VERDICTS

if TYPE_CHECKING:
    from rich.console import Console


def _row(result: Result) -> str:
    plain = "" if result.condition == "plain" else f", {result.condition}"
    return (
        f"{name(result.kernel.name)} {name(result.case.name)} ({name(result.profile)}, {result.arch}{plain})"
    )


# --- What a blessing does ----------------------------------------------------------------------


def bless_lines(run: Run, plan: Plan, path: Path, who: str, why: str, *, written: bool) -> Iterator[str]:
    """What was done, or would be: one block a row, then what was left alone."""
    for decision in plan.decisions:
        yield from _decision(decision)
    for _, reference in plan.retired:
        yield f"{_row(reference)}: {'retired' if written else 'would be retired'}, it had {_bits(reference)}"
    if plan.skipped:
        names = ", ".join(dict.fromkeys(name(r.kernel.name) for r in plan.skipped))
        yield f"skipped, nobody guarantees their bits: {count(len(plan.skipped), 'row')} of {names}"
    yield full_stop(_summary(run, plan, path, who, why, written=written))


def _decision(decision: Decision) -> Iterator[str]:
    comparison = decision.comparison
    word = VERDICTS[comparison.verdict].label
    done = "blessed already" if decision.record is None else word
    yield f"{_row(comparison.either)}: {done}"
    if decision.record is None:
        return
    yield f"    {visible(decision.record.changed)}"
    for change in decision.changes:
        yield f"    {name(change.output)}: {_change(change)}"


def _change(change: Change) -> str:
    if change.before is None:
        return f"nothing → {change.after}"
    if change.before == change.after:
        return f"{change.after}, as before"
    delta = change.delta
    how = []
    if delta is not None and delta.of > 1:
        how.append(f"{delta.changed:,} of {delta.of:,} elements, the first at {delta.first}")
    if delta is not None and delta.max_ulp is not None:
        how.append(f"{delta.max_ulp:,} ULP")
    return f"{change.before} → {change.after}" + (f" ({', '.join(how)})" if how else "")


def _bits(result: Result) -> str:
    words = [o.first_bits or f"sha256 {o.sha256[:12]}" for o in result.results]
    return ", ".join(words) or "bits that only the ledger knows"


def _summary(run: Run, plan: Plan, path: Path, who: str, why: str, *, written: bool) -> str:
    made = sum(d.record is not None for d in plan.decisions)
    if not plan.changes_anything:
        return f"nothing to write: {path} says so already" if plan.decisions else "nothing to bless"
    what = [f"{count(made, 'row')} of run {run.id} blessed"] if made else []
    what += [f"{count(len(plan.retired), 'row')} retired"] if plan.retired else []
    verb = "" if written else "would be written: "
    return f"{verb}{', '.join(what)} by {visible(who)} in {path}: {visible(why)}"


def bless_record(run: Run, plan: Plan, path: Path, who: str, why: str, *, written: bool) -> dict[str, Any]:
    """`reprodb.bless/1`."""
    return {
        "schema": "reprodb.bless/1",
        "run": run.id,
        "ledger": str(path),
        "who": who,
        "why": why,
        "written": written and plan.changes_anything,
        "blessed": [_decision_record(d) for d in plan.decisions if d.record is not None],
        "already": [row_record(d.comparison.either) for d in plan.decisions if d.record is None],
        "skipped": [row_record(r) for r in plan.skipped],
        "retired": [row_record(r) for _, r in plan.retired],
    }


def _decision_record(decision: Decision) -> dict[str, Any]:
    comparison, record = decision.comparison, decision.record
    told = comparison.attribution
    return {
        **row_record(comparison.either),
        "id": record.id if record else None,
        "verdict": comparison.verdict.value,
        "moved": [m.value for m in told.moved] if told else [],
        "first_layer": told.first_layer if told else None,
        "changed": record.changed if record else "",
        "expires": utc(record.expires) if record else None,
        "outputs": {
            c.output: {
                "before": c.before,
                "after": c.after,
                "changed": c.delta.changed if c.delta else None,
                "of": c.delta.of if c.delta else None,
                "max_ulp": c.delta.max_ulp if c.delta else None,
            }
            for c in decision.changes
        },
    }


# --- The ledger --------------------------------------------------------------------------------


def baselines(out: "Console", ledger: Ledger, path: Path, now: datetime, *, everything: bool = False) -> None:
    """Prints the ledger: what counts now, with `everything` what once did too."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = [(b, state) for b, state in ledger.states(now) if everything or state == "active"]
    gone = ledger.retirements if everything else ()
    if not rows and not gone:
        ended = len(ledger.blessings)
        more = f"; {count(ended, 'blessing')} no longer counts (--all)" if ended else ""
        out.print(Text(f"{path}: nothing is blessed{more}"))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for heading in (
        "id",
        "state",
        "kernel",
        "case",
        "profile",
        "arch",
        "where",
        "bits",
        "when",
        "who",
        "why",
    ):
        table.add_column(heading, no_wrap=heading in ("id", "bits", "kernel"), overflow="fold")
    for blessing, state in rows:
        until = f", until {blessing.expires:%Y-%m-%d}" if blessing.expires and state == "active" else ""
        bits = ", ".join(value for _, value in blessing.bits) or f"sha256 {blessing.sha256[0][1][:12]}"
        when = f"{blessing.when:%Y-%m-%d}"
        cells = (*_place(blessing.scope), bits, when, blessing.who, blessing.why)
        table.add_row(*(Text(visible(cell)) for cell in (blessing.id, state + until, *cells)))
    for retirement in gone:
        cells = (*_place(retirement.scope), "", f"{retirement.when:%Y-%m-%d}", retirement.who, retirement.why)
        table.add_row(*(Text(visible(cell)) for cell in ("", "retired row", *cells)))
    out.print(table)


def _place(scope: Scope) -> tuple[str, str, str, str, str]:
    plain = "" if scope.condition == "plain" else f" [{scope.condition}]"
    return (scope.kernel, scope.case + plain, scope.profile, scope.arch, scope.gpu or scope.lane.value)


def baselines_record(
    ledger: Ledger, path: Path, now: datetime, *, everything: bool = False
) -> dict[str, Any]:
    """`reprodb.baselines/1`."""
    rows = [(b, state) for b, state in ledger.states(now) if everything or state == "active"]
    return {
        "schema": "reprodb.baselines/1",
        "ledger": str(path),
        "baselines": [_blessing_record(ledger, b, state) for b, state in rows],
        "retired": [_retirement_record(r) for r in ledger.retirements] if everything else [],
    }


def _scope_record(scope: Scope) -> dict[str, Any]:
    return {
        "suite": scope.suite,
        "kernel": scope.kernel,
        "case": scope.case,
        "profile": scope.profile,
        "arch": scope.arch,
        "lane": scope.lane.value,
        "gpu": scope.gpu,
        "condition": scope.condition,
    }


def _blessing_record(ledger: Ledger, blessing: Blessing, state: str) -> dict[str, Any]:
    withdrawal = ledger.withdrawal_of(blessing)
    return {
        "id": blessing.id,
        "state": state,
        **_scope_record(blessing.scope),
        "bits": dict(blessing.bits),
        "sha256": dict(blessing.sha256),
        "source": blessing.source,
        "input": blessing.input,
        "toolchain": blessing.toolchain,
        "run": blessing.run,
        "changed": blessing.changed,
        "who": blessing.who,
        "why": blessing.why,
        "when": utc(blessing.when),
        "expires": utc(blessing.expires),
        "withdrawn": None
        if withdrawal is None
        else {"who": withdrawal.who, "why": withdrawal.why, "when": utc(withdrawal.when)},
    }


def _retirement_record(retirement: Retirement) -> dict[str, Any]:
    decided = {"who": retirement.who, "why": retirement.why, "when": utc(retirement.when)}
    return {**_scope_record(retirement.scope), **decided}
