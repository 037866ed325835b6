"""What a worker may take of the machine, by trying to take more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprodb import limits
from reprodb.domain import Status
from tests.test_pool import open_pool, task

PRELUDE = "import os, sys, time, resource\nfrom reprodb import limits\n"
UNPRIVILEGED = "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"


def child(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=60)


ENDLESS = {
    "CPU time": ("limits.allow_cpu(0.2)\nwhile True: pass", -24, ""),  # SIGXCPU
    "CPU time of a second task": (
        "limits.allow_cpu(0.2); limits.allow_cpu(9.0)\n"
        "end = time.process_time() + 1.2\nwhile time.process_time() < end: pass",
        0,
        "",
    ),
    "a file": (
        "limits.apply(limits.Limits(file_bytes=1000))\nimport tempfile\n"
        "tempfile.TemporaryFile().truncate(1001)",
        1,
        "File too large",
    ),
    "processes": (
        f"{UNPRIVILEGED}limits.apply(limits.Limits(processes=3))\n"
        "for n in range(9):\n    if os.fork() == 0: time.sleep(1); os._exit(0)",
        1,
        "Resource temporarily unavailable",
    ),
    "memory": ("limits.apply(limits.Limits(memory=1 << 30))\nbytearray(2 << 30)", 1, "MemoryError"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_limit_ends_what_runs_away(what: str) -> None:
    code, ended, said = ENDLESS[what]
    done = child(code)
    assert (done.returncode, said in done.stderr) == (ended, True), done.stderr


def test_what_is_lower_already_stays() -> None:
    done = child(
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "limits.apply(limits.Limits())\nprint(resource.getrlimit(resource.RLIMIT_FSIZE))"
    )
    assert done.stdout == "(500, 500)\n", done.stderr


def test_workers_run_under_limits_and_one_costs_its_result_alone() -> None:
    with open_pool() as pool:
        large, modest = pool.run([task(f"write {limits.FILE_BYTES + 1}"), task("sum")])
    assert large.status is Status.CRASHED
    assert "File too large" in large.error
    assert modest.status is Status.OK


def test_a_run_s_worker_really_has_them(tmp_path: Path) -> None:
    """As the system shows them for the process that executes kernels on the model."""
    from reprodb.cli.flow import RunOptions, opened_bench
    from reprodb.cli.progress import Silent

    with opened_bench(RunOptions(device="model", store=tmp_path, jobs=1), Silent()) as bench:
        (worker,) = bench.pool._workers
        text = Path(f"/proc/{worker.process.pid}/limits").read_text()
    soft = {line[:26].strip(): line[26:47].strip() for line in text.splitlines()}
    assert soft["Max file size"] == str(limits.FILE_BYTES)
    assert soft["Max core file size"] == "0"
    assert soft["Max address space"] == str(limits.machine_memory())
    assert int(soft["Max processes"]) > limits.PROCESSES
