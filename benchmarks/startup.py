"""Start-up of commands against a Python process that only imports what they cannot do without."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Row, pair
from benchmarks.history import fill, installed, suite_rows

SMALL = 40  # results of a run in the small database
LIBRARY = "import sqlalchemy"


def rows() -> list[Row]:
    """Whole commands, from the start of the interpreter to its end."""
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "small.db")
        fill(database, 2, suite_rows()[:SMALL], moved=0)
        environment = installed(Path(folder))

        def python(*arguments: str) -> Callable[[], object]:
            command = [sys.executable, *arguments]
            return lambda: subprocess.run(command, check=True, capture_output=True, env=environment)

        def row(name: str, words: tuple[str, ...], peer: str, goal: float | None) -> Row:
            ours = python("-m", "reprodb", *words)
            return pair(name, ours, f"python -c '{peer}'", python("-c", peer), lane="-", goal=goal)

        stored = ("--db", database)
        return [
            row("reprodb --help", ("--help",), "pass", 0.3),
            row("reprodb diff --help", ("diff", "--help"), "pass", 0.3),
            row(f"diff of two runs of {SMALL}", ("diff", "latest~1", "latest", *stored), LIBRARY, 0.7),
            row("history of a kernel", ("history", "kernel_003", *stored), LIBRARY, 0.7),
            row(f"show of a run of {SMALL}", ("show", *stored), LIBRARY, None),
        ]
