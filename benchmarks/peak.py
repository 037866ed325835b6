"""The peak of resident memory of a process that does one result alone: `python -m benchmarks.peak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from reprodb.executors import frames
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import ExecutorOptions, open_executor
from reprodb.executors.task import Task, perform

ROOT = Path(__file__).parents[1]


def peak_of(task: Task) -> int:
    """Bytes that a fresh process had resident at most while it did the task on the model, judged and all."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peak"], cwd=ROOT, input=frames.pack(task), capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the task could not be done:\n{done.stderr.decode(errors='replace')}")
    return int(done.stdout)


def main() -> int:
    """Does the task that standard input has, and prints the peak in bytes."""
    body = frames.read(sys.stdin.fileno())
    task: Task = frames.order(body or b"")
    arrays = Arrays()
    executor, _ = open_executor(ExecutorOptions("model"), arrays)
    outcome = perform(executor, task, arrays)
    if outcome.error:
        print(outcome.error, file=sys.stderr)
        return 1
    # Of this program alone: what getrusage tells counts the process that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    high = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    print(int(high.split()[1]) * 1024)
    return 0


if __name__ == "__main__":
    sys.exit(main())
