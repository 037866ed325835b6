"""Groups around workers: made in trees of files that stand in for the system's, and in the system's own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from reprodb import cgroups, limits
from reprodb.domain import Status
from reprodb.executors.base import ExecutorOptions
from reprodb.executors.pool import Limits, Pool
from tests.test_pool import FAKE, task

HALF = limits.machine_memory() // 2


# --- Trees of files ------------------------------------------------------------------------------


@pytest.fixture(name="second")
def a_tree_of_version_2(tmp_path: Path) -> Path:
    """`/runner.slice/job.scope` is where this process is; its parent may be written."""
    job = tmp_path / "runner.slice" / "job.scope"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("max\n")
    (job.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (job.parent / "cgroup.procs").touch()
    (job.parent / "memory.max").write_text(f"{HALF}\n")
    (tmp_path / "own").write_text("0::/runner.slice/job.scope\n")
    return tmp_path


@pytest.fixture(name="first")
def a_tree_of_version_1(tmp_path: Path) -> Path:
    """This process is in /job of the controller of memory, and in / of that of processes."""
    for folder in ("memory/job", "pids", "unified"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cgroup.procs").touch()
    (tmp_path / "memory/job/memory.limit_in_bytes").write_text(f"{HALF}\n")
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "own").write_text("9:name=systemd:/\n8:pids:/\n4:memory:/job\n2:cpu,cpuacct:/\n0::/\n")
    return tmp_path


def settings(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in folder.iterdir()}


def emptied(folder: Path) -> None:
    """The system's own files go with their folder; these do not."""
    for path in folder.iterdir():
        path.unlink()


def test_version_2_a_group_stands_beside_its_parents(second: Path) -> None:
    where = cgroups.place(second, second / "own")
    assert where == cgroups.Place(2, second / "runner.slice", second / "runner.slice", HALF)
    group = cgroups.group_around(4711, where)
    assert group is not None
    folder = second / "runner.slice" / "reprodb-worker-4711"
    assert settings(folder) == {
        "memory.max": str(int(HALF * 0.9)), "memory.swap.max": "0", "pids.max": "512", "cgroup.procs": "4711",
    }  # fmt: skip
    assert not group.exhausted()
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
    assert group.exhausted()
    emptied(folder)
    group.close()
    assert not folder.exists()
    group.close()


def test_version_1_a_group_is_inside_its_parents_one_a_controller(first: Path) -> None:
    where = cgroups.place(first, first / "own")
    assert where == cgroups.Place(1, first / "memory/job", first / "pids", HALF)
    group = cgroups.group_around(4711, where, 1 << 20)
    assert group is not None
    memory, pids = (first / place / "reprodb-worker-4711" for place in ("memory/job", "pids"))
    assert settings(memory) == {
        "memory.limit_in_bytes": "1048576", "memory.memsw.limit_in_bytes": "1048576", "cgroup.procs": "4711",
    }  # fmt: skip
    assert settings(pids) == {"pids.max": "512", "cgroup.procs": "4711"}
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert group.exhausted()
    for folder in (memory, pids):
        emptied(folder)
    group.close()
    assert not memory.exists()
    assert not pids.exists()


def test_version_1_without_a_controller_of_processes(first: Path) -> None:
    (first / "own").write_text("4:memory:/job\n")
    where = cgroups.place(first, first / "own")
    assert where is not None
    assert where.pids is None
    assert cgroups.group_around(4711, where) is not None
    assert not (first / "pids" / "reprodb-worker-4711").exists()


@pytest.mark.parametrize(
    "text", ["", "0::/\n", "4:memory:/a\n", "0::/other.slice/x\n", "no lines of this form\n"]
)
def test_where_there_can_be_none(second: Path, text: str) -> None:
    (second / "own").write_text(text)
    assert cgroups.place(second, second / "own") is None
    assert cgroups.place(second, second / "absent") is None
    assert cgroups.group_around(os.getpid(), None) is None


def test_version_2_with_a_controller_that_was_not_delegated(second: Path) -> None:
    (second / "runner.slice" / "cgroup.subtree_control").write_text("cpu pids\n")
    assert cgroups.place(second, second / "own") is None


def test_a_group_that_the_system_refuses_is_none(second: Path) -> None:
    """As where a process with this number is in one already, or the folder went meanwhile."""
    where = cgroups.place(second, second / "own")
    assert where is not None
    (second / "runner.slice" / "reprodb-worker-1" / "x").mkdir(parents=True)
    assert cgroups.group_around(1, where) is None
    assert cgroups.group_around(2, cgroups.Place(1, second / "absent", None, HALF)) is None


def test_groups_that_a_killed_parent_left_are_swept(first: Path) -> None:
    """Those of workers that are gone; not one of a process that lives, nor one with processes in it."""
    where = cgroups.place(first, first / "own")
    assert where is not None
    gone, alive = 1 << 30, os.getpid()  # no process has so high a number
    for folder in (first / "memory/job", first / "pids"):
        for process in (gone, alive):
            (folder / f"reprodb-worker-{process}").mkdir()
    (first / "memory/job" / f"reprodb-worker-{gone + 1}" / "x").mkdir(parents=True)
    cgroups.sweep(where)
    left = sorted(path.name for path in first.glob("*/**/reprodb-worker-*"))
    assert left == sorted([f"reprodb-worker-{alive}"] * 2 + [f"reprodb-worker-{gone + 1}"])
    assert cgroups.group_around(alive, where) is not None, "a stale group of the same number is replaced"


# --- The system's own ----------------------------------------------------------------------------


def folder_for_groups() -> Path | None:
    """Where this machine lets this user make a group that limits memory, tried by making one."""
    lines = [line.split(":", 2) for line in cgroups.OWN.read_text().splitlines()]
    candidates = []
    for _, names, path in lines:
        if names == "memory":
            candidates.append(cgroups.ROOT / "memory" / path.strip("/"))
        elif not names and path.strip("/"):
            parent = (cgroups.ROOT / path.strip("/")).parent
            with suppress(OSError):
                if "memory" in (parent / "cgroup.subtree_control").read_text().split():
                    candidates.append(parent)
    for folder in candidates:
        tried = folder / f"reprodb-test-{os.getpid()}"
        if subprocess.run(["mkdir", tried], stderr=subprocess.DEVNULL).returncode == 0:
            there = any((tried / name).exists() for name in ("memory.max", "memory.limit_in_bytes"))
            subprocess.run(["rmdir", tried], check=True)
            if there:
                return folder
    return None


def test_a_worker_that_takes_more_memory_than_it_may_costs_its_result_alone() -> None:
    """By a group where one can be made. Where none can, one that has all addresses, as CUDA's, goes on."""
    folder = folder_for_groups()
    with Pool(ExecutorOptions("scripted"), limits=Limits(memory=256 << 20), module=FAKE) as pool:
        modest, greedy, after = pool.run([task("sum"), task(f"memory {1 << 30}"), task("sum")])
        (worker,) = pool._workers
        if folder is None:
            assert worker.enclosure is None
            assert greedy.status is Status.OK
        else:
            assert worker.enclosure is not None
            group = folder / f"reprodb-worker-{worker.process.pid}"
            assert str(worker.process.pid) in (group / "cgroup.procs").read_text().split()
            assert greedy.status is Status.CRASHED
            assert greedy.error.startswith("memory was exhausted: a worker may hold 256 MiB here")
    assert (modest.status, after.status) == (Status.OK, Status.OK)
    if folder is not None:
        assert not group.exists()


def test_what_a_worker_starts_is_in_its_group(tmp_path: Path) -> None:
    """A child that takes the memory is ended; the worker that waited for it lives."""
    folder, where = folder_for_groups(), cgroups.place()
    assert (where is None) == (folder is None)
    code = "import subprocess, sys; input(); sys.exit(subprocess.run(sys.argv[1:]).returncode + 100)"
    greedy = [sys.executable, "-c", "print(len(bytearray(1 << 30)))"]
    with subprocess.Popen([sys.executable, "-c", code, *greedy], stdin=-1, stdout=-1) as parent:
        group = cgroups.group_around(parent.pid, where, 256 << 20)
        said, _ = parent.communicate(b"\n")
        if group is None:
            assert folder is None
            assert (parent.returncode, said) == (100, b"1073741824\n")
        else:
            assert (parent.returncode, said, group.exhausted()) == (100 - 9, b"", True)
            group.close()


def test_addresses_are_no_memory() -> None:
    """CUDA reserves far more than it uses: a terabyte of addresses goes through, with a group and without."""
    with Pool(ExecutorOptions("scripted"), limits=Limits(memory=256 << 20), module=FAKE) as pool:
        (outcome,) = pool.run([task(f"reserve {1 << 40}")])
        (worker,) = pool._workers
        shown = Path(f"/proc/{worker.process.pid}/limits").read_text()
    assert outcome.status is Status.OK
    assert "Max address space         unlimited" in shown
