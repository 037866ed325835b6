"""Which releases an atlas is made of: words of the command line → installed toolchains, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from packaging.version import Version

from reprodb.domain import Result, Toolchain
from reprodb.errors import ToolchainError, UsageError
from reprodb.recovery import Compilers, Missing

if TYPE_CHECKING:
    from reprodb.versions import Index

COMPILER = "nvrtc"
EVERY = "all"


def chosen(
    words: str | None,
    compilers: Compilers,
    index: Index | None,
    *,
    headers: bool,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Toolchain, ...]:
    """The toolchains that `12.0,12.4`, `all` or nothing (all that are installed) stand for.

    A version names an exact one, or the newest installed that starts with it, else the newest published one,
    which is then installed where that is allowed. With `headers` an installed one without CUDA's headers is
    installed anew with them where that is allowed. Raises UsageError for what is no version or less than two,
    and ToolchainError for those that are not here and may not, or cannot, be installed. `say` hears where
    the published releases could not be looked up.
    """
    here = [t for t in compilers.found if t.compiler == COMPILER]
    wanted = _wanted(words, here, index, say)
    if len(wanted) < 2:
        found = ", ".join(str(version) for version in wanted) or "none"
        raise UsageError(
            f"an atlas needs two versions of {COMPILER} at least, and there is {found}",
            allowed=f"--toolkits 12.9,13.0, or --toolkits {EVERY} for every published release",
        )
    toolchains, missing = [], []
    for version in wanted:
        toolchain = compilers.version(COMPILER, version)
        if isinstance(toolchain, Missing):
            missing.append(toolchain)
        else:
            toolchains.append(_with_headers(toolchain, compilers) if headers else toolchain)
    if missing:
        raise ToolchainError(
            "; ".join(m.why for m in missing),
            remedy="\n        ".join(dict.fromkeys(m.remedy for m in missing if m.remedy))
            if compilers.may_install
            else "without --no-install they are installed, beside what profiles find",
        )
    unique = {toolchain.version: toolchain for toolchain in toolchains}
    return tuple(sorted(unique.values(), key=lambda toolchain: Version(toolchain.version)))


def stored(words: str | None, there: Iterable[Toolchain]) -> tuple[Toolchain, ...]:
    """The same of the toolchains whose artifacts a store has."""
    return chosen(None if words == EVERY else words, Compilers(there), None, headers=False)


def of_releases(results: Sequence[Result], words: str | None) -> Sequence[Result]:
    """The results of the releases that `12.6,13.2` names; all without words.

    Raises UsageError for a release that none of them has, and for less than two.
    """
    if words in (None, EVERY):
        return results
    there = {r.build.toolchain.version for r in results if r.build}
    newest_first = [str(v) for v in sorted(map(Version, there), reverse=True)]
    wanted = _fitting(words or "", newest_first)
    unknown = [version for version in wanted if version not in there]
    if unknown or len(wanted) < 2:
        raise UsageError(
            f"the run has nothing of {COMPILER} {unknown[0]}" if unknown else "one release has no step",
            allowed=f"two or more of {', '.join(newest_first[::-1])}",
        )
    return [r for r in results if r.build and r.build.toolchain.version in wanted]


def _wanted(
    words: str | None, here: Sequence[Toolchain], index: Index | None, say: Callable[[str], None]
) -> list[str]:
    """Exact versions, or beginnings of versions that are not here."""
    installed = sorted((Version(t.version) for t in here), reverse=True)
    if words is None:
        return [str(version) for version in installed]
    if words == EVERY:
        return _published(here, index, say)
    return _fitting(words, [str(version) for version in installed])


def _fitting(words: str, newest_first: Sequence[str]) -> list[str]:
    """For each word the newest version that it is or begins, itself where there is none."""
    wanted = []
    for word in check_words(words):
        wanted.append(next((v for v in newest_first if v == word or v.startswith(f"{word}.")), word))
    return list(dict.fromkeys(wanted))


def check_words(words: str | None) -> tuple[str, ...]:
    """The parts of `12.0,12.4`; none of `all` and of nothing. Raises UsageError for what is no version."""
    if words is None or words == EVERY:
        return ()
    parts = tuple(part.strip() for part in words.split(","))
    for part in parts:
        if (
            not all(number.isascii() and number.isdigit() for number in part.split("."))
            or part.count(".") > 2
        ):
            raise UsageError(
                f"--toolkits names {part!r}", allowed=f"versions such as 12.4 or 12.6.85, or {EVERY}"
            )
    return parts


def _published(here: Sequence[Toolchain], index: Index | None, say: Callable[[str], None]) -> list[str]:
    from reprodb.versions import known

    found = known(COMPILER, (12, 13), here, index)
    if found.note:
        say(found.note)
    newest = {(v.major, v.minor): v for v in found.versions}  # ascending: the newest of a release stays
    return [str(version) for version in newest.values()]


def _with_headers(toolchain: Toolchain, compilers: Compilers) -> Toolchain:
    from reprodb.toolchains import headers

    if headers.folders(toolchain) or not compilers.may_install:
        return toolchain
    fetched = compilers.fetched(toolchain.compiler, toolchain.version)
    return toolchain if isinstance(fetched, Missing) else fetched
