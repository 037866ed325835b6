"""The nightly on a GPU against the published way: nvcc for every build, run the program, read its table."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Row, Spread, seconds
from reprodb.domain import Toolchain
from reprodb.environment import find_gpus
from reprodb.toolchains import catalog

SOURCE = Path(__file__).with_name("published.cu")
SHAPE = ("-DBLOCKS=1024", "-DTHREADS=256")
# What readers of the experiment build by hand, and the profile of ours that is the same question.
BUILDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "no-fmad": ("-fmad=false",),
    "fast-math": ("-use_fast_math",),
    "nvcc13": (),
    "nvcc13-no-fmad": ("-fmad=false",),
}
# The two-pass tree, as published: 1 pattern, its bits, and the run hash.
EXPECTED = "1  0x4b25426d  0x8189389fe1bc0a65"
ROUNDS = 2


def _nvcc() -> Toolchain:
    found = [t for t in catalog.find() if t.compiler == "nvcc" and t.version.startswith("13.")]
    if not found:
        raise SystemExit("the benchmark needs nvcc 13: reprodb toolchains install nvcc 13.0")
    return found[0]


def _by_hand(nvcc: str, arch: str, folder: Path) -> None:
    """Every build compiled, linked, run and looked at, one after the other."""
    for flags in BUILDS.values():
        program = folder / "published"
        command = [nvcc, "-std=c++17", f"-arch={arch}", *SHAPE, *flags, str(SOURCE), "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True)
        table = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        if EXPECTED not in table:
            raise SystemExit(f"the published program does not show the published tree:\n{table}")


def _night(folder: Path, name: str) -> None:
    """One nightly in `folder`; where its time went is kept beside it under `name`."""
    command = [sys.executable, "-m", "reprodb", "nightly", "--device", "gpu", "--quiet", "--tag", "published"]
    command += ["--timings", *(part for profile in BUILDS for part in ("--profile", profile))]
    environment = os.environ | {"REPRODB_CACHE": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    (folder / name).write_text(done.stderr)


def rows() -> list[Row]:
    """Cold: nothing is compiled; warm: the next night. The published way compiles every time."""
    nvcc, arch = _nvcc(), find_gpus().devices[0].arch
    hand: list[float] = []
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            hand.append(seconds(lambda place=folder: _by_hand(nvcc.path, arch, place)))  # type: ignore[misc]
            for kind, taken in (("cold", cold), ("warm", warm)):
                taken.append(seconds(lambda place=folder, kind=kind: _night(place, kind)))  # type: ignore[misc]
                print(f"a {kind} night:\n{(folder / kind).read_text()}", file=sys.stderr)

    def row(name: str, ours: list[float], goal: float) -> Row:
        ratio = Spread.of([a / b for a, b in zip(ours, hand, strict=True)])
        peer = f"the published way, {len(BUILDS)} builds"
        return Row(name, "measured", Spread.of(ours), peer, Spread.of(hand), ratio, goal_ratio=goal)

    return [row("nightly on the GPU, cold", cold, 0.5), row("nightly on the GPU, warm", warm, 0.1)]
