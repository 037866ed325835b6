"""The published versions of a compiler between two ends, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from packaging.version import Version

from reprodb.domain import Toolchain
from reprodb.errors import ToolchainError, UsageError

if TYPE_CHECKING:
    from reprodb.toolchains.install import Recipe


class Index(Protocol):
    """Where it is looked up what is published."""

    def published(self, package: str) -> tuple[Version, ...]: ...


@dataclass(frozen=True, slots=True)
class Known:
    """Versions of one compiler, ascending. `here` are installed; `note` says what could not be looked up."""

    compiler: str
    versions: tuple[Version, ...]
    here: frozenset[Version]
    note: str = ""


def known(compiler: str, majors: Iterable[int], found: Iterable[Toolchain], index: Index | None) -> Known:
    """What is published of some CUDA majors and what is installed; the installed ones alone without `index`.

    Where the index cannot be reached the installed ones are what there is, and the note says so.
    """
    from reprodb.toolchains import debian

    here = frozenset(Version(t.version) for t in found if t.compiler == compiler)
    versions = set(here)
    note = "" if index is not None else "only installed versions are looked at"
    for major in sorted(set(majors)) if index is not None else ():
        parts = _recipe(compiler, major)
        if parts is None:
            versions |= {Version(debian.VERSION)} if (compiler, major) == ("nvcc", 12) else set()
            continue
        try:
            versions |= set(index.published(parts.main)) if index is not None else set()
        except ToolchainError as error:
            note = f"{error.problem}: only installed versions are looked at"
    return Known(compiler, tuple(sorted(versions)), here, note)


def _recipe(compiler: str, major: int) -> Recipe | None:
    from reprodb.toolchains.install import recipe

    return recipe(compiler, major)


def majors(*ends: str) -> range:
    """The CUDA majors from one end to the other. Raises UsageError for what is no version."""
    found = sorted(_numbers(end)[0] for end in ends)
    return range(found[0], found[-1] + 1)


def between(all_known: Known, good: str, bad: str, *, every: bool = False) -> tuple[Version, ...]:
    """From good to bad, both included: the newest of each release, or with `every` each published version.

    An end names a version or the newest that starts with it (`12.4`). Good may be the newer one: the list
    then descends. Raises UsageError for an end that is not known.
    """
    first, last = (_pick(all_known, end) for end in (good, bad))
    if first == last:
        raise UsageError(f"good and bad are both {all_known.compiler} {first}", remedy="name two versions")
    low, high = sorted((first, last))
    inside = [v for v in all_known.versions if low <= v <= high]
    if not every:
        newest = {(v.major, v.minor): v for v in inside}  # ascending: the newest of a release stays
        ends = {(v.major, v.minor): v for v in (first, last)}
        # Two ends of one release stay both.
        inside = sorted({*(newest | ends).values(), first, last})
    return tuple(inside if first == low else inside[::-1])


def _pick(all_known: Known, end: str) -> Version:
    _numbers(end)
    fitting = [v for v in all_known.versions if str(v) == end or str(v).startswith(f"{end}.")]
    if not fitting:
        lacks = "is not installed" if all_known.note else "is neither published nor installed"
        raise UsageError(
            f"{all_known.compiler} {end} {lacks}",
            allowed=", ".join(str(v) for v in all_known.versions) or "nothing is known",
            remedy=all_known.note,
        )
    return max(fitting)


def _numbers(text: str) -> Sequence[int]:
    parts = text.split(".")
    if not 1 <= len(parts) <= 3 or not all(p.isascii() and p.isdigit() and len(p) < 6 for p in parts):
        raise UsageError(f"{text!r} is no version", allowed="13, 12.9 or 12.9.86")
    return [int(part) for part in parts]
