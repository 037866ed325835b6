"""FNV-1a 64 of large outputs against the byte loop that a C compiler makes of its definition."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Row, pair
from reprodb.digest import FNV_OFFSET, FNV_PRIME, _fnv1a64_long, fnv1a64
from reprodb.digest_native import LANES, hashes

SIZE = 64 << 20
# The loop in C runs at the limit of a byte after the other: a step waits for the multiplication before it.
LIMIT = "a byte loop in C"
SOURCE = f"""
#include <stddef.h>
#include <stdint.h>
uint64_t fnv(const uint8_t *data, size_t size) {{
    uint64_t hash = {FNV_OFFSET}u;
    for (size_t i = 0; i < size; ++i)
        hash = (hash ^ data[i]) * {FNV_PRIME}u;
    return hash;
}}
"""


def rows() -> list[Row]:
    import numpy as np

    many = [np.random.default_rng(seed).bytes(SIZE) for seed in range(LANES)]
    data = many[0]
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name) / "fnv.c", Path(name) / "fnv.so"
        source.write_text(SOURCE)
        subprocess.run(["gcc", "-O3", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        loop = ctypes.CDLL(str(library)).fnv
        loop.restype, loop.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
        expected = [loop(each, SIZE) for each in many]
        if (hashes(many, FNV_OFFSET, FNV_PRIME), _fnv1a64_long(data, FNV_OFFSET)) != (expected, expected[0]):
            raise SystemExit("the ways to hash disagree, or llvmlite is not installed")

        def row(what: str, ours: Callable[[], object], count: int = 1, goal: float | None = None) -> Row:
            theirs = [(each, SIZE) for each in many[:count]]
            peer = LIMIT if count == 1 else f"{LIMIT}, one after the other"

            def loops() -> object:
                return [loop(*one) for one in theirs]

            # CPU time: hashing waits for nothing, and other programs are to have no say.
            clock = time.process_time
            return pair(what, ours, peer, loops, lane="-", rounds=7, goal_ratio=goal, clock=clock)

        mebibytes = SIZE >> 20
        return [
            row(f"FNV-1a of {mebibytes} MiB", lambda: fnv1a64(data), goal=1.1),
            row(
                f"FNV-1a of {LANES} patterns of {mebibytes} MiB",
                lambda: hashes(many, FNV_OFFSET, FNV_PRIME),
                LANES,
                goal=1.1,
            ),
            row(
                f"FNV-1a of {mebibytes} MiB without llvmlite, by NumPy",
                lambda: _fnv1a64_long(data, FNV_OFFSET),
            ),
        ]
