"""The six-kernel nightly over five NVRTC profiles at 100 repetitions on the model: cold against warm."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Row, Spread, ratios, seconds

PROFILES = ("default", "no-fmad", "fast-math", "cuda12", "cuda12-no-fmad")
ROUNDS = 3


def _night(folder: Path) -> None:
    """One nightly in `folder`, with every cache of reprodb's own inside it."""
    command = [
        sys.executable,
        "-m",
        "reprodb",
        "nightly",
        "--tag",
        "published",
        "--device",
        "model",
        "--quiet",
    ]
    command += [part for name in PROFILES for part in ("--profile", name)]
    environment = os.environ | {"REPRODB_CACHE": str(folder / "cache")}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def rows() -> list[Row]:
    """Cold: nothing compiled, lowered or probed. Warm: the same night again, every repetition executed."""
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cold.append(seconds(lambda place=folder: _night(place)))  # type: ignore[misc]
            warm.append(seconds(lambda place=folder: _night(place)))  # type: ignore[misc]
    return [
        Row(
            "nightly, cold", "modelled", Spread.of(cold), "warm", Spread.of(warm), ratios(cold, warm), goal=60
        ),
        Row(
            "nightly, warm", "modelled", Spread.of(warm), "cold", Spread.of(cold), ratios(warm, cold), goal=30
        ),
    ]
