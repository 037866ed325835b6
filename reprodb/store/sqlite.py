"""A SQLite file: what it must look like before it is touched, how it is made, connected, copied."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from reprodb.errors import StoreError
from reprodb.store import migrate

APPLICATION_ID = 0x72706462  # "rpdb", in the file's header: tells our files from other programs'
BUSY_SECONDS = 10.0  # how long SQLite waits for a lock before it is tried again
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
# File systems whose locks WAL cannot live on: it needs memory shared by all processes of one machine.
NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre",
     "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf", "virtiofs")
)  # fmt: skip


# --- Before it is touched ----------------------------------------------------------------------


def check_file(path: Path, *, write: bool) -> None:
    """Refuses what is not a whole SQLite file of ours, without opening it as a database.

    Raises StoreError with path and remedy; the file is left as it is.
    """
    other = "name another file with --db; this one was left as it is"
    try:
        kind = path.stat()
    except FileNotFoundError:
        raise StoreError(
            f"there is no database {path}",
            remedy="record a run first (reprodb run), or name another file",
        ) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}", remedy="name another file") from None
    if not stat.S_ISREG(kind.st_mode):
        raise StoreError(f"{path} is not a file", remedy="name a file with --db")
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}", remedy="make it readable") from None
    if not header:
        raise StoreError(f"{path} is empty, which no database is", remedy="delete it or restore a backup")
    if not header.startswith(_MAGIC[: len(header)]):
        raise StoreError(f"{path} is not a SQLite database", remedy=other)
    if len(header) < _HEADER_BYTES:
        raise _truncated(path)
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(f"{path} is another program's SQLite database", remedy=other)
    if not _has_journal(path):
        page = int.from_bytes(header[16:18], "big")
        pages = int.from_bytes(header[28:32], "big")
        if kind.st_size < pages * (65536 if page == 1 else page):
            raise _truncated(path)
    if write and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise StoreError(
            f"{path} cannot be written: file or folder is read-only",
            remedy="make file and folder writable, or name another with --db",
        )


def _truncated(path: Path) -> StoreError:
    return StoreError(f"{path} is truncated: it ends before its last page", remedy="restore a backup")


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _has_journal(path: Path) -> bool:
    """Whether a write is under way or was interrupted: then the file alone does not tell the whole state."""
    for suffix in ("-wal", "-journal"):
        with suppress(OSError):
            if _beside(path, suffix).stat().st_size:
                return True
    return False


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """The type of the network file system that the path lies on, None on a local one.

    `mounts` is the text of /proc/self/mountinfo, read where it is not given.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    folder = path.resolve().parent
    found, depth = "", -1
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        point = Path(fields[4].encode().decode("unicode_escape"))
        if (point == folder or point in folder.parents) and len(point.parts) >= depth:
            found, depth = after.split()[0], len(point.parts)
    return found if found in NETWORK else None


# --- Making and connecting ---------------------------------------------------------------------


def create(path: Path, schema: migrate.Schema = migrate.SCHEMA) -> None:
    """A new, empty database at `path`; whichever process is first makes it, and no one sees half of it."""
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent} for {path.name}", remedy="make the folder first")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            new = Path(folder) / "new.db"
            engine = connect(new, write=True)
            try:
                with engine.begin() as connection:
                    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                    migrate.upgrade(connection, schema)
                _settle(engine)
            finally:
                engine.dispose()
            with new.open("rb") as file:
                os.fsync(file.fileno())
            try:
                os.link(new, path)
            except FileExistsError:
                return
            except OSError:  # a file system without links
                if not path.exists():
                    new.rename(path)
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} cannot be made: {error}", remedy="free some space, or name another"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be made: {error.strerror}",
            remedy="make its folder writable, or name another with --db",
        ) from None


def _settle(engine: Engine) -> None:
    """All that was committed into the file itself: the log beside it stays behind when the file moves.

    Closing would do it too, and say nothing where the disk is full. Raises sqlite3.Error.
    """
    with engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        ((_, frames, moved),) = cursor.fetchall()
        if frames != moved:
            raise sqlite3.OperationalError(f"{frames - moved} of {frames} pages could not be written")


def _writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def _read_only(path: Path) -> str:
    """The mode to read a file in. WAL needs a file beside it, which a read-only folder cannot have."""
    return "ro" if _writable(path) or _has_journal(path) else "ro&immutable=1"


def connect(path: Path, *, write: bool) -> Engine:
    """An engine on the file. It never makes one; opened for reading it refuses every change."""
    network = network_file_system(path) is not None
    mode = "rwc" if write and not path.exists() else "rw" if _writable(path) else _read_only(path)
    address = f"{path.absolute().as_uri()}?mode={mode}"

    def dial() -> sqlite3.Connection:
        return sqlite3.connect(
            address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )

    engine = create_engine("sqlite+pysqlite://", creator=dial, poolclass=QueuePool, pool_size=1)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA trusted_schema = OFF")  # a database from elsewhere runs nothing of its own
        cursor.execute("PRAGMA cache_size = -32768")
        if write:
            cursor.execute(f"PRAGMA journal_mode = {'DELETE' if network else 'WAL'}")
            cursor.execute(f"PRAGMA synchronous = {'FULL' if network else 'NORMAL'}")
        else:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its lock at once: two that had read first could never both go on.
        writing = write and connection.get_execution_options().get("reprodb_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


# --- Copies ------------------------------------------------------------------------------------


def copy(path: Path, target: Path) -> None:
    """A consistent copy while others read and write, whole or not at all; never over an existing file."""
    if not target.parent.is_dir():
        raise StoreError(f"there is no folder {target.parent}", remedy="make the folder first")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            new = Path(folder) / "copy.db"
            source = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={_read_only(path)}", uri=True, timeout=BUSY_SECONDS
            )
            with closing(source), closing(sqlite3.connect(new)) as copied:
                source.backup(copied)
                copied.execute("PRAGMA journal_mode = DELETE")
                problem = copied.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise StoreError(f"the copy of {path} is damaged: {problem}", remedy="reprodb db check")
            with new.open("rb") as file:
                os.fsync(file.fileno())
            try:
                os.link(new, target)
            except FileExistsError:
                raise StoreError(f"{target} exists already", remedy="name another file") from None
            except OSError:
                if target.exists():
                    raise StoreError(f"{target} exists already", remedy="name another file") from None
                new.rename(target)
    except sqlite3.Error as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE):
            raise StoreError(
                f"{target} cannot be made: {error}", remedy="free some space, or name another file"
            ) from None
        raise StoreError(f"{path} cannot be copied: {error}", remedy="reprodb db check") from None
    except OSError as error:
        raise StoreError(f"{target} cannot be made: {error.strerror}", remedy="name another file") from None


def backup_before(path: Path, old: str, new: str) -> Path:
    """The copy that is made before a migration, under a name of its own: `reprodb.db.0001-to-0002.backup`."""
    number = 0
    while True:
        target = _beside(path, f".{old}-to-{new}{f'-{number}' if number else ''}.backup")
        if not target.exists():
            copy(path, target)
            return target
        number += 1
