"""Raw PTX on a GPU: assembled by the machine's own ptxas, launched on copies of the given buffers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.model.reference import Launch


def assembler() -> str:
    found = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    assert found, "these tests need ptxas: install the CUDA toolkit"
    return found


def assemble(ptx: str, path: Path) -> Path:
    """`path` becomes the cubin; ptxas's own words where it refuses."""
    source = path.with_suffix(".ptx")
    source.write_text(ptx)
    done = subprocess.run(
        [assembler(), "-arch=sm_90", str(source), "-o", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return path


def launch(cupy: Any, cubin: Path, launch: Launch, buffers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every buffer's bytes after one launch."""
    arrays = {name: cupy.asarray(np.frombuffer(data, np.uint8)) for name, data in buffers.items()}
    entry = cupy.RawModule(path=str(cubin)).get_function(launch.entry)
    entry(launch.grid, launch.block, tuple(arrays[str(name)] for name in launch.args))
    return {name: array.get().tobytes() for name, array in arrays.items()}
