"""The CUDA headers beside a compiler: where they lie, and a digest of those that a kernel includes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from reprodb.digest import content_key
from reprodb.domain import SourceFile, Toolchain

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)

# nvcc puts this before every source.
FORCED = SourceFile("forced.cu", "#include <cuda_runtime.h>\n")

# Part of a digest that people see among a toolchain's components.
_SHORT = 12


@cache
def folders(toolchain: Toolchain) -> tuple[Path, ...]:
    """The include folders that belong to a toolchain; empty for an NVRTC that came without headers."""
    if not toolchain.path:  # known from a store alone
        return ()
    path = Path(toolchain.path)
    if toolchain.compiler == "nvcc":
        top = path.resolve().parent.parent
        roots = [*sorted(top.glob("targets/*/include")), top / "include"]
        if not any(root.is_dir() for root in roots):
            roots = [Path("/usr/include")]  # a distribution's own package
    else:
        top = path.parent.parent  # …/nvidia/cu13, …/nvidia/cuda_nvrtc, a toolkit or its target folder
        beside = top.parent
        roots = [top / "include"]
        if top.name == "cuda_nvrtc":  # the wheels of CUDA 12 have a folder each
            roots = [beside / "cuda_runtime" / "include", beside / "cuda_cccl" / "include"]
        roots += [*sorted(top.glob("targets/*/include"))]
    with_cccl = [place for root in roots for place in (root, root / "cccl")]
    found = [place for place in with_cccl if place.is_dir()]
    has_cuda = any((place / "cuda_fp16.h").is_file() for place in found)
    return tuple(dict.fromkeys(found)) if has_cuda else ()


def included_digest(toolchain: Toolchain, files: Sequence[SourceFile]) -> str | None:
    """Digest of every toolkit header that the sources may reach, or None where they include none.

    Conditionals are not evaluated: a header that might be included counts. The host's own headers do not.
    """
    own = {Path(file.path).name for file in files}
    names = {
        angle or quoted
        for file in files
        for angle, quoted in _INCLUDE.findall(file.text)
        if angle or Path(quoted).name not in own
    }
    return _closure(folders(toolchain), tuple(sorted(names)))


@cache
def _closure(places: tuple[Path, ...], names: tuple[str, ...]) -> str | None:
    """Digest over paths and texts of all headers reachable from `names`; None where none is found."""
    waiting = [path for name in names if (path := _find(name, places, None))]
    texts: dict[Path, str] = {}
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        texts[path] = text
        for angle, quoted in _INCLUDE.findall(text):
            found = _find(angle or quoted, places, path.parent if quoted else None)
            if found is not None and found not in texts:
                waiting.append(found)
    if not texts:
        return None
    parts: list[str] = []
    for path in sorted(texts):
        place = next(p for p in places if path.is_relative_to(p))
        parts += [str(path.relative_to(place)), texts[path].encode(errors="surrogateescape").hex()]
    return content_key("reprodb.headers", *parts)[:_SHORT]


def _find(name: str, places: tuple[Path, ...], beside: Path | None) -> Path | None:
    for place in (*((beside,) if beside else ()), *places):
        path = place / name
        if path.is_file():
            return path if any(path.is_relative_to(p) for p in places) else None
    return None
