"""Databases to test against: SQLite files, and a real PostgreSQL that one session starts and stops."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprodb.store.opening import upgrade
from reprodb.store.postgresql import connect
from reprodb.store.sqlite import create
from reprodb.store.tables import METADATA
from tests.store import server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Callable[[], str]]:
    """Makes a new, empty database on each call; returns its URL."""
    with server.postgresql(server.CARELESS) as make:
        yield make


@pytest.fixture(scope="session")
def postgresql_url(postgresql: Callable[[], str]) -> str:
    """A database with the newest schema, which tests share: one takes half a second to make."""
    url = postgresql()
    upgrade(url)
    return url


def emptied(url: str) -> str:
    """The database without a row, its numbers beginning anew."""
    engine = connect(url, write=True)
    names = ", ".join(table.name for table in METADATA.sorted_tables)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY")
    engine.dispose()
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the newest schema and nothing in it."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    create(path)
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind that stores are opened on: `open_store(database, write=True)`."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "reprodb.db")
        return str(tmp_path / "reprodb.db")
    return emptied(request.getfixturevalue("postgresql_url"))
