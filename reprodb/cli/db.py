"""`reprodb db`: check, upgrade, back up and prune a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from reprodb.cli.options import DatabaseOption, JsonOption, LedgerOption
from reprodb.errors import Exit, UsageError

SCHEMA = "reprodb.check/1"


def check(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Read everything and recompute every digest, hash and sequence; exit 4 where anything is wrong."""
    from reprodb.render.text import count
    from reprodb.store import open_store

    with open_store(database) as store:
        problems = store.check()
        name = str(store.location)
    if as_json:
        import json

        document = {"schema": SCHEMA, "database": name, "ok": not problems, "problems": problems}
        typer.echo(json.dumps(document, indent=2))
    elif problems:
        for problem in problems:
            typer.echo(problem)
        typer.echo(
            f"{name} is damaged: {count(len(problems), 'problem')}. Restore a backup; nothing was changed."
        )
    else:
        typer.echo(f"{name} is whole")
    if problems:
        raise typer.Exit(int(Exit.NO_ANSWER))


def upgrade(database: DatabaseOption = None) -> None:
    """Bring a database to this reprodb's schema. SQLite gets a backup beside it; PostgreSQL its tables."""
    from reprodb.store.opening import upgrade as bring_up

    typer.echo(bring_up(database))


def backup(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The copy; it must not exist yet.")
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FOLDER", help="Instead: a file named by the time in it.")
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="With --into: only the newest N of those."),
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Copy a SQLite database while others read and write it."""
    from reprodb.store import open_store
    from reprodb.store.backups import name_at, rotate

    if (file is None) == (into is None) or (keep is not None and into is None):
        raise UsageError("it is not clear where the copy goes", allowed="FILE, or --into FOLDER [--keep N]")
    with open_store(database) as store:
        if into is not None:
            into.mkdir(parents=True, exist_ok=True)
            file = into / name_at(datetime.now(UTC))
        assert file is not None  # noqa: S101 -- one of the two was given
        store.backup(file)
        typer.echo(f"{store.location} was copied to {file} ({file.stat().st_size} bytes)")
    if into is not None and keep is not None:
        for gone in rotate(into, keep):
            typer.echo(f"{gone} was removed: {keep} newer ones are there")


def prune(
    keep_runs: Annotated[
        int, typer.Option("--keep-runs", metavar="N", min=1, help="The newest runs of each suite stay.")
    ],
    older_than: Annotated[
        int | None, typer.Option("--older-than", metavar="DAYS", min=0, help="And all that began since then.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    ledger: LedgerOption = None,
    database: DatabaseOption = None,
) -> None:
    """Drop old runs, and what they alone held. Blessed runs, and those with a reference, always stay.

    Blessed is what the database or the ledger says.
    """
    from reprodb.cli.judging import ledger_at
    from reprodb.store import open_store

    blessed = {blessing.run for blessing in ledger_at(ledger).blessings}
    since = None if older_than is None else datetime.now(UTC) - timedelta(days=older_than)
    with open_store(database, write=not dry_run) as store:
        pruned = store.prune(keep_runs=keep_runs, older_than=since, dry_run=dry_run, blessed=blessed)
        verb = "would go" if dry_run else "went"
        typer.echo(
            f"{len(pruned.runs)} runs {verb}, with {pruned.results} results and {pruned.patterns} patterns"
        )
        if pruned.runs:
            typer.echo(f"runs: {', '.join(map(str, pruned.runs))}")
        if pruned.protected:
            typer.echo(f"kept as blessed or as a reference: {', '.join(map(str, pruned.protected))}")


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Check, upgrade, back up and prune the database.", no_args_is_help=True)
    group.command("check")(check)
    group.command("upgrade")(upgrade)
    group.command("backup")(backup)
    group.command("prune")(prune)
    app.add_typer(group, name="db")
