"""Ask an installed compiler what it is, once; the answer is kept until its files change."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reprodb.digest import content_key
from reprodb.domain import Toolchain
from reprodb.errors import ToolchainError
from reprodb.files import keep_file
from reprodb.toolchains import nvcc
from reprodb.toolchains.places import cache_folder
from reprodb.toolchains.process import Runner, clean_environment, python_child, run

_SECONDS = 60.0

# Raised when an answer's meaning changes, so that old answers are asked for again.
_FORMAT = "reprodb.probe/1"


def probe(
    compiler: str, path: Path, origin: str, environ: Mapping[str, str] = os.environ, runner: Runner = run
) -> Toolchain:
    """The toolchain at `path`. Raises ToolchainError where it does not work; failures are never kept."""
    memory = cache_folder(environ) / "probes" / f"{_fingerprint(compiler, path, environ)}.json"
    answer = _remembered(memory)
    if answer is None:
        answer = _PROBES[compiler](str(path), runner, environ)
        _remember(memory, answer)
    return Toolchain(
        compiler=compiler,
        version=answer["version"],
        path=answer["path"],
        origin=origin,
        architectures=tuple(answer["architectures"]),
        components=tuple((name, value) for name, value in answer["components"]),
    )


def _probe_nvrtc(path: str, runner: Runner, environ: Mapping[str, str]) -> dict[str, Any]:
    """Loading a library cannot be undone, so a process of its own does it."""
    child = python_child("reprodb.toolchains.nvrtc", path)
    with tempfile.TemporaryDirectory(prefix="reprodb-probe-") as folder:
        output = Path(folder) / "answer.json"
        done = runner(child, Path(folder), clean_environment(environ, Path(folder)), _SECONDS, output)
        if not done.ok:
            last = done.log.rstrip().rpartition("\n")[2]
            raise ToolchainError(f"{path} does not work as NVRTC: {last or done.reason}", detail=done.log)
        answer = json.loads(output.read_text())
    return {"path": path, "components": [], **answer}


_PROBES = {"nvrtc": _probe_nvrtc, "nvcc": nvcc.probe}


def _fingerprint(compiler: str, path: Path, environ: Mapping[str, str]) -> str:
    """Changes with the compiler's file, and for nvcc with assembler, headers and host compiler too."""
    parts = [_FORMAT, compiler, str(path)]
    files = [path]
    if compiler == "nvcc":
        host = shutil.which("gcc", path=environ.get("PATH"))
        top = path.resolve().parent.parent
        files += [path.resolve(), path.resolve().parent / "ptxas", Path(host or "no host compiler")]
        files += [*sorted(top.glob("targets/*/include")), top / "include"]
    for file in files:
        with suppress(OSError):
            stat = file.stat()
            parts += [str(file), str(stat.st_size), str(stat.st_mtime_ns)]
    return content_key(*parts)


def _remembered(memory: Path) -> dict[str, Any] | None:
    try:
        answer = json.loads(memory.read_text())
        complete = {"path", "version", "architectures", "components"} <= answer.keys()
        return answer if complete and Path(answer["path"]).is_file() else None
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _remember(memory: Path, answer: dict[str, Any]) -> None:
    """Keep an answer where the cache folder can be written; elsewhere it is asked for each time."""
    keep_file(memory, json.dumps(answer).encode())
