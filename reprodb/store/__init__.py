"""The database: SQLAlchemy tables, migrations, queries and bundles. Only dataclasses leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reprodb.store.values import Blessing, Pruned, Reference, RunRef

if TYPE_CHECKING:
    from reprodb.store.store import Store

__all__ = ["Blessing", "Pruned", "Reference", "RunRef", "check_label", "open_store"]


def open_store(url: str | None = None, *, write: bool = False, create: bool = True) -> Store:
    """The database at `url`: a file's path, `sqlite:///…` or `postgresql+psycopg://…`.

    None means REPRODB_DB, else `reprodb.db` in the current folder. Opened for writing, a missing SQLite
    file is made where `create` allows it, and an older schema migrated; opened for reading, nothing is ever
    altered.
    Raises StoreError with path and remedy where the database is missing, damaged, foreign or newer.
    """
    from reprodb.store.opening import open_store as opening

    return opening(url, write=write, create=create)


def check_label(label: str) -> None:
    """Raises UsageError for a label that no run may have."""
    from reprodb.store.refs import check_label as check

    check(label)
