"""Cubins as text: find nvdisasm, ask its version, disassemble."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reprodb.toolchains.nvrtc import EXACT_VERSION
from reprodb.toolchains.places import cache_folder, toolchains_folder
from reprodb.toolchains.process import Runner, clean_environment, run
from reprodb.toolchains.sass_memory import SassMemory

_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Disassembler:
    """An installed nvdisasm. Its version is recorded with the text and is in no artifact's key."""

    path: str
    version: str
    origin: str


def candidates(
    environ: Mapping[str, str] = os.environ, search_path: Sequence[str] | None = None
) -> Iterator[tuple[Path, str]]:
    """Places to look for nvdisasm, with their names: wheels, PATH, toolkits, the user's cache."""
    for folder in sys.path if search_path is None else search_path:
        for path in sorted(Path(folder).glob("nvidia/*/bin/nvdisasm"), reverse=True):
            yield path, "wheel"
    on_path = shutil.which("nvdisasm", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path), "PATH"
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield Path(environ[variable]) / "bin" / "nvdisasm", variable
    for root in (*sorted(Path("/usr/local").glob("cuda*"), reverse=True), Path("/opt/cuda")):
        yield root / "bin" / "nvdisasm", str(root.parent)
    for path in sorted(toolchains_folder(environ).glob("*/bin/nvdisasm"), reverse=True):
        yield path, "cache"


@cache
def find() -> Disassembler | None:
    """The first nvdisasm that works, asked once a process; None where there is none."""
    return first_working(candidates())


def memory(environ: Mapping[str, str] = os.environ) -> SassMemory:
    """The user's memory of disassembled cubins."""
    return SassMemory(cache_folder(environ) / "sass")


def first_working(places: Iterator[tuple[Path, str]], runner: Runner = run) -> Disassembler | None:
    for path, origin in places:
        if not path.is_file():
            continue
        done = runner([str(path), "--version"], Path("/"), clean_environment(os.environ), _SECONDS)
        version = EXACT_VERSION.search(done.log)
        if done.ok and version:
            return Disassembler(str(path), version[1], origin)
    return None


def disassemble(
    cubin: bytes,
    tool: Disassembler | None = None,
    runner: Runner = run,
    *,
    scratch: Path | None = None,
    memory: SassMemory | None = None,
) -> str | None:
    """The cubin's text with instructions and data sections, headed by the tool's version in a comment.

    None where no nvdisasm is found or it refuses the file. `scratch` is where a temporary folder is made;
    `memory` knows the texts of earlier times.
    """
    tool = tool or find()
    if tool is None:
        return None
    text = memory.get(cubin, tool.version) if memory else None
    if text is None:
        text = _disassembled(cubin, tool, runner, scratch)
        if memory and text is not None:
            memory.put(cubin, tool.version, text)
    return text


def _disassembled(cubin: bytes, tool: Disassembler, runner: Runner, scratch: Path | None) -> str | None:
    with tempfile.TemporaryDirectory(prefix="reprodb-sass-", dir=scratch) as folder:
        place = Path(folder)
        (place / "kernel.cubin").write_bytes(cubin)
        # Its warnings go elsewhere than its text.
        text = place / "kernel.sass"
        done = runner(
            [tool.path, "kernel.cubin"], place, clean_environment(os.environ, place), _SECONDS, text
        )
        if not done.ok:
            return None
        return f"// nvdisasm {tool.version}\n" + text.read_text(encoding="utf-8", errors="replace")
