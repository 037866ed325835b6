"""Find the compilers that this machine has, and match profiles with them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from reprodb.domain import Profile, Toolchain
from reprodb.errors import ReprodbError
from reprodb.profiles import specifier
from reprodb.toolchains import headers
from reprodb.toolchains.places import toolchains_folder
from reprodb.toolchains.probe import probe
from reprodb.toolchains.process import Runner, run

_LIBRARY = re.compile(r"libnvrtc\.so\.\d+(\.\d+)*")

# Newest CUDA major that a bare `nvrtc` or `nvcc` installs, and the nvcc 12 that can be laid into a folder.
_SUGGESTED = {("nvcc", 12): "12.4"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a compiler, and how it was found."""

    compiler: str
    path: Path
    origin: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that looks like a compiler and does not work."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """All that was found: what works, each once, and what does not."""

    found: tuple[Toolchain, ...]
    broken: tuple[Broken, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look. Tests look elsewhere than the machine does."""

    search_path: tuple[str, ...]
    toolkits: tuple[Path, ...]
    system: tuple[Path, ...]

    @staticmethod
    def of_this_machine() -> Places:
        local = sorted(Path("/usr/local").glob("cuda*"), reverse=True)
        opt = sorted(Path("/opt").glob("cuda*"), reverse=True)
        system = sorted(Path("/usr/lib").glob("*-linux-gnu"))
        return Places(tuple(sys.path), (*local, *opt), tuple(system))


def find(environ: Mapping[str, str] = os.environ, places: Places | None = None) -> tuple[Toolchain, ...]:
    """Every working toolchain, one an exact version and identity, in the order of the search.

    Of two alike the first counts, unless only the other has CUDA's headers beside it.
    """
    return survey(environ, places).found


def survey(
    environ: Mapping[str, str] = os.environ, places: Places | None = None, runner: Runner = run
) -> Survey:
    """Look everywhere and ask every compiler at once what it is. Known files cost a look at the cache."""
    places = places or Places.of_this_machine()
    unique: dict[Path, Candidate] = {}
    for candidate in candidates(environ, places):
        unique.setdefault(candidate.path.resolve(), candidate)
    with ThreadPoolExecutor(max(1, len(unique))) as threads:
        answers = [
            threads.submit(probe, each.compiler, each.path, each.origin, environ, runner)
            for each in unique.values()
        ]
    found: dict[tuple[tuple[str, str], ...], Toolchain] = {}
    broken: list[Broken] = []
    seen: set[Path] = set()
    for (real, candidate), answer in zip(unique.items(), answers, strict=True):
        if real in seen:
            continue
        seen.add(real)
        try:
            toolchain = answer.result()
        except ReprodbError as error:
            broken.append(Broken(candidate, error.problem))
            continue
        place = Path(toolchain.path).resolve()
        if place != real and place in seen:  # a wrapper of a compiler that was found already
            continue
        seen.add(place)
        known = found.setdefault(toolchain.identity, toolchain)
        if headers.folders(toolchain) and not headers.folders(known):
            found[toolchain.identity] = toolchain
    return Survey(tuple(found.values()), tuple(broken))


def candidates(environ: Mapping[str, str], places: Places) -> Iterator[Candidate]:
    """Files that may be compilers: wheels, the user's cache, CUDA_HOME, PATH, toolkits, system libraries."""
    for folder in places.search_path:
        yield from tree(Path(folder), "wheel")
    installed = toolchains_folder(environ)
    if installed.is_dir():
        for place in sorted(installed.iterdir(), reverse=True):
            if not place.name.startswith("."):
                yield from tree(place, "cache")
                yield from toolkit(place, "cache")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield from toolkit(Path(environ[variable]), variable)
    on_path = shutil.which("nvcc", path=environ.get("PATH", ""))
    if on_path:
        yield Candidate("nvcc", Path(on_path), "PATH")
        yield from toolkit(Path(on_path).resolve().parent.parent, "PATH")
    for root in places.toolkits:
        yield from toolkit(root, str(root.parent))
    for libraries in places.system:
        yield from _libraries(libraries, "system")


def match(profile: Profile, found: Iterable[Toolchain]) -> Toolchain | None:
    """The newest toolchain that a profile's specifier accepts; of equal versions the one found first."""
    from packaging.version import Version

    wanted = specifier(profile.toolkit)
    best: Toolchain | None = None
    for toolchain in found:
        fits = toolchain.compiler == profile.compiler and wanted.contains(toolchain.version, prereleases=True)
        if fits and (best is None or Version(toolchain.version) > Version(best.version)):
            best = toolchain
    return best


def install_command(profile: Profile) -> str:
    """The command that installs a toolchain for a profile: `reprodb toolchains install nvrtc 12.6`."""
    wanted = specifier(profile.toolkit)
    pins = [spec.version.removesuffix(".*") for spec in wanted if spec.operator in ("==", "~=", "===")]
    floors = [spec.version for spec in wanted if spec.operator in (">=", ">")]
    version = (pins or floors or ["13"])[0]
    suggested = _SUGGESTED.get((profile.compiler, int(version.split(".")[0])))
    if suggested and wanted.contains(f"{suggested}.131"):
        version = suggested
    return f"reprodb toolchains install {profile.compiler} {version}"


def tree(folder: Path, origin: str) -> Iterator[Candidate]:
    """What NVIDIA's wheels lay below a folder of packages."""
    wheels = folder / "nvidia"
    if wheels.is_dir():
        for part in sorted(wheels.iterdir(), reverse=True):
            yield from _libraries(part / "lib", origin)
            yield from _executable(part / "bin" / "nvcc", origin)


def toolkit(root: Path, origin: str) -> Iterator[Candidate]:
    yield from _executable(root / "bin" / "nvcc", origin)
    for folder in (root / "lib64", root / "lib", *sorted(root.glob("targets/*/lib"))):
        yield from _libraries(folder, origin)


def _executable(path: Path, origin: str) -> Iterator[Candidate]:
    if path.is_file() and os.access(path, os.X_OK):
        yield Candidate("nvcc", path, origin)


def _libraries(folder: Path, origin: str) -> Iterator[Candidate]:
    if folder.is_dir():
        names: Sequence[str] = sorted(p.name for p in folder.glob("libnvrtc.so.*"))
        for name in names:
            if _LIBRARY.fullmatch(name):
                yield Candidate("nvrtc", folder / name, origin)
