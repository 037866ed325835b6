"""What a hunt goes along: the versions of a compiler, or the commits of a suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from reprodb.domain import Case, Kernel, Profile, SourceFile, Suite, Toolchain
from reprodb.errors import ReprodbError, ToolchainError, UsageError
from reprodb.experiments import Setting
from reprodb.recovery import Compilers, Missing
from reprodb.repository import Commit, Repository
from reprodb.suite import load_suite, no_kernel, source_files
from reprodb.suite.tables import suggest

if TYPE_CHECKING:
    from packaging.version import Version


@dataclass(frozen=True, slots=True)
class Subject:
    """The kernel that is hunted through: its sources, the cases chosen of it, and how it is built."""

    kernel: Kernel
    cases: tuple[Case, ...]
    files: tuple[SourceFile, ...]
    profile: Profile
    arch: str

    def settings(self, toolchain: Toolchain) -> tuple[Setting, ...]:
        return tuple(
            Setting(replace(self.kernel, cases=(case,)), self.files, self.profile, toolchain, self.arch)
            for case in self.cases
        )


def subject_of(suite: Suite, name: str, cases: Sequence[str], profile: Profile, arch: str) -> Subject:
    """The named kernel of a suite with the cases that match any glob, all without. UsageError for a typo."""
    kernel = next((k for k in suite.kernels if k.name == name), None)
    if kernel is None:
        raise no_kernel(suite, name)
    if kernel.program is not None:
        raise UsageError(f"{name} is a program of its own", allowed="kernels that reprodb compiles")
    known = [case.name for case in kernel.cases]
    for glob in cases:
        if not any(fnmatchcase(one, glob) for one in known):
            raise UsageError(
                f"{name} has no case {glob!r}", allowed=", ".join(known), remedy=suggest(glob, known)
            )
    chosen = tuple(c for c in kernel.cases if not cases or any(fnmatchcase(c.name, glob) for glob in cases))
    return Subject(kernel, chosen, source_files(suite, kernel), profile, arch)


class VersionSeries:
    """One kernel under the versions of a compiler; each is installed when it is first tried."""

    def __init__(
        self, subject: Subject, compiler: str, versions: Sequence[Version], compilers: Compilers
    ) -> None:
        self.labels = tuple(f"{compiler} {version}" for version in versions)
        self._subject = subject
        self._compiler = compiler
        self._versions = tuple(versions)
        self._compilers = compilers

    def settings(self, place: int) -> tuple[Setting, ...]:
        version = str(self._versions[place])
        toolchain = self._compilers.version(self._compiler, version)
        if isinstance(toolchain, Missing):
            raise ToolchainError(toolchain.why, remedy=toolchain.remedy)
        profile = replace(self._subject.profile, compiler=self._compiler, toolkit=f"=={version}")
        return replace(self._subject, profile=profile).settings(toolchain)


class CommitSeries:
    """One kernel as it was at each commit, under one toolchain. The ends decide which cases are looked at."""

    def __init__(
        self,
        repository: Repository,
        commits: Sequence[Commit],
        subject_at: Callable[[Path], Subject],
        toolchain: Toolchain,
    ) -> None:
        self.labels = tuple(commit.label for commit in commits)
        self._repository = repository
        self._commits = tuple(commits)
        self._subject_at = subject_at
        self._toolchain = toolchain
        first, last = (self._subject(place) for place in (0, len(commits) - 1))
        names = {case.name for case in last.cases}
        self._cases = [case.name for case in first.cases if case.name in names]
        if not self._cases:
            raise UsageError(
                f"{self.labels[0]} and {self.labels[-1]} have no case of {first.kernel.name} in common",
                allowed="commits between which the case keeps its name",
            )

    def settings(self, place: int) -> tuple[Setting, ...]:
        subject = self._subject(place)
        by_name = {case.name: case for case in subject.cases}
        absent = [name for name in self._cases if name not in by_name]
        if absent:
            raise ReprodbError(f"no case {absent[0]}")
        return replace(subject, cases=tuple(by_name[name] for name in self._cases)).settings(self._toolchain)

    def _subject(self, place: int) -> Subject:
        """Read what is needed and let the worktree go at once. What is wrong there names the commit."""
        with self._repository.worktree(self._commits[place]) as folder:
            try:
                return self._subject_at(folder)
            except UsageError as error:
                problem = f"at commit {self.labels[place]}: {error.problem}"
                raise UsageError(problem, allowed=error.allowed, remedy=error.remedy) from None


def subject_reader(
    name: str, cases: Sequence[str], profile: Profile, arch: str, sm_count: int | None = None
) -> Callable[[Path], Subject]:
    return lambda folder: subject_of(load_suite(folder, sm_count), name, cases, profile, arch)
