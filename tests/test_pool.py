"""The pool: one result is lost to a crash, a hang or a sticky error, and never the run."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprodb.domain import Accuracy, Status
from reprodb.errors import ExecutionError
from reprodb.executors.base import ExecutorOptions
from reprodb.executors.pool import TAIL_BYTES, Limits, Pool, worker_environment
from reprodb.executors.task import Outcome, Task
from tests.executors.things import a_kernel, an_artifact

FAKE = "tests.executors.fake_worker"


def task(operation: str = "sum", *, seed: int = 0, repetitions: int = 3, name: str = "sum") -> Task:
    return Task(an_artifact(), a_kernel(operation, name=name), repetitions, seed)


def open_pool(workers: int = 1, timeout: float = 20.0, name: str = "scripted", start: float = 30.0) -> Pool:
    options = ExecutorOptions(name)
    return Pool(options, workers=workers, limits=Limits(timeout, start), module=FAKE)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """One pool for the tests that may share it, as a run's results share theirs."""
    with open_pool() as opened:
        yield opened


def one(pool: Pool, operation: str, *, seed: int = 0) -> Outcome:
    (outcome,) = pool.run([task(operation, seed=seed)])
    return outcome


def process_of(outcome: Outcome) -> int:
    return int(outcome.notes[0].removeprefix("pid "))


def gone(process: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_an_outcome_has_patterns_accuracy_and_input_digest(pool: Pool) -> None:
    outcome = one(pool, "churn", seed=7)
    assert outcome.status is Status.OK
    (total,) = outcome.outputs
    assert [p.data for p in total.patterns] == [b"\7\0\0\0", b"\x08\0\0\0", b"\x09\0\0\0"]
    assert (total.sequence, total.first_bits) == ((0, 1, 2), "0x00000007")
    assert outcome.accuracy.verdict is Accuracy.UNKNOWN  # the case names no reference

    assert len(outcome.input_digest) == 64


def test_a_limit_of_many_years_is_a_limit_too() -> None:
    """The system's own call refuses to wait longer than some weeks."""
    with open_pool(timeout=1e9) as pool:
        assert one(pool, "sum").status is Status.OK


def test_a_healthy_worker_is_reused(pool: Pool) -> None:
    assert len({process_of(one(pool, "sum")) for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("operation", "status", "words"),
    [
        ("refuse", Status.UNSUPPORTED, "ex2.approx.f32 at line 12"),
        ("launch", Status.LAUNCH_FAILED, "CUDA_ERROR_INVALID_VALUE"),
        ("short", Status.LAUNCH_FAILED, "2 of 3 repetitions of buffer 'total'"),
    ],
)
def test_an_error_costs_its_result_and_no_worker(
    pool: Pool, operation: str, status: Status, words: str
) -> None:
    before = process_of(one(pool, "sum"))
    outcome = one(pool, operation)
    assert outcome.status is status
    assert words in outcome.error
    assert outcome.outputs == ()
    assert process_of(one(pool, "sum")) == before


@pytest.mark.parametrize(
    ("operation", "status", "words"),
    [
        ("crash 3", Status.CRASHED, "exit code 3\nlast words"),
        ("crash 0", Status.CRASHED, "exit code 0\nlast words"),
        ("signal 11", Status.CRASHED, "SIGSEGV"),
        ("signal 9", Status.CRASHED, "SIGKILL (the system kills so when memory runs out)"),
        ("sticky", Status.LAUNCH_FAILED, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("raise", Status.CRASHED, "ZeroDivisionError: a bug"),
    ],
)
def test_a_sick_worker_is_replaced_and_its_result_alone_lost(
    pool: Pool, operation: str, status: Status, words: str
) -> None:
    before = process_of(one(pool, "sum"))
    lost, kept = pool.run([task(operation), task("sum", seed=5)])
    assert lost.status is status
    assert words in lost.error
    assert kept.status is Status.OK
    assert process_of(kept) != before
    assert gone(before)


def test_a_hang_is_ended_at_the_limit() -> None:
    with open_pool(timeout=0.5) as pool:
        before = process_of(one(pool, "sum"))
        began = time.monotonic()
        hung, kept = pool.run([task("hang"), task("sum")])
        assert time.monotonic() - began < 10
        assert hung.status is Status.TIMED_OUT
        assert hung.error == "ran past its limit of 0.5 s and was ended\nabout to hang"
        assert kept.status is Status.OK
        assert gone(before)


def test_the_limit_does_not_count_waiting_for_a_worker() -> None:
    with open_pool(timeout=2.0) as pool:
        assert [o.status for o in pool.run([task("sleep 0.6") for _ in range(4)])] == [Status.OK] * 4


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    tasks = [task("churn", seed=seed, name=f"k{seed % 3}") for seed in range(9)]
    with open_pool(1) as alone, open_pool(2) as together:
        first, second = alone.run(tasks), together.run(tasks)
        assert (len(alone._workers), len(together._workers)) == (1, 2)
    assert [o.outputs for o in first] == [o.outputs for o in second]


def test_a_worker_goes_on_with_the_kernel_whose_inputs_it_holds(pool: Pool) -> None:
    one(pool, "sum", seed=0)
    for ticket, name in enumerate(["other", "sum", "other", "sum"]):
        pool.submit(ticket, task(name=name))
    order: list[int] = []
    while len(order) < 4:
        order += [ticket for ticket, _ in pool.poll()]
    assert order == [1, 3, 0, 2]


def test_no_task_waits_behind_a_long_one_while_a_worker_is_idle() -> None:
    """Also where the tasks come one by one, and where the long one is of the same kernel."""
    with open_pool(2, timeout=120.0) as together:
        together.submit(0, task("sleep 90"))
        for ticket in (1, 2, 3):
            together.submit(ticket, task("sum"))
            assert [done for done, _ in together.poll()] == [ticket]


def test_what_a_worker_prints_is_bounded(pool: Pool) -> None:
    (outcome,) = pool.run([task("print 65536")])  # 64 MiB
    assert outcome.status is Status.OK
    assert all(len(worker.tail) <= TAIL_BYTES for worker in pool._workers)


def test_memory_of_the_model_can_be_limited() -> None:
    options = ExecutorOptions("scripted", memory=2 << 30)
    with Pool(options, limits=Limits(20.0), module=FAKE) as pool:
        greedy, modest = pool.run([task(f"memory {4 << 30}"), task("sum")])
    assert greedy.status is Status.LAUNCH_FAILED
    assert "out of memory" in greedy.error
    assert modest.status is Status.OK


def test_start_tells_why_an_executor_cannot_be_opened() -> None:
    with open_pool(name="refusing") as pool, pytest.raises(ExecutionError, match="remedy: reprodb doctor"):
        pool.start()
    with open_pool(name="dying") as pool, pytest.raises(ExecutionError) as caught:
        pool.start()
    assert "exit code 9\ncannot load the driver" in caught.value.problem
    with open_pool(name="slow", start=0.3) as pool, pytest.raises(ExecutionError, match=r"within 0\.3 s"):
        pool.start()


def test_tasks_of_a_pool_that_cannot_start_all_end() -> None:
    with open_pool(name="dying") as pool:
        outcomes = pool.run([task(), task()])
    assert [o.status for o in outcomes] == [Status.CRASHED] * 2
    assert all("no worker could be started" in o.error for o in outcomes)


def test_poll_returns_when_woken(pool: Pool) -> None:
    pool.wake()
    assert pool.poll() == []


def test_closing_ends_workers_and_removes_their_folder() -> None:
    with open_pool() as pool:
        platform = dict(pool.start().libraries)
        assert Path(platform["folder"]).is_dir()
        pool.submit(0, task("hang"))
        pool.wake()
        pool.poll()
    assert gone(int(platform["process"]))
    assert not Path(platform["folder"]).exists()


def test_what_was_begun_is_the_worker_that_starts() -> None:
    with open_pool() as begun:
        begun.begin()
        begun.begin()
        (worker,) = begun._workers
        assert begun.start().libraries[0] == ("process", str(worker.process.pid))


def test_released_workers_are_killed_and_closing_does_the_rest() -> None:
    with open_pool() as released:
        process = process_of(one(released, "sum"))
        folder = released._folder
        released.release()
        assert gone(process)
        assert folder.exists()
    assert not folder.exists()


def test_a_worker_does_not_see_tokens_or_python_start_up_variables() -> None:
    environ = {
        "PATH": "/bin",
        "GITHUB_TOKEN": "secret",
        "PYTHONSTARTUP": "x.py",
        "CUDA_VISIBLE_DEVICES": "1",
        "NVIDIA_TF32_OVERRIDE": "0",
        "LC_ALL": "C",
        "TMPDIR": "/elsewhere",
    }
    assert worker_environment(environ, Path("/private")) == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "NVIDIA_TF32_OVERRIDE": "0",
        "LC_ALL": "C",
        "TMPDIR": "/private",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


PARENT = """
import sys, time
from tests.test_pool import open_pool, task
if __name__ == "__main__":
    pool = open_pool(timeout=60)
    print(dict(pool.start().libraries)["process"], flush=True)
    pool.submit(0, task("hang"))
    pool.wake()
    pool.poll()
    time.sleep(60)
"""


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT]
    root = Path(__file__).parent.parent
    environ = {**os.environ, "TMPDIR": str(tmp_path)}  # what a killed process leaves is not left in /tmp
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=environ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.3)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert gone(worker)


@pytest.mark.parametrize(("workers", "room"), [(1, 1 << 20), (64, 1 << 18), (1000, 1 << 16)])
def test_pipes_hold_a_whole_task_unless_there_are_too_many(workers: int, room: int) -> None:
    with open_pool(workers) as opened:
        opened.begin()
        (worker,) = opened._workers
        assert {fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) for fd in (worker.tasks, worker.replies)} == {room}
