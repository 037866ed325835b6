"""Runnable fake toolkits: programs that answer like nvcc and ptxas, and misbehave as a test asks."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent


def lay_out(
    folder: Path, behaviour: str = "well", version: str = "12.8.93", ptxas: str | None = None
) -> Path:
    """A toolkit below `folder`; its nvcc. `behaviour` is one of those in `nvcc.txt`."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    _program(programs / "nvcc", (_HERE / "nvcc.txt").read_text(), behaviour, version)
    _program(programs / "ptxas", (_HERE / "ptxas.txt").read_text(), behaviour, ptxas or version)
    include = folder / "include"
    include.mkdir()
    (include / "cuda_runtime.h").write_text('#include "vector_types.h"\n')
    (include / "vector_types.h").write_text("struct float4;\n")
    (include / "cuda_fp16.h").write_text("struct __half;\n")
    return programs / "nvcc"


def _program(path: Path, body: str, behaviour: str, version: str) -> None:
    head = f"#!{sys.executable} -S\nBEHAVIOUR, VERSION = {behaviour!r}, {version!r}\n"
    path.write_text(head + body)
    path.chmod(0o755)
