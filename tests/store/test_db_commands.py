"""`db`, `export` and `import` as people call them: what they print and how they exit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprodb.cli.app import main
from reprodb.store import open_store
from tests.builders import make_result
from tests.store.things import LATER, new_run


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "reprodb.db"
    with open_store(str(path), write=True) as store:
        for number in (1, 2, 3):
            run_id = store.begin(new_run(number, label=f"night-{number}"))
            store.record(run_id, make_result())
            store.finish(run_id, 0, LATER)
        store.begin(new_run(4))
    return path


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """One command, in the folder that holds the database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPRODB_DB", raising=False)

    def call(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out = capsys.readouterr()
        return Done(int(ended.value.code or 0), out.out, out.err)

    return call


def test_check_upgrade_backup_and_prune(made: Path, run: Call) -> None:
    done = run("db", "check")
    assert (done.returncode, done.stdout) == (0, "reprodb.db is whole\n")
    assert run("db", "upgrade").stdout == "reprodb.db has the newest schema, 0001\n"
    done = run("db", "backup", "copy.db")
    assert done.stdout.startswith("reprodb.db was copied to copy.db")
    again = run("db", "backup", "copy.db")
    assert (again.returncode, again.stderr) == (
        4,
        "reprodb: copy.db exists already\nremedy: name another file\n",
    )
    with open_store(str(made.parent / "copy.db")) as store:
        assert len(store.runs()) == 4
    planned = run("db", "prune", "--keep-runs", "2", "--dry-run")
    assert planned.stdout == "2 runs would go, with 2 results and 0 patterns\nruns: 1, 2\n"
    done = run("db", "prune", "--keep-runs", "2")
    assert done.stdout == "2 runs went, with 2 results and 0 patterns\nruns: 1, 2\n"
    assert run("db", "prune", "--keep-runs", "0").returncode == 2


def test_backups_in_a_folder_go_when_there_are_enough(made: Path, tmp_path: Path, run: Call) -> None:
    folder = tmp_path / "elsewhere" / "backups"
    for _ in range(4):
        assert run("db", "backup", "--into", str(folder), "--keep", "2").returncode == 0
    newest = sorted(path.name for path in folder.iterdir())
    (folder / "notes.db").write_text("mine")
    (folder / "reprodb-20200101T000000000000Z.db").mkdir()
    done = run("db", "backup", "--into", str(folder), "--keep", "2")
    assert f"{folder / newest[0]} was removed: 2 newer ones are there" in done.stdout
    assert (folder / newest[1]).exists()
    assert (folder / "notes.db").read_text() == "mine"
    with open_store(str(folder / newest[1])) as store:
        assert (len(store.runs()), store.check()) == (4, ())
    for wrong in (("--keep", "2"), (), ("x.db", "--into", "y"), ("x.db", "--keep", "1")):
        assert run("db", "backup", *wrong).returncode == 2
    assert run("db", "backup", "--into", str(folder), "--db", "absent.db").returncode == 4


def test_a_damaged_database_is_exit_4(made: Path, run: Call) -> None:
    with closing(sqlite3.connect(made)) as connection, connection:
        connection.execute("UPDATE patterns SET data = CAST('zzzz' AS BLOB)")
    done = run("db", "check")
    assert done.returncode == 4
    assert "other data than its SHA-256 says" in done.stdout
    document = json.loads(run("db", "check", "--json").stdout)
    assert (document["schema"], document["ok"]) == ("reprodb.check/1", False)
    made.write_bytes(b"not a database at all" * 100)
    done = run("db", "check")
    assert done.returncode == 4
    assert done.stderr.startswith("reprodb: reprodb.db is not a SQLite database\nremedy: ")
    assert run("db", "check", "--db", "absent.db").returncode == 4


def test_export_and_import(made: Path, tmp_path: Path, run: Call) -> None:
    done = run("export", "latest", "night-1", "4", "-o", "nights.reprodb")
    assert done.stdout.startswith("runs 3, 1, 4 of reprodb.db are in nights.reprodb (")
    assert done.stderr == "run 4 is incomplete\n"
    done = run("import", "nights.reprodb", "--db", "other.db")
    assert done.stdout == (
        "other.db: 3 new runs with 2 new results; 0 runs and 0 results were there already\n"
    )
    again = run("import", "nights.reprodb", "nights.reprodb", "--db", "other.db")
    assert again.stdout == (
        "other.db: 0 new runs with 0 new results; 3 runs and 2 results were there already\n"
    )
    for wrong, code in (("baseline", 2), ("latest:default", 2), ("nights", 2)):
        assert run("export", wrong, "-o", "x.reprodb").returncode == code
    (tmp_path / "bad.reprodb").write_bytes(b"PK\3\4" + bytes(100))
    done = run("import", "bad.reprodb")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("reprodb: bundle bad.reprodb is not a bundle, or truncated\n")
    # A bundle that is refused, or not there, makes no database.
    for wrong_file in ("bad.reprodb", "absent.reprodb"):
        assert run("import", "nights.reprodb", wrong_file, "--db", "fresh.db").returncode == 4
        assert not (tmp_path / "fresh.db").exists()


def test_the_documented_query_and_tables(made: Path) -> None:
    """docs/database.md: its SQL runs and finds the bits, and it names every table."""
    from reprodb.store.tables import METADATA

    page = (Path(__file__).parents[2] / "docs" / "database.md").read_text(encoding="utf-8")
    for table in METADATA.sorted_tables:
        assert f"`{table.name}`" in page
    query = (
        page.partition("```sql\n")[2]
        .partition("```")[0]
        .replace("(SELECT id FROM runs ORDER BY position DESC LIMIT 1)", "3")
    )
    with closing(sqlite3.connect(made)) as connection:
        rows = connection.execute(query).fetchall()
    assert rows == [("sum_squares_tree", "default", "total", "0x4b25426d", "8189389FE1BC0A65")]


def test_credentials_stay_out_of_what_is_printed(run: Call) -> None:
    for command in (
        ("db", "check"),
        ("db", "upgrade"),
        ("import", "x.reprodb"),
        ("export", "latest", "-o", "x"),
    ):
        done = run(*command, "--db", "postgresql://ada:secret@127.0.0.1:1/db")
        assert done.returncode == 4
        assert "secret" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
