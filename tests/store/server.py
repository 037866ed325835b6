"""A real PostgreSQL server of its own, for as long as a `with` lasts: tests and benchmarks start it here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = "PostgreSQL's server programs are missing: install Debian's package postgresql-15"
# What a test need not survive: a crash of the machine.
CARELESS = "-c fsync=off -c full_page_writes=off"


def _program(name: str) -> str:
    """The newest installed server program, for Debian keeps them off the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which(name)
    if found is None:
        raise RuntimeError(PACKAGE)
    return found


def _as_server_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root: then the package's own user runs it."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *command]


@contextmanager
def postgresql(options: str = "") -> Iterator[Callable[[], str]]:
    """Makes a new, empty database on each call; returns its URL. The server listens on a socket alone.

    Raises RuntimeError with what the server said where it does not start.
    """
    initdb, control = _program("initdb"), _program("pg_ctl")
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
                raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

        run(initdb, "-D", str(data), "-U", "reprodb", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        listening = f"-c listen_addresses='' -k {root} -c max_connections=60 {options}"
        run(control, "-D", str(data), "-l", str(root / "log"), "-o", listening, "-w", "start")

        def make() -> str:
            from psycopg import connect, sql

            name = f"t{uuid.uuid4().hex}"
            with connect(host=str(root), user="reprodb", dbname="postgres", autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            return f"postgresql+psycopg://reprodb@/{name}?host={root}"

        try:
            yield make
        finally:
            run(control, "-D", str(data), "-m", "immediate", "-w", "stop")
