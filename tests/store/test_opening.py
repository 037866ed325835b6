"""What is opened, made, migrated or refused; a refused file is never touched."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from reprodb.errors import Exit, StoreError, UsageError
from reprodb.store import migrate, open_store
from reprodb.store.location import locate, redact
from reprodb.store.migrate import SCHEMA, Schema
from reprodb.store.opening import open_store as open_with
from reprodb.store.opening import upgrade
from reprodb.store.sqlite import network_file_system
from reprodb.store.tables import METADATA
from tests.builders import make_result
from tests.store.things import LATER, new_run


def make_database(path: Path) -> None:
    with open_store(str(path), write=True) as store:
        run_id = store.begin(new_run())
        store.record(run_id, make_result())
        store.finish(run_id, 0, LATER)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A database with one run, in a folder of its own."""
    path = tmp_path / "data" / "reprodb.db"
    path.parent.mkdir()
    make_database(path)
    return path


def names(folder: Path) -> list[str]:
    """What is in a folder: a test that something was left alone also looks for litter."""
    return sorted(path.name for path in folder.iterdir())


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


# --- Refused files -----------------------------------------------------------------------------


def _foreign(path: Path) -> None:
    path.unlink()
    sql(path, "CREATE TABLE runs (id INTEGER)")


def _cut(size: Callable[[int], int]) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size(path.stat().st_size))


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "directory": (_directory, "is not a file"),
    "pipe": (_pipe, "is not a file"),
    "empty": (_cut(lambda size: 0), "is empty"),
    "cut in its header": (_cut(lambda size: 50), "truncated"),
    "cut in half": (_cut(lambda size: size // 2), "truncated"),
    "cut by a byte": (_cut(lambda size: size - 1), "truncated"),
    "text": (lambda path: path.write_text("hello\n" * 100), "not a SQLite database"),
    "foreign": (_foreign, "another program's"),
    "two schemas": (
        lambda path: sql(path, "INSERT INTO reprodb_schema VALUES ('0002')"),
        "has schema '0001 and 0002', which",
    ),
    "newer schema": (
        lambda path: sql(path, "UPDATE reprodb_schema SET version_num = '9999'"),
        "newer one wrote",
    ),
    "no schema": (lambda path: sql(path, "DROP TABLE reprodb_schema"), "not a reprodb database"),
    "empty schema": (lambda path: sql(path, "DELETE FROM reprodb_schema"), "does not know"),
}


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_file_is_left_as_it_is(made: Path, name: str, write: bool) -> None:
    spoil, words = REFUSED[name]
    spoil(made)
    before = made.read_bytes() if made.is_file() else None
    with pytest.raises(StoreError, match=f"(?s){words}") as caught:
        open_store(str(made), write=write)
    assert str(made) in str(caught.value)
    assert caught.value.code is Exit.NO_ANSWER
    assert caught.value.remedy
    assert (made.read_bytes() if made.is_file() else None) == before
    assert names(made.parent) == [made.name]


def test_a_missing_database_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        open_store(str(tmp_path / "a.db"))
    with pytest.raises(StoreError, match="there is no database"):
        upgrade(str(tmp_path / "a.db"))
    with pytest.raises(StoreError, match="no folder"):
        open_store(str(tmp_path / "absent" / "a.db"), write=True)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="there is no database"):
        open_store(str(tmp_path / "broken"), write=True)
    assert names(tmp_path) == ["broken"]


def test_damage_inside_is_found_and_said(made: Path) -> None:
    data = bytearray(made.read_bytes())
    data[4096 * 2 : 4096 * 4] = b"\x5a" * 8192
    made.write_bytes(data)
    try:
        with open_store(str(made)) as store:
            problems = store.check()
    except StoreError as error:
        problems = (error.problem,)
    assert problems
    assert made.read_bytes() == data


# --- Rights ------------------------------------------------------------------------------------


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user without rights on other people's files: root may write everywhere, whatever the mode."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def public(made: Path) -> Iterator[Path]:
    """A database where other users may reach it."""
    with tempfile.TemporaryDirectory(prefix="reprodb-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(made, folder / "reprodb.db")
        (folder / "reprodb.db").chmod(0o444)
        yield folder / "reprodb.db"


def test_a_read_only_database_can_be_read_and_not_written(public: Path) -> None:
    before = public.read_bytes()
    with unprivileged():
        with open_store(str(public)) as store:
            assert len(store.results(1)) == 1
            assert store.check() == ()
            with tempfile.TemporaryDirectory() as own:
                store.backup(Path(own) / "copy.db")
                assert (Path(own) / "copy.db").stat().st_size >= public.stat().st_size
        with pytest.raises(StoreError, match="cannot be written"):
            open_store(str(public), write=True)
        with pytest.raises(StoreError, match="cannot be made"):
            open_store(str(public.with_name("new.db")), write=True)
    assert public.read_bytes() == before
    assert names(public.parent) == ["reprodb.db"]


def test_a_file_that_may_not_be_read(public: Path) -> None:
    public.chmod(0o000)
    with unprivileged(), pytest.raises(StoreError, match="cannot be read"):
        open_store(str(public))


def test_reading_changes_nothing(made: Path) -> None:
    before = made.read_bytes()
    with open_store(str(made)) as store:
        store.runs()
        with pytest.raises(StoreError, match="opened for reading"):
            store.begin(new_run(2))
    assert made.read_bytes() == before
    assert names(made.parent) == [made.name]


def test_a_database_that_cannot_be_written_whole_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full just then: what was committed did not get from the log into the file."""
    real = migrate.upgrade
    readers: list[sqlite3.Connection] = []

    def held(connection: Connection, schema: migrate.Schema) -> None:
        (file,) = tmp_path.glob(".*/new.db")
        readers.append(sqlite3.connect(file, isolation_level=None))
        readers[0].execute("BEGIN")
        readers[0].execute("SELECT count(*) FROM sqlite_master").fetchone()
        real(connection, schema)

    monkeypatch.setattr(migrate, "upgrade", held)
    with pytest.raises(StoreError, match=r"x.db cannot be made: \d+ of \d+ pages could not") as caught:
        open_store(str(tmp_path / "x.db"), write=True)
    assert "free some space" in caught.value.remedy
    readers[0].close()
    assert names(tmp_path) == []


# --- Where a database is -----------------------------------------------------------------------


def test_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRODB_DB", raising=False)
    assert locate(None).path == Path("reprodb.db")
    monkeypatch.setenv("REPRODB_DB", "nightly.db")
    assert locate(None).path == Path("nightly.db")
    assert locate("sqlite:///data/a.db").path == Path("data/a.db")
    assert locate("sqlite:////srv/a.db").path == Path("/srv/a.db")
    assert locate("postgresql://u@h/d").url == "postgresql+psycopg://u@h/d"
    odd = tmp_path / "a%20b #?.db"
    make_database(odd)
    assert names(tmp_path) == [odd.name]
    with open_store(str(odd)) as store:
        assert len(store.runs()) == 1


@pytest.mark.parametrize(
    "url",
    ["", " ", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///a.db?mode=rw",
     "mysql://u:secret@h/d", "postgresql+psycopg2://u:secret@h/d", "http://h", "a\0b"],
)  # fmt: skip
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["host=h password=secret dbname=d", "password = secret", "postgresql:/u:secret@h/d", "sqlite:/secret.db",
     "postgresql//u:secret@h/d", "Postgresql+psycopg:u:secret@h/d"],
)  # fmt: skip
def test_a_connection_string_that_is_no_url_is_no_new_file(text: str, tmp_path: Path) -> None:
    """As a path it would be an empty history of its own, with the password in its name."""
    with pytest.raises(UsageError, match="a connection string that is no URL") as caught:
        open_store(text, write=True)
    assert "secret" not in str(caught.value)
    assert locate(f"./{text}").path == Path(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@host:5432/db", "postgresql://ada:***@host:5432/db"),
        ("postgresql://ada:se@cr:e/t@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://host/db?user=ada&password=secret", "postgresql://host/db?user=ada&password=***"),
        ("postgresql://host/db?sslPassword=secret#x", "postgresql://host/db?sslPassword=***#x"),
        ("postgresql://ada@host/db", "postgresql://ada@host/db"),
        ("/srv/reprodb.db", "/srv/reprodb.db"),
    ],
)
def test_credentials_are_never_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:secret@127.0.0.1:1/db",
        "postgresql://ada:secret@127.0.0.1:port/db",
        "postgresql://127.0.0.1:1/db?user=ada&password=secret",
        "postgresql://127.0.0.1:1/db?nonsense=secret",
        "postgresql://ada:p@secret@127.0.0.1:1/db",
        "postgresql://ada:1/secret@127.0.0.1:1/db",
        "postgresql://ada:1?secret@127.0.0.1:1/db",
        "postgresql://ada:1#secret@127.0.0.1:1/db",
    ],
)
def test_errors_of_connecting_hold_no_credentials(url: str) -> None:
    with pytest.raises((StoreError, UsageError)) as caught:
        open_store(url)
    assert "secret" not in str(caught.value).replace("nonsense=secret", "")


def test_a_password_that_reads_as_a_host_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(UsageError, match=r"ada:\*\*\*@127.0.0.1/db' cannot be taken apart") as caught:
        locate("postgresql://ada:p@secret@127.0.0.1/db")
    assert "%40" in caught.value.remedy
    assert locate("postgresql:///db?user=a@b").url == "postgresql+psycopg:///db?user=a@b"


def test_network_file_systems_are_told_apart(tmp_path: Path) -> None:
    mounts = "\n".join(
        (
            "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
            f"22 21 0:40 / {tmp_path} rw - nfs4 server:/x rw",
            f"23 22 8:2 / {tmp_path}/local\\040disk rw - xfs /dev/sdb1 rw",
        )
    )
    assert network_file_system(Path("/srv/a.db"), mounts) is None
    assert network_file_system(tmp_path / "a.db", mounts) == "nfs4"
    assert network_file_system(tmp_path / "deeper" / "a.db", mounts) == "nfs4"
    assert network_file_system(tmp_path / "local disk" / "a.db", mounts) is None
    assert network_file_system(tmp_path / "a.db", "garbage") is None


def test_a_network_file_system_gets_no_wal_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    monkeypatch.setattr("reprodb.store.sqlite.network_file_system", lambda _: "nfs4")
    with open_store(str(path), write=True) as store:
        assert "network file system (nfs4)" in store.notes[0]
        store.begin(new_run())
        assert names(tmp_path) == ["a.db"]
    assert path.read_bytes()[18] == 1  # the header's write version: 2 is WAL


# --- Schemas -----------------------------------------------------------------------------------

SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("runs", sa.Column("mood", sa.Text))
    op.execute("UPDATE runs SET mood = 'calm'")
"""


@pytest.fixture
def next_schema(tmp_path: Path) -> Schema:
    """A schema one step ahead of ours."""
    folder = tmp_path / "versions"
    folder.mkdir()
    (folder / "r0002_mood.py").write_text(SECOND)
    return Schema((*SCHEMA.revisions, "0002"), (*SCHEMA.folders, folder))


def test_sqlite_migrates_itself_with_a_backup(made: Path, next_schema: Schema) -> None:
    before = made.read_bytes()
    with pytest.raises(StoreError, match=r"(?s)older schema 0001.*reprodb db upgrade --db") as caught:
        open_with(str(made), schema=next_schema)
    assert caught.value.code is Exit.NO_ANSWER
    assert made.read_bytes() == before
    with open_with(str(made), write=True, schema=next_schema) as store:
        assert "brought from schema 0001 to 0002" in store.notes[0]
        assert len(store.results(1)) == 1
        assert store.check() == ()
    backup = made.with_name("reprodb.db.0001-to-0002.backup")
    assert names(made.parent) == [made.name, backup.name]
    with open_store(str(backup)) as store:
        assert len(store.results(1)) == 1
    with pytest.raises(StoreError, match="newer one wrote"):
        open_store(str(made), write=True)
    assert upgrade(str(made), next_schema) == f"{made} has the newest schema, 0002"


def test_upgrade_says_what_it_did(made: Path, next_schema: Schema) -> None:
    assert "the backup is reprodb.db.0001-to-0002.backup" in upgrade(str(made), next_schema)


def test_a_migration_that_fails_leaves_all_as_it_was(made: Path, next_schema: Schema) -> None:
    script = next_schema.folders[1] / "r0002_mood.py"
    script.write_text(SECOND + '    op.execute("DROP TABLE nowhere")\n')
    with pytest.raises(StoreError, match="nowhere"):
        open_with(str(made), write=True, schema=next_schema)
    with open_store(str(made)) as store:
        assert store.check() == ()
    with closing(sqlite3.connect(made)) as connection:
        assert "mood" not in [row[1] for row in connection.execute("PRAGMA table_info(runs)")]


def test_many_processes_migrate_once(made: Path, next_schema: Schema) -> None:
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with open_with(str(made), write=True, schema=next_schema) as store:
                    code = 0 if len(store.results(1)) == 1 else 2
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert len([name for name in names(made.parent) if name.endswith(".backup")]) == 1


@pytest.mark.postgres
def test_postgresql_is_migrated_by_upgrade_only(postgresql: Callable[[], str], next_schema: Schema) -> None:
    url = postgresql()
    for write in (False, True):
        with pytest.raises(StoreError, match=r"(?s)no reprodb tables.*reprodb db upgrade"):
            open_store(url, write=write)
    assert "from schema none to 0001" in upgrade(url)
    assert "has the newest schema" in upgrade(url)
    with open_store(url, write=True) as store:
        store.begin(new_run())
    for write in (False, True):
        with pytest.raises(StoreError, match=r"(?s)older schema 0001.*reprodb db upgrade"):
            open_with(url, write=write, schema=next_schema)
    assert "from schema 0001 to 0002" in upgrade(url, next_schema)
    with pytest.raises(StoreError, match="newer one wrote"):
        open_store(url)
    with pytest.raises(StoreError, match="newer one wrote"):
        upgrade(url)


def test_migrations_make_the_tables_that_the_code_has(database: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    with open_store(database, write=True) as store, store._engine.connect() as connection:
        options = {"version_table": migrate.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []
    folder = SCHEMA.folders[0]
    script = ScriptDirectory(str(folder.parent), version_locations=[str(folder)])
    known = [revision.revision for revision in script.walk_revisions()]
    assert tuple(reversed(known)) == SCHEMA.revisions
