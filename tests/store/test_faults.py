"""Faults, provoked: killed processes, many writers, a full disk, locks, rows pruned under a writer's feet."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reprodb.errors import Exit, StoreError
from reprodb.store import open_store
from tests.builders import floats, make_output, make_result
from tests.store.things import LATER, new_run


def in_child(work: Callable[[], None]) -> int:
    """Starts `work` in a forked process; returns its process id. Exit code 1 where it raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def result(number: int) -> object:
    """Results that differ in all they hold, so that every table grows."""
    return make_result(
        profile=f"p{number}",
        outputs=(
            make_output([floats(number), floats(-number)] * 5),
            make_output([floats(*range(number, number + 500))] * 10, name="partials"),
        ),
        error=f"note {number}",
    )


@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_a_killed_process_leaves_whole_results_and_an_incomplete_run(database: str, rounds: int) -> None:
    """SIGKILL at random moments: what was acknowledged is there, nothing is there by half."""
    generator = random.Random(rounds)
    for number in range(1, rounds + 1):
        reader, writer = os.pipe()

        def record(number: int = number, writer: int = writer) -> None:
            with open_store(database, write=True) as store:
                run_id = store.begin(new_run(number))
                for count in range(1000):
                    store.record(run_id, result(count))  # type: ignore[arg-type]
                    os.write(writer, b".")

        child = in_child(record)
        os.close(writer)
        os.read(reader, 1)  # it has begun
        time.sleep(generator.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        assert exit_code(child) == -signal.SIGKILL
        acknowledged = 1
        while some := os.read(reader, 1 << 16):
            acknowledged += len(some)
        os.close(reader)

        with open_store(database, write=True) as store:
            run = store.run(number)
            assert not run.complete
            there = store.completed_rows(number)
            assert acknowledged <= len(there) <= acknowledged + 1
            if number in (1, rounds):
                assert store.check() == ()
            left = next(count for count in range(1001) if result(count).row not in there)  # type: ignore[attr-defined]
            assert left == len(there)
            store.record(number, result(left))  # type: ignore[arg-type]
            store.finish(number, 0, LATER)
    with open_store(database) as store:
        assert store.check() == ()
        assert all(run.complete for run in store.runs())


def test_a_reader_after_a_kill_sees_what_was_recorded(tmp_path: Path) -> None:
    """The write-ahead log of a dead process is read, not lost."""
    path = tmp_path / "a.db"
    with open_store(str(path), write=True):
        pass

    def record() -> None:
        store = open_store(str(path), write=True)
        store.record(store.begin(new_run()), make_result())
        os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(in_child(record)) == -signal.SIGKILL
    assert (tmp_path / "a.db-wal").stat().st_size
    with open_store(str(path)) as store:
        assert len(store.results(1)) == 1


@pytest.mark.parametrize("each", [10, pytest.param(1000, marks=pytest.mark.soak)])
def test_eight_writers_lose_nothing(database: str, each: int) -> None:
    def record(writer: int) -> None:
        with open_store(database, write=True) as store:
            run_id = store.begin(new_run(writer))
            for number in range(each):
                store.record(run_id, result(number))  # type: ignore[arg-type]
            store.finish(run_id, 0, LATER)

    children = [in_child(lambda writer=writer: record(writer)) for writer in range(1, 9)]  # type: ignore[misc]
    assert [exit_code(child) for child in children] == [0] * 8
    with open_store(database) as store:
        runs = store.runs()
        assert [len(store.results(run.id)) for run in runs if run.id is not None] == [each] * 8
        assert len({run.uid for run in runs}) == 8
        assert store.check() == ()


def test_eight_processes_make_one_database(tmp_path: Path) -> None:
    """All of them find no file at the same moment."""
    path = tmp_path / "a.db"
    barrier = multiprocessing.get_context("fork").Barrier(8)

    def begin(number: int) -> None:
        barrier.wait(20)
        with open_store(str(path), write=True) as store:
            store.begin(new_run(number))

    children = [in_child(lambda number=number: begin(number)) for number in range(1, 9)]  # type: ignore[misc]
    assert [exit_code(child) for child in children] == [0] * 8
    with open_store(str(path)) as store:
        assert len(store.runs()) == 8
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.db"]


def test_a_full_disk_costs_the_result_at_hand_alone(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: the system refuses the write itself."""
    path = tmp_path / "a.db"
    with open_store(str(path), write=True) as store:
        run_id = store.begin(new_run())
        store.record(run_id, result(0))  # type: ignore[arg-type]
    reader, writer = os.pipe()

    def record() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
        with open_store(str(path), write=True) as store:
            try:
                for number in range(1, 10_000):
                    store.record(run_id, result(number))  # type: ignore[arg-type]
            except StoreError as error:
                os.write(writer, str(error).encode())

    child = in_child(record)
    os.close(writer)
    said = os.read(reader, 4096).decode()
    os.close(reader)
    assert exit_code(child) == 0
    assert "remedy:" in said
    assert "free space" in said
    with open_store(str(path), write=True) as store:
        assert store.check() == ()
        there = len(store.results(run_id))
        assert there > 10
        store.record(run_id, result(there))  # type: ignore[arg-type]


def test_a_lock_that_stays_is_said_after_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprodb.store.sqlite.BUSY_SECONDS", 0.05)
    path = tmp_path / "a.db"
    with open_store(str(path), write=True) as store:
        run_id = store.begin(new_run())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            with pytest.raises(StoreError, match=r"(?s)locked.*another process is writing") as caught:
                store.record(run_id, make_result())
            assert time.monotonic() - began < 5
            assert caught.value.code is Exit.NO_ANSWER
            assert len(store.results(run_id)) == 0  # readers go on meanwhile
            other.execute("ROLLBACK")
        store.record(run_id, make_result())


def test_rows_pruned_by_another_process_are_made_again(database: str) -> None:
    """A writer remembers the numbers of what it stored; another process takes those rows away."""
    with open_store(database, write=True) as writer, open_store(database, write=True) as pruner:
        first = writer.begin(new_run(1))
        writer.record(first, result(7))  # type: ignore[arg-type]
        writer.finish(first, 0, LATER)
        second = writer.begin(new_run(2))
        assert pruner.prune(keep_runs=1).runs == (first,)
        writer.record(second, result(7))  # type: ignore[arg-type]
        assert pruner.results(second)[0].row == result(7).row  # type: ignore[attr-defined]
        assert writer.check() == ()
