"""A folder of manifests → `Suite`, all of its problems in one error; and choosing kernels by name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISREG
from typing import Any

from reprodb.domain import Kernel, Suite
from reprodb.errors import UsageError
from reprodb.suite.composition import check_serials
from reprodb.suite.manifest import MODEL_SM_COUNT, read_kernel
from reprodb.suite.sources import resolve_inside, source_files
from reprodb.suite.tables import NAME_FORM, Problem, Table, collecting, is_name, shown, suggest

MANIFEST = "kernel.toml"
SUITE_FILE = "suite.toml"
MOST_BYTES = 1 << 20  # of one manifest


def bundled_suite() -> Path:
    """The suite that comes with reprodb: an installed package's own data, or the checkout's `kernels/`."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data" / "kernels"
    # Looked at first: beside an installed package `kernels/` would be somebody else's.
    return installed if installed.is_dir() else package.parent / "kernels"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a folder holds: a suite of the kernels that can be read, and what is wrong with the others."""

    suite: Suite
    manifests: tuple[str, ...]  # all of them, relative to the suite
    problems: tuple[Problem, ...]


def load_suite(root: Path, sm_count: int | None = None) -> Suite:
    """The suite in `root`: every `*/kernel.toml` directly inside, sorted by kernel name.

    Device-derived shapes are those of a device of `sm_count` multiprocessors, or of the model.
    Raises UsageError naming every problem of every manifest, each with file, key, value and what is allowed.
    """
    found = read_suite(root, sm_count)
    if found.problems:
        raise _refusal(root, found.problems)
    return found.suite


def read_suite(root: Path, sm_count: int | None = None) -> Reading:
    """The same without its refusal: a kernel with a problem is left out. Raises UsageError for no folder."""
    if not _is_folder(root):
        raise UsageError(
            f"suite {shown(str(root))} is no folder",
            allowed=f"a folder with */{MANIFEST} in it",
            remedy="leave --suite out to take the bundled suite",
        )
    problems: list[Problem] = []
    name, default = "", tuple[str, ...]()
    with collecting(problems):
        name, default = _suite_file(root)
    manifests: list[Path] = []
    with collecting(problems):
        manifests = _manifests(root, problems)
    kernels: list[Kernel] = []
    refused: set[str] = set()
    for path in manifests:
        place = path.relative_to(root).as_posix()
        with collecting(problems):
            if not is_name(path.parent.name):
                raise Problem(str(root), f"folder {path.parent.name!r} is no kernel folder", NAME_FORM)
            data = _parse(root, path, place)
            kernel, found = read_kernel(root, place, data, sm_count or MODEL_SM_COUNT)
            problems += found
            if kernel is None:
                refused.add(_named(data))
            else:
                kernels.append(kernel)
    problems += _duplicates(kernels)
    # That a kernel could not be read is said already, and not again of those that name it.
    unread = {path.parent.name for path in manifests} - {Path(k.manifest).parent.name for k in kernels}
    problems += check_serials(kernels, refused | unread)
    suite = Suite(name or root.resolve().name, root, tuple(sorted(kernels, key=lambda k: k.name)), default)
    if default and not problems and not any(set(default) & set(k.tags) for k in kernels):
        problems.append(Problem(SUITE_FILE, f"default = {list(default)}", _tags_of(suite)))
    sound: dict[str, Kernel] = {}
    for kernel in suite.kernels:
        with collecting(problems):
            _check_sources(suite, kernel)
            sound.setdefault(kernel.name, kernel)
    if not manifests:
        own = (root / MANIFEST).is_file()
        problems.append(
            Problem(
                str(root),
                f"no */{MANIFEST} in this folder" + f", but {MANIFEST} itself: it is a kernel's own" * own,
                "one folder a kernel",
                f"name the folder above: {root.resolve().parent}" if own else "",
            )
        )
    # A missing key is noticed as such and again where its value is read: said once, with what it may be.
    told = {(p.where, p.what): p for p in problems}
    places = tuple(path.relative_to(root).as_posix() for path in manifests)
    return Reading(replace(suite, kernels=tuple(sound.values())), places, tuple(told.values()))


def _named(data: dict[str, Any]) -> str:
    """The name that a refused manifest gives to its kernel, or ""."""
    head = data.get("kernel")
    name = head.get("name") if isinstance(head, dict) else None
    return name if isinstance(name, str) else ""


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, a folder above that may not be looked into
        return False


def _manifests(root: Path, problems: list[Problem]) -> list[Path]:
    """Every `*/kernel.toml`, sorted. A kernel's folder that may not be looked into is a problem: passed over,
    its rows would go missing without a word."""
    found = []
    try:
        folders = sorted(root.iterdir())
    except OSError as error:
        raise Problem(str(root), f"cannot be read: {error.strerror}") from None
    for folder in folders:
        path = folder / MANIFEST
        try:
            if S_ISREG(path.stat().st_mode):
                found.append(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if is_name(folder.name):
                problems.append(Problem(f"{folder.name}/{MANIFEST}", f"cannot be read: {error.strerror}"))
    return found


def _refusal(root: Path, problems: Sequence[Problem]) -> UsageError:
    if len(problems) == 1:
        only = problems[0]
        return UsageError(f"{only.where}: {only.what}", allowed=only.allowed, remedy=only.remedy)
    lines = "\n".join(str(p) for p in problems)
    return UsageError(f"suite {str(root)!r} has {len(problems)} problems", detail=lines)


def _duplicates(kernels: Iterable[Kernel]) -> list[Problem]:
    first: dict[str, Kernel] = {}
    problems = []
    for kernel in kernels:
        if kernel.name in first:
            problems.append(
                Problem(
                    f"{kernel.manifest}: [kernel]",
                    f"name = {kernel.name!r} is also the name of {first[kernel.name].manifest}",
                    "each name once",
                )
            )
        first.setdefault(kernel.name, kernel)
    return problems


def _check_sources(suite: Suite, kernel: Kernel) -> None:
    try:
        source_files(suite, kernel)
    except UsageError as error:
        raise Problem(kernel.manifest, error.problem, error.allowed, error.remedy) from None


def _suite_file(root: Path) -> tuple[str, tuple[str, ...]]:
    """The suite's name, and the tags that it runs by default."""
    path = root / SUITE_FILE
    if path.is_file():
        table = Table(SUITE_FILE, _parse(root, path, SUITE_FILE))
        table.expect(("name",), ("default",))
        if table.problems:
            raise table.problems[0]
        return table.name("name"), table.texts("default")
    name = root.resolve().name
    if not is_name(name):
        raise Problem(
            str(root),
            f"the folder's name {name!r} is no suite name",
            NAME_FORM,
            f"put a name into {SUITE_FILE} there: name = {_name_like(name)!r}",
        )
    return name, ()


def _name_like(text: str) -> str:
    """A suite name made of what a folder is called."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:100]
    return plain or "kernels"


def _parse(root: Path, path: Path, place: str) -> dict[str, Any]:
    if resolve_inside(root, path.parent, path.name) is None:
        raise Problem(place, "is a link to a file outside the suite", "files of the suite")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Problem(place, f"cannot be read: {error.strerror}") from None
    return parse_toml(data, place)


def parse_toml(data: bytes, place: str) -> dict[str, Any]:
    """The tables of a manifest's bytes. Raises Problem, whatever the bytes are."""
    if len(data) > MOST_BYTES:
        raise Problem(place, "the file is too large", f"at most {MOST_BYTES} bytes")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Problem(place, f"is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise Problem(place, f"is not TOML: {error}") from None
    except ValueError:
        raise Problem(place, "holds a number of thousands of digits") from None
    except RecursionError:
        raise Problem(place, "is nested too deeply", "tables and lists a few levels deep") from None


def resized(root: Path, kernel: Kernel, n: int) -> Kernel:
    """The kernel with one case of `n` elements, on its first case's input; judged by nothing.

    Raises UsageError where the manifest does not allow that size.
    """
    path = root / kernel.manifest
    try:
        data = _parse(root, path, kernel.manifest)
        case = {k: v for k, v in data["case"][0].items() if k not in ("reference", "rel_tol", "expected")}
        data["case"] = [{**case, "n": n, "name": f"n{n}"}]
        found, problems = read_kernel(root, kernel.manifest, data, kernel.sm_count or MODEL_SM_COUNT)
    except Problem as problem:
        found, problems = None, [problem]
    if found is None:
        raise _refusal(root, problems)
    return found


def no_kernel(suite: Suite, name: str) -> UsageError:
    """The refusal of a name or glob that meets no kernel of the suite; it may be another suite's."""
    names = [k.name for k in suite.kernels]
    near = suggest(name, names)
    return UsageError(
        f"suite {suite.name!r} has no kernel {name!r}",
        allowed=", ".join(names),
        remedy=f"{near} Or name its suite with --suite" if near else "name its suite with --suite",
    )


def select_kernels(suite: Suite, globs: Iterable[str], tags: Iterable[str] = ()) -> tuple[Kernel, ...]:
    """The kernels whose names match any of the globs and that have any of the tags, in the suite's order.

    Without globs and tags those of the suite's default tags, which are all of them where it names none.
    Raises UsageError for a glob or tag that meets nothing, with the nearest name.
    """
    wanted, labels = tuple(globs), tuple(tags)
    names = [k.name for k in suite.kernels]
    for glob in wanted:
        if not any(fnmatchcase(name, glob) for name in names):
            raise no_kernel(suite, glob)
    known = {tag for k in suite.kernels for tag in k.tags}
    for tag in labels:
        if tag not in known:
            raise UsageError(
                f"suite {suite.name!r} has no kernel with the tag {tag!r}",
                allowed=_tags_of(suite),
                remedy=suggest(tag, known),
            )
    if not wanted and not labels:
        labels = suite.default_tags
    chosen = tuple(
        k
        for k in suite.kernels
        if (not wanted or any(fnmatchcase(k.name, glob) for glob in wanted))
        and (not labels or set(labels) & set(k.tags))
    )
    if not chosen and suite.kernels:
        raise UsageError(
            f"no kernel is called {' or '.join(wanted)} and has the tag {' or '.join(labels)}",
            remedy="reprodb kernels shows names and tags",
        )
    return chosen


def _tags_of(suite: Suite) -> str:
    return ", ".join(sorted({tag for kernel in suite.kernels for tag in kernel.tags})) or "no tags"
