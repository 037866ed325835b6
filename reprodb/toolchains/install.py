"""Put a published compiler into the user's cache folder, tried out before it is there; take it out again."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reprodb.domain import BuildRequest, Profile, SourceFile, Toolchain
from reprodb.errors import ReprodbError, ToolchainError, UsageError
from reprodb.toolchains import catalog, debian
from reprodb.toolchains.places import toolchains_folder
from reprodb.toolchains.probe import probe
from reprodb.toolchains.registry import Registry, minor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.version import Version

Say = Callable[[str], None]

_ABANDONED_AFTER = 24 * 3600.0  # seconds until an unfinished install of somebody else is swept away

# Laid into wheels and never loaded here: a second copy of the library, and static archives.
_DEAD_WEIGHT = ("nvidia/*/lib/*.alt.so*", "nvidia/*/lib/libnvrtc*_static*.a")

_SMOKE = (
    "#include <cuda_fp16.h>\n"
    'extern "C" __global__ void smoke(const float* x, __half* y) { y[0] = __float2half(x[0] * x[1]); }\n'
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The wheels of one compiler: `main` names the version, `pinned` share it, `headers` its release."""

    main: str
    pinned: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


def recipe(compiler: str, major: int) -> Recipe | None:
    """How a compiler of a CUDA major comes as wheels, None where it does not."""
    if compiler == "nvrtc" and major <= 12:
        names = (f"nvidia-cuda-runtime-cu{major}", f"nvidia-cuda-cccl-cu{major}")
        return Recipe(f"nvidia-cuda-nvrtc-cu{major}", headers=names if major == 12 else names[:1])
    if compiler == "nvrtc":
        return Recipe(
            "nvidia-cuda-nvrtc", headers=("nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
        )
    if compiler == "nvcc" and major >= 13:
        return Recipe(
            "nvidia-cuda-nvcc",
            pinned=("nvidia-nvvm", "nvidia-cuda-crt"),
            headers=("nvidia-cuda-runtime", "nvidia-cuda-cccl"),
        )
    return None


def install(
    compiler: str,
    version: str,
    *,
    say: Say = lambda _: None,
    environ: Mapping[str, str] = os.environ,
    registry: Registry | None = None,
) -> Toolchain:
    """Install the newest published version that starts with `version` (`13`, `12.9`, `12.9.86`).

    It is compiled with before it is moved into place, so that a broken download is never found later. What is
    there already is left as it is. Raises UsageError for an unpublished version and lists the published ones.
    """
    numbers = _parse(compiler, version)
    registry = registry or Registry(environ=environ)
    if compiler == "nvcc" and numbers[0] == 12:
        exact = debian.choose(version)
        return _install(compiler, exact, lambda place: debian.lay_out(place, registry, say), environ, say)
    parts = recipe(compiler, numbers[0])
    if parts is None:
        raise UsageError(
            f"{compiler} {version} is not published as wheels",
            allowed=f"{compiler} 13 and later, or nvcc 12.4",
        )
    published = registry.published(parts.main)
    main = _pick(version, published, compiler)
    wheels = [(parts.main, main), *((name, main) for name in parts.pinned)]
    newest = main == max(v for v in published if minor_of(v) == minor_of(main))
    wheels += [(name, _companion(name, main, newest, registry)) for name in parts.headers]

    def lay_out(place: Path) -> None:
        say("downloading " + ", ".join(f"{name} {number}" for name, number in wheels))
        registry.install(wheels, place)
        _mend(place)

    return _install(compiler, str(main), lay_out, environ, say)


def published(compiler: str, registry: Registry | None = None) -> tuple[str, ...]:
    """Every exact version that `install` could get of a compiler, oldest first, as a bisection walks."""
    _parse(compiler, "0")
    registry = registry or Registry()
    recipes = [parts for major in (11, 12, 13) if (parts := recipe(compiler, major))]
    versions = [version for parts in recipes for version in registry.published(parts.main)]
    first = (debian.VERSION,) if compiler == "nvcc" and debian.is_here() else ()
    return (*first, *(str(version) for version in sorted(versions)))


def remove(compiler: str, version: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Take an installed toolchain out of the cache folder; the folder that went. UsageError if absent."""
    _parse(compiler, version)
    home = toolchains_folder(environ)
    installed = sorted(place.name for place in home.glob("nv*-*")) if home.is_dir() else []
    fitting = [n for n in installed if n == f"{compiler}-{version}" or n.startswith(f"{compiler}-{version}.")]
    if len(fitting) != 1:
        which = "is not in the cache folder" if not fitting else "fits several"
        raise UsageError(
            f"{compiler} {version} {which}",
            allowed=", ".join(name.replace("-", " ", 1) for name in installed)
            or "nothing: none was installed",
            remedy="what came with pip or a toolkit is removed with that; see `reprodb toolchains list`",
        )
    target = home / fitting[0]
    aside = Path(tempfile.mkdtemp(prefix=".old-", dir=home))
    try:
        target.rename(aside / target.name)
    except OSError as error:
        raise ToolchainError(f"{target} cannot be removed: {error.strerror}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _parse(compiler: str, version: str) -> tuple[int, ...]:
    if compiler not in ("nvrtc", "nvcc"):
        raise UsageError(f"no compiler {compiler!r}", allowed="nvrtc, nvcc")
    if not re.fullmatch(r"\d+(\.\d+){0,2}", version):
        raise UsageError(f"{version!r} is no version", allowed="13, 12.9 or 12.9.86")
    return tuple(int(part) for part in version.split("."))


def _pick(version: str, published: Sequence[Version], compiler: str) -> Version:
    fitting = [v for v in published if str(v) == version or str(v).startswith(f"{version}.")]
    if not fitting:
        raise UsageError(
            f"{compiler} {version} is not published",
            allowed=", ".join(str(v) for v in published),
            remedy=f"reprodb toolchains install {compiler} {published[0].major}.{published[0].minor}",
        )
    return max(fitting)


def _companion(package: str, main: Version, newest: bool, registry: Registry) -> Version:
    """The wheel that belongs to the same release, whose last number may be another.

    The newest of a release goes with the newest; an older one with the newest that is not newer than it.
    """
    release = [v for v in registry.published(package) if minor_of(v) == minor_of(main)]
    if not release:
        raise ToolchainError(f"{package} has no wheel of CUDA {main.major}.{main.minor}")
    older = [v for v in release if v.release <= main.release]
    if newest:
        return max(release)
    return max(older) if older else min(release)


def _mend(place: Path) -> None:
    """Drop dead weight, and put cicc where nvcc looks for it: one release's wheel laid it elsewhere."""
    for pattern in _DEAD_WEIGHT:
        for file in place.glob(pattern):
            file.unlink()
    for cicc in place.glob("nvidia/*/bin/cicc"):
        wanted = cicc.parent.parent / "nvvm" / "bin" / "cicc"
        if not wanted.exists():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            cicc.rename(wanted)


def _install(
    compiler: str, exact: str, lay_out: Callable[[Path], None], environ: Mapping[str, str], say: Say
) -> Toolchain:
    home = toolchains_folder(environ)
    target = home / f"{compiler}-{exact}"
    if target.is_dir():
        say(f"{compiler} {exact} is there already")
        return _only(compiler, target, environ)
    with _scratch(home) as place:
        lay_out(place)
        toolchain = _only(compiler, place, environ)
        _try_out(toolchain)
        target = home / f"{compiler}-{toolchain.version}"
        with suppress(OSError):  # somebody else installed it meanwhile
            place.rename(target)
    return _only(compiler, target, environ)


@contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    """A folder beside the target, gone afterwards unless it was renamed; old leftovers go too."""
    place: Path | None = None
    try:
        home.mkdir(parents=True, exist_ok=True)
        for leftover in (*home.glob(".part-*"), *home.glob(".old-*")):
            with suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _ABANDONED_AFTER:
                    shutil.rmtree(leftover, ignore_errors=True)
        place = Path(tempfile.mkdtemp(prefix=".part-", dir=home))
        place.chmod(0o755)
        yield place
    except OSError as error:
        raise ToolchainError(
            f"installing into {home} failed: {error.strerror or error}",
            remedy="name a writable folder with free space in REPRODB_CACHE",
        ) from error
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def _only(compiler: str, place: Path, environ: Mapping[str, str]) -> Toolchain:
    """The compiler inside an installed folder. Raises ToolchainError if there is none that works."""
    reasons = []
    for candidate in (*catalog.tree(place, "cache"), *catalog.toolkit(place, "cache")):
        if candidate.compiler == compiler:
            try:
                return probe(candidate.compiler, candidate.path, "cache", environ)
            except ReprodbError as error:
                reasons.append(str(error))
    raise ToolchainError(
        f"{place} holds no working {compiler}",
        detail="\n".join(reasons),
        remedy="remove it and install again",
    )


def _try_out(toolchain: Toolchain) -> None:
    """Compile a kernel with a CUDA header. Raises ToolchainError with the log if that does not work."""
    from reprodb.toolchains.pool import compile_all

    request = BuildRequest(
        kernel="smoke",
        entries=("smoke",),
        source="smoke.cu",
        files=(SourceFile("smoke.cu", _SMOKE),),
        defines=(),
        profile=Profile("smoke", toolchain.compiler, toolchain.version),
        toolchain=toolchain,
        arch=toolchain.architectures[-1],
    )
    for done in compile_all([request], seconds=120.0):
        if not done.output.ok:
            raise ToolchainError(f"{toolchain.label} does not compile a small kernel", detail=done.output.log)
