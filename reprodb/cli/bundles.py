"""`reprodb export` and `reprodb import`: runs from one database into another, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprodb.cli.options import DatabaseOption
from reprodb.errors import UsageError

RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN…", help="Numbers, labels, latest, latest~N.")]
FileOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The bundle; an existing one is replaced.")
]
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Bundles that `export` wrote.")]


def export(runs: RunsArgument, output: FileOption, database: DatabaseOption = None) -> None:
    """Write runs with their results, patterns, builds and code texts into one file."""
    from reprodb.store import open_store
    from reprodb.store.bundles import export as write

    with open_store(database) as store:
        numbers = []
        for text in runs:
            found = store.resolve(text)
            if found.run_id is None or found.profile is not None:
                raise UsageError(
                    f"{text!r} is not a whole run", allowed="a run's number, label, latest, latest~N"
                )
            numbers.append(found.run_id)
        size = write(store, numbers, output)
        names = ", ".join(str(number) for number in dict.fromkeys(numbers))
        typer.echo(f"runs {names} of {store.location} are in {output} ({size} bytes)")
        for number in dict.fromkeys(numbers):
            if not store.run(number).complete:
                typer.echo(f"run {number} is incomplete", err=True)


def import_(files: FilesArgument, database: DatabaseOption = None) -> None:
    """Merge bundles into the database: again is no change, and their order does not matter.

    Nothing is imported if any of them fails a check, or says other bits than there are already.
    """
    from reprodb.render.text import count
    from reprodb.store import open_store
    from reprodb.store.bundles import checked, merge

    # Before the database is opened: a bundle that is refused must not have made one.
    with checked(files) as whole, open_store(database, write=True) as store:
        for note in store.notes:
            typer.echo(note, err=True)
        done = merge(store, whole)
        typer.echo(
            f"{store.location}: "
            f"{count(done.new_runs, 'new run')} with {count(done.new_results, 'new result')}; "
            f"{count(done.known_runs, 'run')} and {count(done.known_results, 'result')} were there already"
        )


def register(app: typer.Typer) -> None:
    app.command("export")(export)
    app.command("import")(import_)
