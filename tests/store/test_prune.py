"""Retention: what goes, what stays, and that nothing is left over of what went."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from reprodb.domain import Artifact
from reprodb.errors import UsageError
from reprodb.store import Pruned, open_store
from reprodb.store.store import Store
from reprodb.store.tables import METADATA
from tests.builders import STARTED, make_build, make_output, make_result
from tests.store.things import LATER, new_run


def night(
    store: Store, number: int, bits: str = "0x4b25426d", *, suite: str = "reprodb", accept: bool = False
) -> int:
    run_id = store.begin(new_run(number, suite=suite))
    build = make_build(toolchain=make_build().toolchain)
    ids = store.record_many(
        run_id,
        [
            (make_result([bits] * 100, build=build), Artifact(build, ptx=f"// {bits}", sass="FADD")),
            (make_result([bits, "0x00000000"] * 50, kernel="churning", error=bits), None),
        ],
    )
    if accept:
        store.accept(ids)
    store.finish(run_id, 0, LATER)
    return run_id


def counts(store: Store) -> dict[str, int]:
    """Rows of each table."""
    with store._engine.connect() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in METADATA.sorted_tables
        }


def test_runs_that_a_ledger_names_stay(database: str) -> None:
    """Blessed on another machine, the decision came with a commit: no table here has it."""
    with open_store(database, write=True) as store:
        runs = [night(store, number, f"0x{number:08x}") for number in range(1, 5)]
        named = (store.run(runs[1]).uid, "f" * 32)
        for dry in (True, False):
            pruned = store.prune(keep_runs=1, blessed=named, dry_run=dry)
            assert (pruned.runs, pruned.protected) == ((runs[0], runs[2]), (runs[1],))
        assert store.check() == ()


def test_old_runs_go_with_what_they_alone_held(database: str) -> None:
    with open_store(database, write=True) as store:
        night(store, 1, "0x00000001")
        night(store, 2, "0x00000002")
        before = counts(store)
        large = bytes(range(256)) * 1000
        run_id = store.begin(new_run(3))
        store.record(run_id, make_result(outputs=(make_output([large] * 2, dtype="uint8"),)))
        store.finish(run_id, 0, LATER)
        night(store, 4, "0x00000001")
        night(store, 5, "0x00000002")
        planned = store.prune(keep_runs=2, dry_run=True)
        assert planned == Pruned((1, 2, 3), (), 5, 1)
        assert len(store.runs()) == 5
        assert store.prune(keep_runs=2) == planned
        assert [run.id for run in store.runs()] == [5, 4]
        assert store.check() == ()
        after = counts(store)
        assert after == before  # the large pattern's pages, build texts and remarks went too
        assert store.prune(keep_runs=2) == Pruned((), (), 0, 0)
        # Numbers are never used twice.
        assert night(store, 6) == 6


def test_blessed_runs_and_references_stay(database: str) -> None:
    with open_store(database, write=True) as store:
        blessed, accepted = night(store, 1, "0x00000001"), night(store, 2, accept=True)
        for number in range(3, 7):
            night(store, number)
        (first, _) = store.results(blessed)
        assert first.id is not None
        (blessing,) = store.bless([first.id], who="ada", why="x", when=LATER)
        store.withdraw(blessing.id, who="ada", why="y", when=LATER)  # history stays all the same
        pruned = store.prune(keep_runs=1)
        assert pruned == Pruned((3, 4, 5), (blessed, accepted), 6, 0)
        assert [run.id for run in store.runs()] == [6, accepted, blessed]
        assert len(store.blessings()) == 1
        assert store.check() == ()


def test_each_suite_keeps_its_newest_and_age_protects(database: str) -> None:
    with open_store(database, write=True) as store:
        for number in range(1, 5):
            night(store, number)
            night(store, number + 10, suite="other")
        third_day = STARTED + timedelta(days=3)
        pruned = store.prune(keep_runs=1, older_than=third_day)
        assert {(run.suite, (run.started_at - STARTED).days) for run in store.runs()} == {
            *(("other", day) for day in (11, 12, 13, 14)),
            *(("reprodb", day) for day in (3, 4)),
        }
        assert len(pruned.runs) == 2
        assert store.prune(keep_runs=1).results == 8


def test_a_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(str(path), write=True) as store:
        run_id = store.begin(new_run(1))
        noise = random.Random(1).randbytes(3_000_000)
        store.record(run_id, make_result(outputs=(make_output([noise], dtype="uint8"),)))
        night(store, 2)
    assert path.stat().st_size > 3_000_000
    with open_store(str(path), write=True) as store:
        store.prune(keep_runs=1)
    assert path.stat().st_size < 500_000


def test_keeping_nothing_is_refused(database: str) -> None:
    with open_store(database, write=True) as store, pytest.raises(UsageError, match="keeping 0 runs"):
        store.prune(keep_runs=0)
