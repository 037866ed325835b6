"""FNV-1a 64 of a large output against the byte loop that a C compiler makes of its definition."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

from benchmarks.harness import Row, pair
from reprodb.digest import FNV_OFFSET, FNV_PRIME, fnv1a64

SIZE = 64 << 20
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

    data = np.random.default_rng(1).bytes(SIZE)
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name) / "fnv.c", Path(name) / "fnv.so"
        source.write_text(SOURCE)
        subprocess.run(["gcc", "-O3", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        loop = ctypes.CDLL(str(library)).fnv
        loop.restype, loop.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
        if loop(data, SIZE) != fnv1a64(data):
            raise SystemExit("the two ways to hash disagree")
        return [
            pair(
                f"FNV-1a of {SIZE >> 20} MiB",
                lambda: fnv1a64(data),
                "a byte loop in C",
                lambda: loop(data, SIZE),
                lane="-",
                rounds=5,
            )
        ]
