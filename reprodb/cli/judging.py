"""What `nightly` and `diff` share: policy, ledger and references in; the judged diff out, in every form."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reprodb.errors import StoreError

if TYPE_CHECKING:
    from reprodb.domain import Result, Run
    from reprodb.findings import Diff
    from reprodb.ledger import Ledger
    from reprodb.matrix import References
    from reprodb.policy import Policy
    from reprodb.store.store import Store

POLICY_FILE = Path("reprodb.toml")
LEDGER_FILE = Path("reprodb.lock")


def policy_at(path: Path | None) -> Policy:
    """The named policy file, else the folder's own where there is one, else the defaults."""
    from reprodb.policy import load_policy

    if path is None and POLICY_FILE.exists():
        path = POLICY_FILE
    return load_policy(path)


def ledger_at(path: Path | None) -> Ledger:
    """The named ledger, else the folder's own; an empty one where there is no file yet."""
    from reprodb.ledger import load_ledger

    return load_ledger(path or LEDGER_FILE)


def load_references(
    store: Store,
    run: Run,
    results: Iterable[Result],
    ledger: Ledger,
    now: datetime,
    *,
    everything: bool = False,
) -> References:
    """Each row's reference, from the ledger and from what was accepted before this run.

    With `everything` also the references of rows that the run does not have.
    """
    from reprodb.domain import scope_of
    from reprodb.review import references_of

    rows = tuple(results)
    scopes = [scope_of(run, row) for row in rows]
    if everything:
        scopes += [scope for scope in store.scopes(run) if scope not in set(scopes)]
    found = store.references(scopes, before=run.id, blessed=False)
    runs = {reference.run_id: store.run(reference.run_id) for reference in found.values()}
    accepted = {scope: (reference.result, runs[reference.run_id]) for scope, reference in found.items()}
    return references_of(run, rows, accepted, ledger, now)


def show_diff(diff: Diff, *, as_json: bool, quiet: bool) -> None:
    """The judged diff on standard output."""
    if as_json:
        from reprodb.render import json

        typer.echo(json.dumps(json.diff(diff)), nl=False)
    else:
        from reprodb.render import terminal

        terminal.diff(terminal.console(), diff, quiet=quiet)


def write_junit(diff: Diff, path: Path) -> None:
    from reprodb.render import junit

    write_text(path, junit.diff(diff))


def write_github(diff: Diff, environ: os._Environ[str] = os.environ) -> None:
    """Step summary and annotations, where GitHub runs the command."""
    if environ.get("GITHUB_ACTIONS") != "true":
        return
    from reprodb.render import github

    if summary := environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(github.summary(diff))
        except OSError as error:
            raise StoreError(f"the step summary {summary} cannot be written: {error.strerror}") from None
    for line in github.annotations(diff):
        typer.echo(line, err=True)


def write_text(path: Path, text: str) -> None:
    """A report's file, its folder made where it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}", remedy="name another place with --out or --html"
        ) from None
