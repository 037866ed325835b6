"""Opening a database: found, checked, made or migrated where that is allowed, never altered by a reader."""

from __future__ import annotations

from sqlalchemy import Engine

from reprodb.errors import StoreError
from reprodb.store import migrate, postgresql, sqlite
from reprodb.store.faults import translated
from reprodb.store.location import Location, locate
from reprodb.store.migrate import SCHEMA, Schema
from reprodb.store.store import Store


def open_store(
    url: str | None, *, write: bool = False, create: bool = True, schema: Schema = SCHEMA
) -> Store:
    """See reprodb.store.open_store."""
    location = locate(url)
    notes: list[str] = []
    if location.path is not None:
        if write and create and not location.path.exists() and not location.path.is_symlink():
            with translated(location):
                sqlite.create(location.path, schema)
        kind = sqlite.network_file_system(location.path)
        if write and kind is not None:
            notes.append(
                f"{location} is on a network file system ({kind}): its locks are slow and may fail. "
                "Keep to one writing process, or use PostgreSQL for several machines"
            )
    engine = connect(location, write=write)
    try:
        with translated(location):
            with engine.connect().execution_options(reprodb_write=False) as connection:
                found = migrate.version(connection)
            if migrate.check_version(_known(location, found), schema, str(location)):
                if not write or location.path is None:
                    raise migrate.too_old(found or "", schema, str(location))
                notes += _migrate_file(location, engine, schema)
    except BaseException:
        engine.dispose()
        raise
    return Store(location, engine, write=write, notes=tuple(notes))


def connect(location: Location, *, write: bool) -> Engine:
    """An engine on an existing database, its file checked first."""
    if location.path is None:
        return postgresql.connect(location.url or "", write=write)
    sqlite.check_file(location.path, write=write)
    return sqlite.connect(location.path, write=write)


def _known(location: Location, found: str | None) -> str | None:
    if found is None and location.path is None:
        raise StoreError(
            f"{location} has no reprodb tables yet", remedy=f"reprodb db upgrade --db {location}"
        )
    return found


def _migrate_file(location: Location, engine: Engine, schema: Schema) -> list[str]:
    """Migrates a SQLite file in one transaction, under the lock of its writers, with a backup beside it."""
    path = location.path
    assert path is not None  # noqa: S101 -- PostgreSQL never comes here
    with engine.begin() as connection:
        found = migrate.version(connection)
        if not migrate.check_version(found, schema, str(location)):
            return []  # another process was first
        copied = sqlite.backup_before(path, found or "", schema.head)
        migrate.upgrade(connection, schema)
    return [f"{location} was brought from schema {found} to {schema.head}; the backup is {copied.name}"]


def upgrade(url: str | None, schema: Schema = SCHEMA) -> str:
    """Brings a database to the newest schema, an empty PostgreSQL database included; says what was done."""
    location = locate(url)
    if location.path is not None:
        sqlite.check_file(location.path, write=True)  # a missing file is an error here, not a new database
        with open_store(url, write=True, schema=schema) as store:
            return store.notes[-1] if store.notes else f"{location} has the newest schema, {schema.head}"
    engine = connect(location, write=True)
    try:
        with translated(location), engine.begin() as connection:
            found = migrate.version(connection)
            if found is not None and not migrate.check_version(found, schema, str(location)):
                return f"{location} has the newest schema, {schema.head}"
            migrate.upgrade(connection, schema)
    finally:
        engine.dispose()
    return f"{location} was brought from schema {found or 'none'} to {schema.head}"
