"""Faults of a nightly, done to it: killed at any moment, no GPU, a GPU that goes, gigabytes of output.

Other faults have their tests where the part is that suffers them; docs/reliability.md lists all of them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reprodb.domain import Status
from reprodb.errors import ExecutionError, Exit
from reprodb.executors import cuda
from reprodb.executors.arrays import Arrays
from reprodb.store import open_store
from tests.command import reprodb
from tests.executors.fake_cupy import CUDADriverError, CUDARuntimeError, FakeCupy
from tests.test_bad_input import MANIFEST, write_kernel
from tests.test_pool import open_pool, task

ROOT = Path(__file__).parents[1]
KERNELS = ("a", "b", "c", "d")
# Large enough that executing is half of the night: there is something to kill between two results.
SLOW = MANIFEST.replace("n = 8", "n = 400000")


# --- SIGKILL -----------------------------------------------------------------------------------


@pytest.fixture(name="home", scope="module")
def a_suite_that_is_compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four kernels, their artifacts in a store, and how long a night of them takes here, in `seconds`."""
    home = tmp_path_factory.mktemp("home")
    for name in KERNELS:
        write_kernel(home / "suite", name, manifest=SLOW)
    began = time.monotonic()
    done = subprocess.run(command(home, home / "first.db"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (home / "seconds").write_text(str(time.monotonic() - began))
    return home


def command(home: Path, database: Path, *more: object) -> list[str]:
    """Repetitions that make executing a good part of the night."""
    words = (sys.executable, "-m", "reprodb", "nightly", "--suite", home / "suite", "--store", home / "store",
             "--db", database, "--device", "model", "--profile", "default", "--out", home / "reports",
             "-n", 8, "-j", 1, *more)  # fmt: skip
    return [str(word) for word in words]


def rows(database: Path) -> dict[str, int]:
    """Kernel → the number of its row in the newest run."""
    with open_store(str(database)) as store:
        return {r.kernel.name: r.id or 0 for r in store.results(store.runs()[0].id or 0)}


def killed(home: Path, database: Path, stage: int, moment: float, seconds: float) -> int:
    """Start a night and kill it: in its first half (stage 0), after the result of that number, or at its end.

    `moment`, from 0 to 1, is how far into the stage. Returns the exit code, 0 where it ended before.
    """
    environ = {**os.environ, "TMPDIR": str(home)}  # what a killed process leaves is not left in /tmp
    asked = command(home, database)
    with subprocess.Popen(asked, stdout=-3, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr is not None
        if stage == 0:
            time.sleep(moment * seconds / 2)
        else:
            for line in process.stderr:
                if line.startswith(f"{min(stage, 4)}/"):
                    break
            # A result takes a third of a second; verdict and report a second or two.
            time.sleep(moment * (2.0 if stage == 5 else 0.4))
        process.kill()
        return process.wait()


@pytest.mark.parametrize("rounds", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_a_nightly_killed_at_any_moment_is_whole_and_resumed(home: Path, tmp_path: Path, rounds: int) -> None:
    """SIGKILL between start and end: nothing by half, what was recorded is not executed again, then green."""
    seconds = float((home / "seconds").read_text())
    generator = random.Random(rounds)
    resumed = 0
    for number in range(rounds):
        database = tmp_path / f"{number}.db"
        stage = generator.randrange(6) if rounds > 1 else 2
        ended = killed(home, database, stage, generator.random(), seconds)
        if not database.exists():
            continue
        with open_store(str(database)) as store:
            assert store.check() == (), stage
            runs = store.runs()
        if not runs:
            continue
        (run,) = runs
        if ended == 0:
            assert (run.complete, run.exit_code) == (True, 0)
            continue
        if run.complete:  # killed after its verdict, while the report was written
            assert run.exit_code == 0
            continue
        before = rows(database)
        done = subprocess.run(command(home, database, "--resume", run.id), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        resumed += 1
        after = rows(database)
        assert after.items() >= before.items(), "a finished result was executed again"
        assert set(after) == set(KERNELS)
        executed = re.findall(r"^\d+/(\d+) ", done.stderr, re.MULTILINE)
        assert len(executed) == len(KERNELS) - len(before)
        with open_store(str(database)) as store:
            assert store.check() == ()
            (run,) = store.runs()
            assert (run.complete, run.exit_code) == (True, 0)
        shutil.rmtree(home / "reports", ignore_errors=True)
    assert resumed > rounds // 3


@pytest.mark.soak
def test_a_nightly_that_was_not_judged_is_incomplete(home: Path, tmp_path: Path) -> None:
    """All results recorded, and the process gone before their verdict: a resume judges them."""
    database = tmp_path / "a.db"
    shutil.copy(home / "first.db", database)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE runs SET finished_at = NULL, exit_code = NULL")
        connection.execute("UPDATE results SET accepted = 0")
    before = rows(database)
    done = subprocess.run(command(home, database, "--resume", 1), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert rows(database) == before
    with open_store(str(database)) as store:
        assert (store.run(1).complete, store.run(1).exit_code) == (True, 0)


# --- No GPU, another GPU -----------------------------------------------------------------------


def test_no_gpu_on_a_gpu_runner_is_no_answer(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never green, never the model instead, and nothing recorded. With a GPU here, it is hidden."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    said = reprodb("nightly", "--suite", home / "suite", "--device", "gpu", folder=tmp_path)
    assert (said.code, "no GPU can be used" in said.err) == (Exit.NO_ANSWER, True)
    assert "nightly" not in reprodb("runs", folder=tmp_path).out


def test_a_gpu_that_goes_away_costs_the_rest_and_ends() -> None:
    """The device falls off the bus: its worker is replaced, the next one finds no device, every task ends."""
    with open_pool(name="vanishing") as pool:
        outcomes = pool.run([task("sum", seed=1), task("vanish"), task("sum"), task("sum")])
    statuses = [outcome.status for outcome in outcomes]
    assert statuses == [Status.OK, Status.LAUNCH_FAILED, Status.CRASHED, Status.CRASHED]
    assert "cudaErrorDeviceUninitialized" in outcomes[1].error
    assert "no device is left" in outcomes[2].error


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            "free",
            CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient"),
            "reprodb[cuda12]",
        ),
        (
            "moduleLoadData",
            CUDADriverError("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: compiled with an unsupported toolchain"),
            "newer than this driver",
        ),
        (
            "moduleLoadData",
            CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available"),
            "--arch",
        ),
        ("malloc", CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"), "other programs"),
    ],
)
def test_a_driver_or_card_that_does_not_fit_says_what_to_do(call: str, error: Exception, words: str) -> None:
    from tests.test_cuda_executor import run, total_of

    fake = FakeCupy({"sum": (3, total_of)})
    if call == "free":
        fake.fails[call] = error
        with pytest.raises(ExecutionError) as caught:
            cuda.CudaExecutor(fake, 0, Arrays())
    else:
        executor = cuda.CudaExecutor(fake, 0, Arrays())
        fake.fails[call] = error
        with pytest.raises(ExecutionError) as caught:
            run(executor)
    assert str(error).partition(":")[0] in caught.value.problem
    assert words in caught.value.remedy


# --- What a worker may do ----------------------------------------------------------------------


@pytest.fixture(name="memory")
def memory_of_this_process() -> Iterator[int]:
    """The kilobytes that this process holds; 64 MiB on top of it would be a worker's output kept."""
    yield int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0])


@pytest.mark.soak
def test_gigabytes_that_a_worker_prints_go_nowhere(memory: int) -> None:
    with open_pool(timeout=300.0) as pool:
        (outcome,) = pool.run([task(f"print {4 << 20}")])  # lines of a kilobyte: 4 GiB
    assert outcome.status is Status.OK
    now = int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0])
    assert now - memory < 64 << 10


# --- SIGTERM -----------------------------------------------------------------------------------


@pytest.mark.soak
def test_sigterm_keeps_what_is_recorded_and_leaves_no_worker(home: Path, tmp_path: Path) -> None:
    """What CI sends before it kills: exit 130, an incomplete run or none, and no process left."""
    database = tmp_path / "a.db"
    with subprocess.Popen(command(home, database), stdout=-3, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("1/"):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert process.wait(30) == 130, said
    assert "is incomplete; go on with reprodb nightly --resume 1 --suite " in said
    assert children
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    with open_store(str(database)) as store:
        assert (store.check(), [run.complete for run in store.runs()]) == ((), [False])


# --- The table ---------------------------------------------------------------------------------


def test_every_test_that_the_table_names_exists() -> None:
    """docs/reliability.md: each row ends with tests as `tests/FILE.py::NAME`."""
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    tables = [row for row in rows if "tests/" in row]
    assert len(tables) >= 20
    for row in tables:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.rpartition("| ")[2] or row.split("|")[-2])
        assert named, row
        for file, name in named:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"
