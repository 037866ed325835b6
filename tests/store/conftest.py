"""Databases to test against: SQLite files, and a real PostgreSQL that one session starts and stops."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprodb.store.opening import upgrade
from reprodb.store.postgresql import connect
from reprodb.store.sqlite import create
from reprodb.store.tables import Base

PACKAGE = "PostgreSQL's server programs are missing: install Debian's package postgresql-15"


def server_program(name: str) -> str:
    """The newest installed server program, for Debian keeps them off the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which(name)
    if found is None:
        pytest.fail(PACKAGE)
    return found


def _as_server_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root: then the package's own user runs it."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *command]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Callable[[], str]]:
    """Makes a new, empty database on each call; returns its URL. The server listens on a socket alone."""
    initdb, server = server_program("initdb"), server_program("pg_ctl")
    # A short path: a socket's name has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="reprodb-pg-", dir="/tmp") as folder:
        root = Path(folder)
        if os.geteuid() == 0:
            shutil.chown(root, "postgres", "postgres")
        data = root / "data"

        def run(*command: str) -> None:
            done = subprocess.run(
                _as_server_user(list(command)), cwd=root, capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.fail(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

        run(initdb, "-D", str(data), "-U", "reprodb", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = (
            f"-c listen_addresses='' -k {root} -c fsync=off -c full_page_writes=off -c max_connections=60"
        )
        run(server, "-D", str(data), "-l", str(root / "log"), "-o", options, "-w", "start")

        def make() -> str:
            from psycopg import connect, sql

            name = f"t{uuid.uuid4().hex}"
            with connect(host=str(root), user="reprodb", dbname="postgres", autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            return f"postgresql+psycopg://reprodb@/{name}?host={root}"

        try:
            yield make
        finally:
            run(server, "-D", str(data), "-m", "immediate", "-w", "stop")


@pytest.fixture(scope="session")
def postgresql_url(postgresql: Callable[[], str]) -> str:
    """A database with the newest schema, which tests share: one takes half a second to make."""
    url = postgresql()
    upgrade(url)
    return url


def emptied(url: str) -> str:
    """The database without a row, its numbers beginning anew."""
    engine = connect(url, write=True)
    names = ", ".join(table.name for table in Base.metadata.sorted_tables)
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
