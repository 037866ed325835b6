"""Builds of kernels that are programs: a callable as it is, a command once in a folder of its own.

A build lies in `programs/KEY/` of the artifact store: `src/` with the files of the suite, `out/` with what
the build commands made. The key covers what they could see: sources, commands, tools, a compiler's options.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from reprodb import placeholders
from reprodb.codegen import code_of
from reprodb.digest import content_key, sha256
from reprodb.domain import (
    Artifact,
    Build,
    Code,
    Kernel,
    Profile,
    Program,
    SourceFile,
    Status,
    Suite,
    Toolchain,
)
from reprodb.errors import ReprodbError
from reprodb.executors.task import Prepared
from reprodb.profiles import check_arch
from reprodb.toolchains import sass
from reprodb.toolchains.options import resolved
from reprodb.toolchains.process import Runner, clean_environment, run

# The profiles of programs that no profile of the suite changes. Their names stand in rows and in --profile.
LIBRARY = Profile("library", "library", "*")
COMMAND = Profile("command", "command", "*")
OWN_PROFILES: Mapping[str, Profile] = MappingProxyType({p.name: p for p in (LIBRARY, COMMAND)})
# What runs there, until the run itself has said which versions it loaded.
UNREAD = "unread"
# The architecture of what no GPU runs.
HOST_ARCH = "host"
BUILD_SECONDS = 600.0
IMPORT_SECONDS = 60.0
_DONE = "log.txt"


def by_compiler(program: Program) -> bool:
    """Whether a program is another one under every profile of nvcc."""
    words = (word for command in program.build for word in command)
    return any(place in placeholders.COMPILER for place, _ in placeholders.used(words))


def runs_under(program: Program, profile: Profile) -> bool:
    """Whether a program is built under this profile."""
    if program.kind == "python":
        return profile.name == LIBRARY.name
    if not by_compiler(program):
        return profile.name == COMMAND.name
    wanted = not program.profiles or any(fnmatchcase(profile.name, glob) for glob in program.profiles)
    return profile.compiler == "nvcc" and wanted


def profiles_of(program: Program) -> str:
    """Under which profiles a program runs, in words."""
    if program.kind == "python":
        return LIBRARY.name
    if not by_compiler(program):
        return COMMAND.name
    return "those of nvcc" + (f" that are called {' or '.join(program.profiles)}" * bool(program.profiles))


def lacking(kernels: Iterable[Kernel]) -> dict[str, str]:
    """The kernels that need a module which cannot be imported here, with what the import says."""
    found = {}
    for kernel in kernels:
        problems = [import_problem(name) for name in (kernel.program.needs if kernel.program else ())]
        if problem := next(filter(None, problems), ""):
            found[kernel.name] = problem
    return found


@cache
def import_problem(module: str) -> str:
    """Why a module cannot be imported beside CuPy; empty where it can.

    Asked in a process of its own: CuPy takes seconds and memory, and finds its libraries when it is imported.
    """
    beside = "try:\n    import cupy\nexcept ImportError:\n    pass"  # a module that needs it says so itself
    code = f"import sys\nsys.path[:] = {sys.path!r}\n{beside}\nimport {module}"
    with tempfile.TemporaryDirectory() as folder:
        ended = run([sys.executable, "-c", code], Path(folder), os.environ, IMPORT_SECONDS)
    said = [line for line in ended.log.splitlines() if line.strip()]
    return "" if ended.ok else f"{module}: {said[-1] if said else ended.reason}"


def own_toolchain(profile: Profile) -> Toolchain:
    """What stands for a compiler under a profile of OWN_PROFILES."""
    return Toolchain(profile.compiler, UNREAD, "", "programs")


def prepare(
    suite: Suite,
    kernel: Kernel,
    profile: Profile,
    toolchain: Toolchain,
    arch: str,
    root: Path,
    *,
    compile_it: bool = True,
    build_it: bool = True,
    runner: Runner = run,
) -> tuple[Artifact, Prepared]:
    """The program built, from the store where it is there; a failed build is an artifact with its log.

    Without `build_it` an artifact of which nothing was made: whoever is to run it refuses.
    """
    from reprodb.suite import source_files

    program = kernel.program
    assert program is not None  # noqa: S101 -- the caller asks only where there is one
    files = source_files(suite, kernel)
    compiled = by_compiler(program)
    options = resolved(profile, check_arch(arch), kernel.defines) if compiled else ()
    tool = toolchain if compiled else _tools(program, toolchain)
    key = _key(kernel, program, files, tool, options, arch)
    place = root.absolute() / "programs" / key
    status, log, code = Status.OK, "", None
    if program.build and build_it:
        try:
            values = _values(kernel, place, toolchain, arch, options)
            log = _built(place, kernel, program, files, values, compile_it, runner)
            code = _code(place / "out", program)
        except ReprodbError as error:
            status, log = Status.BUILD_FAILED, str(error)
    build = Build(
        key=key,
        profile=profile,
        toolchain=tool if not compiled else _without_path(tool),
        arch=arch,
        options=options,
        defines=kernel.defines,
        sources=tuple((file.path, sha256(file.text.encode())) for file in files),
        status=status,
        log=log,
        code=code,
    )
    return Artifact(build), Prepared(files, str(place))


def _without_path(toolchain: Toolchain) -> Toolchain:
    return replace(toolchain, path="")


def _key(
    kernel: Kernel,
    program: Program,
    files: tuple[SourceFile, ...],
    toolchain: Toolchain,
    options: tuple[str, ...],
    arch: str,
) -> str:
    parts = ["toolchain", *(f"{name}={value}" for name, value in toolchain.identity), "arch", arch]
    parts += ["options", *options, "function", program.function]
    parts += ["defines", *(f"{name}={value}" for name, value in kernel.defines)]
    for command in program.build:
        parts += ["build", *command]
    parts += ["run", *program.run]
    for file in files:
        parts += [file.path, file.text]
    return content_key("reprodb.program/1", *parts)


def _tools(program: Program, toolchain: Toolchain) -> Toolchain:
    """The toolchain with the tools that the commands name, each by the digest of its executable."""
    found = {}
    for words in (*program.build, program.run):
        path = shutil.which(words[0]) if words and "{" not in words[0] else None
        if path is not None:
            found[Path(words[0]).name] = sha256(Path(path).read_bytes())[:16]
        elif words and words[0] == "{python}":
            found["python"] = sys.version.split()[0]
    return replace(toolchain, version=" ".join(found) or UNREAD, components=tuple(sorted(found.items())))


def _values(
    kernel: Kernel, place: Path, toolchain: Toolchain, arch: str, options: tuple[str, ...]
) -> dict[str, str | tuple[str, ...]]:
    source = place / "src" / kernel.source
    values: dict[str, str | tuple[str, ...]] = {
        "source": str(source),
        "folder": str(source.parent),
        "out": str(place / "out"),
        "python": sys.executable,
        "nvcc": toolchain.path,
        "arch": arch,
        "flags": options,
        "cccl": tuple(f"-I{path}" for path in _cccl()),
    }
    return values | {f"define:{name}": value for name, value in kernel.defines}


def _cccl() -> tuple[str, ...]:
    """The CUB, Thrust and libcu++ headers that CuPy carries; without it nvcc finds its own."""
    spec = find_spec("cupy")
    if spec is None or not spec.submodule_search_locations:
        return ()
    root = Path(next(iter(spec.submodule_search_locations))) / "_core/include/cupy/_cccl"
    return tuple(str(root / part) for part in ("libcudacxx", "cub", "thrust") if (root / part).is_dir())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time builds in a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _built(
    place: Path,
    kernel: Kernel,
    program: Program,
    files: tuple[SourceFile, ...],
    values: placeholders.Values,
    compile_it: bool,
    runner: Runner,
) -> str:
    """The log of the build, made now or before. Raises ReprodbError where a command fails."""
    with _locked(place.with_suffix(".lock")):
        done = place / _DONE
        if done.is_file():
            return done.read_text("utf-8", "replace")
        if not compile_it:
            raise ReprodbError(f"{kernel.name} was not built here", remedy="run without --no-compile")
        shutil.rmtree(place, ignore_errors=True)
        for file in files:
            target = place / "src" / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.text, "utf-8")
        (place / "out").mkdir()
        scraps = place / "tmp"
        scraps.mkdir()
        environment = clean_environment(os.environ, scraps) | {"HOME": str(scraps)}
        logs = []
        for command in program.build:
            words = placeholders.filled(command, values)
            ended = runner(words, (place / "src" / kernel.source).parent, environment, BUILD_SECONDS)
            logs.append(ended.log)
            if not ended.ok:
                raise ReprodbError(f"{Path(words[0]).name}: {ended.reason}", detail=ended.log)
        shutil.rmtree(scraps, ignore_errors=True)
        log = "".join(logs)
        done.write_text(log, "utf-8")
        return log


def _code(out: Path, program: Program) -> Code | None:
    """The identity of the GPU code that the manifest names; None where it names none, or no tool reads it."""
    if not program.cubins:
        return None
    root = out.resolve()
    texts = []
    for name in program.cubins:
        path = (out / name).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            raise ReprodbError(f"the build made no {name}", remedy="mend build or cubins in the manifest")
        text = sass.disassemble(path.read_bytes())
        if text is None:
            return None
        texts.append(text)
    return code_of(None, "\n".join(texts))
