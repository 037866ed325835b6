"""`check` finds every kind of damage that a database's own rules let through."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reprodb.domain import Artifact
from reprodb.errors import StoreError
from reprodb.store import open_store
from tests.builders import make_build, make_output, make_result
from tests.store.things import LATER, new_run

LARGE = bytes(range(256)) * 1000


@pytest.fixture
def made(database: str) -> str:
    """One run with a scalar, a churning output and a pattern of several pages."""
    artifact = Artifact(make_build(), ptx=".version 9.0", sass="FADD")
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        ids = store.record_many(
            run_id,
            [
                (make_result(), artifact),
                (make_result(["0x00000001", "0x00000002"] * 50, profile="churn"), None),
                (make_result(outputs=(make_output([LARGE] * 3, dtype="uint8"),), profile="large"), None),
            ],
        )
        store.accept(ids)
        store.finish(run_id, 0, LATER)
    return database


def test_what_is_whole_has_no_problem(made: str) -> None:
    with open_store(made) as store:
        assert store.check() == ()


# What is done, and what is said of it.
DAMAGE = {
    "pattern data": ("UPDATE patterns SET data = CAST('zzzz' AS {bytes}) WHERE id = 1", "other data"),
    "pattern size": ("UPDATE patterns SET size = 5 WHERE id = 1", "not as much as it says"),
    "pattern unkept": ("UPDATE patterns SET kept = {false} WHERE id = 1", "not as much as it says"),
    "page digests": ("UPDATE patterns SET pages = {cut} WHERE pages IS NOT NULL", "has not the pages"),
    "lost page": ("UPDATE blobs SET digest = CAST('x' AS {bytes}) WHERE size = 65536", "lacks its page"),
    "blob": ("UPDATE blobs SET data = CAST('xyz' AS {bytes}) WHERE id = 1", "does not inflate|has 0 bytes"),
    "case": ("UPDATE cases SET record = replace(record, '4194915', '4194916')", "cases row 1 .* digest"),
    "input": ("UPDATE cases SET input_digest = 'x'", "cases row 1 .* digest"),
    "build": ("UPDATE builds SET record = replace(record, 'sm_90', 'sm_75')", "builds row 1 .* digest"),
    "build text": ("UPDATE builds SET ptx_id = sass_id WHERE ptx_id IS NOT NULL", "builds row .* digest"),
    "environment": ("UPDATE environments SET record = '{{}}'", "environments row 1 .* digest"),
    "remark": ("UPDATE remarks SET record = '{{}}'", "remarks row 1 .* digest"),
    "layout": ("UPDATE layouts SET record = replace(record, 'float32', 'float64')", "layouts row .* digest"),
    "run hash": ("UPDATE outputs SET run_hash = CAST('12345678' AS {bytes}) WHERE result_id = 1", "run hash"),
    "sequence lost": ("UPDATE outputs SET sequence = NULL WHERE result_id = 2", "order of first appearance"),
    "sequence damaged": ("UPDATE outputs SET sequence = CAST('x' AS {bytes}) WHERE result_id = 2", "width"),
    "other pattern": ("UPDATE output_patterns SET pattern_id = 2 WHERE result_id = 1", "run hash"),
    "pattern lost": ("DELETE FROM output_patterns WHERE result_id = 2 AND number = 1", "first appearance"),
    "output lost": ("DELETE FROM output_patterns WHERE result_id = 1;"
                    "DELETE FROM outputs WHERE result_id = 1", "is ok and has no outputs"),
    "repetitions": ("UPDATE results SET repetitions = 99 WHERE id = 2", "100 bytes for 99 repetitions"),
    "scope": ("UPDATE scopes SET kernel = 'other' WHERE id = 1", "scope of another kernel"),
    "suite": ("UPDATE runs SET suite = 'other'", "scope of another kernel, case, lane or suite"),
    "kind of value": ("UPDATE patterns SET data = {odd} WHERE id = 1", "could not go on|other data"),
    "status": ("UPDATE results SET status = 'splendid' WHERE id = 1", "unknown status"),
    "time": ("UPDATE runs SET started_at = 'yesterday'", "run 1: .* cannot be read"),
    "acceptance": ("UPDATE results SET accepted = 5 WHERE id = 1", "another position"),
    "column": ("ALTER TABLE runs DROP COLUMN exit_code", "column runs.exit_code is missing"),
    "table": ("DROP TABLE withdrawals", "table withdrawals is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(made: str, name: str) -> None:
    statement, words = DAMAGE[name]
    with open_store(made, write=True) as store:
        sqlite = store.location.path is not None
        dialect = {
            "bytes": "BLOB" if sqlite else "BYTEA",
            "odd": "'text'" if sqlite else "'text'::bytea",
            "false": "0" if sqlite else "FALSE",
            "cut": "substr(pages, 1, 32)",
        }
        with store._engine.begin() as connection:
            for part in statement.format(**dialect).split(";"):
                connection.exec_driver_sql(part)
        problems = store.check()
        assert any(re.search(words, problem) for problem in problems), problems
        if not sqlite and name in ("column", "table"):
            # The tests share one database: put back what is part of it.
            with store._engine.begin() as connection:
                connection.exec_driver_sql(REPAIR[name])


REPAIR = {
    "column": "ALTER TABLE runs ADD COLUMN exit_code SMALLINT",
    "table": "CREATE TABLE withdrawals (blessing_id INTEGER NOT NULL CONSTRAINT pk_withdrawals PRIMARY KEY "
    "CONSTRAINT fk_withdrawals_blessing_id REFERENCES blessings (id), who TEXT NOT NULL, why TEXT NOT NULL, "
    "withdrawn_at VARCHAR(27) NOT NULL)",
}


def test_a_database_that_runs_things_of_its_own_is_told(made: str) -> None:
    with open_store(made, write=True) as store:
        path = store.location.path
    if path is None:
        return  # PostgreSQL's triggers belong to whoever runs the server
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM results; END")
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("UPDATE results SET case_id = 77 WHERE id = 1")
    with open_store(made) as store:
        problems = store.check()
    assert "trigger t is none of reprodb's" in problems
    assert any("cases does not have" in problem for problem in problems)


def test_damage_that_is_read_is_an_error_and_no_crash(made: str, tmp_path: Path) -> None:
    for statement in (
        "UPDATE results SET status = 'splendid'",
        "UPDATE cases SET record = '{'",
        "UPDATE results SET repetitions = 1000000000000 WHERE id = 1"
        if "://" not in made
        else "UPDATE results SET repetitions = 1000000000 WHERE id = 1",
        "UPDATE runs SET started_at = 'yesterday'",
    ):
        with open_store(made, write=True) as store:
            with store._engine.begin() as connection:
                connection.exec_driver_sql(statement)
            with pytest.raises(StoreError) as caught:
                store.results(1)
            assert caught.value.remedy == "reprodb db check"


def test_a_list_of_problems_ends(database: str) -> None:
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        store.record_many(run_id, [(make_result(profile=f"p{n}"), None) for n in range(150)])
        with store._engine.begin() as connection:
            connection.exec_driver_sql("UPDATE results SET accepted = 1")
        problems = store.check()
        assert len(problems) == 101
        assert "stopped after 100" in problems[-1]
