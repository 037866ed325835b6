"""`reprodb baselines`: what is blessed, by whom and why; and taking a blessing back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.bless import ReasonOption, WhoOption
from reprodb.cli.options import DatabaseOption, JsonOption, LedgerOption

if TYPE_CHECKING:
    from reprodb.ledger import Blessing
    from reprodb.store.store import Store


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List what is blessed; withdraw a blessing.", invoke_without_command=True)
    group.callback()(baselines)
    group.command("withdraw")(withdraw)
    group.command("merge")(merge)
    app.add_typer(group, name="baselines")


def baselines(
    context: typer.Context,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what was replaced, withdrawn or retired, or has expired.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the blessed bits of reprodb.lock."""
    if context.invoked_subcommand is not None:
        return
    from reprodb.cli.judging import LEDGER_FILE, ledger_at
    from reprodb.render import decisions, terminal
    from reprodb.render.json import dumps

    path = ledger or LEDGER_FILE
    found, now = ledger_at(path), datetime.now(UTC)
    if as_json:
        typer.echo(dumps(decisions.baselines_record(found, path, now, everything=everything)), nl=False)
    else:
        decisions.baselines(terminal.console(), found, path, now, everything=everything)


def withdraw(
    blessing: Annotated[str, typer.Argument(metavar="ID", help="A blessing's id, or the start of it.")],
    *,
    reason: ReasonOption,
    who: WhoOption = None,
    ledger: LedgerOption = None,
    database: DatabaseOption = None,
) -> None:
    """Take a blessing back: what was the baseline before it is so again. Its record stays."""
    from reprodb.cli.judging import LEDGER_FILE, ledger_at
    from reprodb.cli.sealing import decider, sealed
    from reprodb.store import open_store

    path, by = ledger or LEDGER_FILE, decider(who)
    before = ledger_at(path)
    after = before.withdraw(blessing, who=by, why=reason, now=datetime.now(UTC))
    record = after.withdrawals[-1]
    taken = next(b for b in after.blessings if b.id == record.blessing)
    with sealed(path, before, after) as seal:
        if not _exists(database):
            seal()
        else:
            with open_store(database, write=True) as store:
                number = _number(store, taken)
                if number is None:
                    seal()
                else:
                    store.withdraw(number, who=record.who, why=record.why, when=record.when, seal=seal)
    scope = taken.scope
    typer.echo(f"withdrawn: {taken.id}, {scope.kernel} {scope.case} ({scope.profile}, {scope.arch}); {path}")


def merge(ledger: LedgerOption = None) -> None:
    """Resolve a merge conflict in reprodb.lock: keep what either side decided."""
    from reprodb.cli.judging import LEDGER_FILE
    from reprodb.errors import StoreError, UsageError
    from reprodb.ledger import merge_ledger

    path = ledger or LEDGER_FILE
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"ledger {path} cannot be read: {why}", remedy="check the path") from None
    merged = merge_ledger(text, str(path))
    if merged.text() != text:
        try:
            merged.save(path)
        except OSError as error:
            raise StoreError(f"the ledger {path} cannot be written: {error.strerror}") from None
    count = len(merged.blessings)
    typer.echo(f"{path}: {count:,} blessing{'s' * (count != 1)}, of both sides; now git add {path}")


def _exists(database: str | None) -> bool:
    """Whether there is a database: the ledger alone is enough to withdraw."""
    from reprodb.store.location import locate

    location = locate(database)
    return location.path is None or location.path.exists()


def _number(store: Store, blessing: Blessing) -> int | None:
    """The number that this database's history gives the blessing, if it has it."""
    for known in store.blessings(blessing.scope):
        if known.run_uid == blessing.run and known.when == blessing.when and known.withdrawn_at is None:
            return known.id
    return None
