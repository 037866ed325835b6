"""Start-up of the command line against an empty Python process."""

import subprocess
import sys

from benchmarks.harness import Row, pair


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def rows() -> list[Row]:
    """`--help` goes through the console script's own entry."""
    return [
        pair(
            "reprodb --help",
            lambda: _run("-m", "reprodb", "--help"),
            "python -c pass",
            lambda: _run("-c", "pass"),
            lane="-",
            goal=0.3,
        )
    ]
