"""`reprodb diff A B`: did the bits change between two runs, and what moved?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import (
    DatabaseOption,
    JsonOption,
    JunitOption,
    LedgerOption,
    PolicyOption,
    QuietOption,
)
from reprodb.errors import UsageError

if TYPE_CHECKING:
    from reprodb.compare import Side
    from reprodb.findings import Diff
    from reprodb.store.store import Store
    from reprodb.store.values import RunRef


def register(app: typer.Typer) -> None:
    app.command("diff")(diff)


def diff(
    baseline: Annotated[
        str, typer.Argument(help="Left side: id, label, latest~N, baseline; RUN:PROFILE[:KERNEL].")
    ],
    candidate: Annotated[str, typer.Argument(help="Right side, likewise.")],
    database: DatabaseOption = None,
    policy: PolicyOption = None,
    ledger: LedgerOption = None,
    across: Annotated[
        list[str] | None,
        typer.Option(
            "--across", metavar="lane|gpu|input", help="Compare all the same; labelled, never gating."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page too.")] = None,
    junit: JunitOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare two runs, two profiles of a run, or two kernels on the same input."""
    from reprodb.cli import judging
    from reprodb.store import open_store

    with open_store(database) as store:
        found = judging.at_home(_judged(store, baseline, candidate, policy, ledger, frozenset(across or ())))
        judging.show_diff(found, as_json=as_json, quiet=quiet)
        judging.write_github(found)
        if junit is not None:
            judging.write_junit(found, junit)
        if html is not None:
            from reprodb.cli.pages import single
            from reprodb.render.html import diff as page
            from reprodb.site import write_whole

            write_whole(html, page(found, single(store, found.candidate)))
    raise typer.Exit(found.exit_code)


def _judged(
    store: Store,
    baseline: str,
    candidate: str,
    policy: Path | None,
    ledger: Path | None,
    across: frozenset[str],
) -> Diff:
    from reprodb.cli.judging import earlier_results, ledger_at, load_references, policy_at
    from reprodb.review import review_night, review_runs

    now = datetime.now(UTC)
    left, right = store.resolve(baseline), store.resolve(candidate)
    if right.run_id is None:
        raise UsageError(
            f"the candidate cannot be {candidate!r}",
            allowed="`baseline` on the left: it is the reference of each row on the right",
            remedy=f"reprodb diff {candidate} {baseline}",
        )
    new = _side(store, right)
    rules = policy_at(policy)
    if left.run_id is None:
        if left.profile is not None:
            raise UsageError(
                f"{baseline!r} names a part of the baseline",
                allowed="`baseline` alone: each row has its own reference",
                remedy=f"reprodb diff baseline {candidate}",
            )
        blessings = ledger_at(ledger)
        references = load_references(store, new.run, new.results, blessings, now, before=new.run.id)
        return review_night(
            new,
            references,
            store.pattern,
            rules,
            now=now,
            across=across,
            earlier=earlier_results(store, new.run),
            ledger=blessings,
        )
    return review_runs(
        _side(store, left),
        new,
        store.pattern,
        rules,
        now=now,
        by_profile=not (left.profile and right.profile),
        by_kernel=not (left.kernel and right.kernel),
        across=across,
        earlier=earlier_results(store, new.run),
    )


def _side(store: Store, ref: RunRef) -> Side:
    from reprodb.compare import Side

    assert ref.run_id is not None  # noqa: S101 -- the composite was handled before
    found = store.results(ref.run_id, profile=ref.profile, kernel=ref.kernel)
    served = (r.kernel.composition for r in found if ref.kernel is not None)
    serials = {composition.serial for composition in served if composition is not None}
    beside = [r for serial in serials if serial is not None for r in store.results(ref.run_id, kernel=serial)]
    return Side(store.run(ref.run_id), found, tuple(beside))
