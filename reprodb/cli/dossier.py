"""`reprodb dossier`: a toolkit upgrade on one page, all kernels, the old toolchain beside the new one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import DatabaseOption, JsonOption, PolicyOption, QuietOption
from reprodb.errors import UsageError

if TYPE_CHECKING:
    from reprodb.domain import Result, Run
    from reprodb.dossier import Dossier
    from reprodb.policy import Policy
    from reprodb.store.store import Store
    from reprodb.store.values import RunRef


def register(app: typer.Typer) -> None:
    app.command("dossier")(dossier)


def dossier(
    before: Annotated[
        str, typer.Argument(metavar="A", help="The old toolchain: id, label, latest~N; RUN:PROFILE picks.")
    ] = "latest",
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]", help="The new one, likewise; without it, the toolkits inside run A are paired."
        ),
    ] = None,
    *,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Where the page goes; reports/ by default.")
    ] = None,
    policy: PolicyOption = None,
    db: DatabaseOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Tell what a toolkit upgrade does to every kernel, on one page.

    One run: profiles that differ in their toolkit alone (cuda12 → default). Two runs: the profiles that both
    have. RUN:PROFILE on both sides: those two. Exits as diff does.
    """
    from reprodb.cli.judging import policy_at
    from reprodb.cli.pages import single
    from reprodb.render import json, terminal
    from reprodb.render.html import dossier as page
    from reprodb.site import write_whole
    from reprodb.store import open_store

    with open_store(db) as store:
        left = store.resolve(before)
        right = store.resolve(after) if after is not None else replace(left, profile=None)
        found = _dossier(store, left, right, policy_at(policy))
        if html is None:
            html = Path("reports") / f"dossier-{_name(left)}-{_name(right)}.html"
        write_whole(html, page(found, single(store, found.candidate)))
    if as_json:
        typer.echo(json.dumps(json.dossier(found)), nl=False)
    else:
        terminal.dossier(terminal.console(), found, quiet=quiet)
        typer.echo(f"report: {html}", err=True)
    raise typer.Exit(found.exit_code)


def _name(ref: RunRef) -> str:
    from reprodb.site import slug

    return slug(f"{ref.run_id}-{ref.profile}" if ref.profile else str(ref.run_id))


def _dossier(store: Store, left: RunRef, right: RunRef, policy: Policy) -> Dossier:
    from reprodb.cli.judging import earlier_results
    from reprodb.compare import Side
    from reprodb.dossier import common_profiles, dossier, natural_pairs

    if left.run_id is None or right.run_id is None:
        raise UsageError(
            "baseline is each row's own reference, of several toolchains",
            allowed="a run's number, label, latest, latest~N, each with :PROFILE or without",
        )
    old = Side(store.run(left.run_id), store.results(left.run_id, kernel=left.kernel))
    new = Side(store.run(right.run_id), store.results(right.run_id, kernel=right.kernel))
    if left.profile is not None and right.profile is not None:
        pairs: tuple[tuple[str, str], ...] = ((left.profile, right.profile),)
    elif left.run_id == right.run_id:
        named = {left.profile, right.profile} - {None}
        pairs = tuple(pair for pair in natural_pairs(new.results) if named <= set(pair))
    else:
        named = {left.profile, right.profile} - {None}
        pairs = tuple(pair for pair in common_profiles(old, new) if named <= set(pair))
    return dossier(
        old,
        new,
        pairs,
        store.pattern,
        policy,
        now=datetime.now(UTC),
        earlier=earlier_results(store, new.run),
    )


def upgrade_of(store: Store, run: Run, results: tuple[Result, ...]) -> Dossier | None:
    """The dossier of the toolkits inside one run, under its own policy; None where no two belong together."""
    from reprodb.cli.judging import earlier_results, policy_then
    from reprodb.compare import Side
    from reprodb.dossier import dossier, natural_pairs

    pairs = natural_pairs(results)
    if not pairs:
        return None
    side = Side(run, results)
    return dossier(
        side,
        side,
        pairs,
        store.pattern,
        policy_then(run)[0],
        now=run.finished_at or run.started_at,
        earlier=earlier_results(store, run),
    )
