"""What a recorded build needs to be made again: the texts of its sources, and its compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reprodb.digest import sha256
from reprodb.domain import Pairs, SourceFile, Toolchain
from reprodb.errors import ReprodbError, UsageError
from reprodb.repository import Repository
from reprodb.suite.sources import is_plain_path, resolve_inside

_HEADERS = "included headers"  # a component that belongs to a build, not to an installed compiler


@dataclass(frozen=True, slots=True)
class Missing:
    """Why something recorded cannot be had here, and what to do."""

    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Texts:
    """Source texts that have the recorded digests. `notes` say which came out of a repository's history."""

    files: tuple[SourceFile, ...]
    notes: tuple[str, ...] = ()


class Library:
    """Looks for recorded sources in suite folders, then in the history of the repositories that hold them.

    A database knows the digests of sources and not their texts.
    """

    def __init__(self, suites: Sequence[Path]) -> None:
        """Raises UsageError for a suite that is no folder."""
        for suite in suites:
            if not suite.is_dir():
                raise UsageError(f"suite {suite} is no folder", remedy="check the path")
        self._suites = tuple(suites)
        self._repositories: list[Repository] | None = None
        self._found: dict[tuple[str, str], tuple[str, str] | None] = {}  # text, and where it came from

    def texts(self, sources: Pairs) -> Texts | Missing:
        """The files of a build, the kernel's source first. Missing names the first file that is not there."""
        files, notes = [], []
        for path, digest in sources:
            if (path, digest) not in self._found:
                self._found[path, digest] = self._look(path, digest)
            found = self._found[path, digest]
            if found is None:
                folders = " and ".join(str(suite) for suite in self._suites)
                return Missing(
                    f"{path} of digest {digest[:12]} is not in {folders}, nor in a git history of it",
                    "name a suite that holds it with --suite, beside the others",
                )
            text, note = found
            files.append(SourceFile(path, text))
            notes += [note] if note else []
        return Texts(tuple(files), tuple(notes))

    def _look(self, path: str, digest: str) -> tuple[str, str] | None:
        if not is_plain_path(path):  # what a foreign database calls a path
            return None
        for suite in self._suites:
            file = resolve_inside(suite, suite, path)
            if file is not None and file.is_file():
                data = file.read_bytes()
                if sha256(data) == digest:
                    return data.decode("utf-8"), ""
        for repository in self._histories():
            for commit, text in repository.versions(path):
                if sha256(text.encode()) == digest:
                    return text, f"{path} is the text of commit {commit.label}"
        return None

    def _histories(self) -> list[Repository]:
        if self._repositories is None:
            self._repositories = []
            for suite in self._suites:
                try:
                    self._repositories.append(Repository(suite))
                except UsageError:  # no repository holds it
                    continue
        return self._repositories


Installer = Callable[[str, str], Toolchain]


class Compilers:
    """Finds the exact compilers of records among those of this machine; `install` fetches one that is not."""

    def __init__(self, found: Iterable[Toolchain], install: Installer | None = None) -> None:
        self._found = list(found)
        self._install = install
        self.installed: list[Toolchain] = []

    @property
    def found(self) -> tuple[Toolchain, ...]:
        return tuple(self._found)

    @property
    def may_install(self) -> bool:
        return self._install is not None

    def like(self, recorded: Toolchain) -> Toolchain | Missing:
        """The same compiler of the same version, with the same parts where there are several."""
        wanted = tuple(part for part in recorded.components if part[0] != _HEADERS)
        same = [t for t in self._found if t.label == recorded.label]
        exact = [t for t in same if t.components == wanted]
        if exact or same:
            return (exact or same)[0]
        return self.version(recorded.compiler, recorded.version)

    def version(self, compiler: str, version: str) -> Toolchain | Missing:
        """An exact version, installed where it is not here and installing was asked for."""
        for toolchain in self._found:
            if toolchain.compiler == compiler and toolchain.version == version:
                return toolchain
        return self.fetched(compiler, version)

    def fetched(self, compiler: str, version: str) -> Toolchain | Missing:
        """A version installed whatever is found already, where installing was asked for."""
        if self._install is None:
            command = f"reprodb toolchains install {compiler} {version}"
            return Missing(f"{compiler} {version} is not installed", command)
        try:
            toolchain = self._install(compiler, version)
        except ReprodbError as error:
            return Missing(f"{compiler} {version} could not be installed: {error.problem}", error.remedy)
        self._found.append(toolchain)
        self.installed.append(toolchain)
        return toolchain


def bare(toolchain: Toolchain) -> Toolchain:
    """A recorded toolchain without what belongs to one build alone."""
    kept = tuple(part for part in toolchain.components if part[0] != _HEADERS)
    return replace(toolchain, components=kept)
