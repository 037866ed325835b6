"""A kernel's source and the files of the suite that it includes, never a file outside the suite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from reprodb.domain import Kernel, SourceFile, Suite
from reprodb.errors import UsageError

# Every include directive, in dead code and comments too: a file too many in an artifact's key only rebuilds,
# one too few hides a change. `%:` is the digraph of `#`.
_DIRECTIVE = re.compile(
    r"^[ \t\f\v]*(?:#|%:)[ \t]*(?:include|include_next|import)\b[ \t]*(.*)$", re.MULTILINE
)
# Whether a file is there can decide what is compiled: the question counts as an include.
_ASKED = re.compile(r"""\b__has_include(?:_next)?[ \t]*\([ \t]*(["<][^)\n]*)\)""")
_QUOTED = re.compile(r'"([^"\n]+)"')
_ANGLED = re.compile(r"<([^>\n]+)>")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

# Paths of sources are recorded, and laid out again in folders of compilers: plain names alone.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
PLAIN_PATH_FORM = "folders and files named with letters, digits, '_', '.', '+' and '-', no dot first"

MOST_BYTES = 4 << 20  # of one source file
MOST_FILES = 1000


def resolve_inside(root: Path, folder: Path, name: str) -> Path | None:
    """The real path of `name` seen from `folder`, or None where it lies outside the suite's real root."""
    try:
        path = (folder / name).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL byte
        return None
    return path if path.is_relative_to(root.resolve()) else None


def is_file(path: Path) -> bool:
    """Whether a file is there. A name that no file can have (too long, with a NUL) names none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_plain_path(path: str) -> bool:
    return len(path) <= 400 and _PLAIN.fullmatch(path) is not None


def quoted_includes(text: str) -> tuple[str, ...]:
    """The names that a source includes in quotes, in dead code and comments too."""
    joined = text.replace("\\\r\n", "").replace("\\\n", "")
    quoted = (_QUOTED.match(operand.strip()) for operand in _DIRECTIVE.findall(joined))
    return tuple(dict.fromkeys(match[1] for match in quoted if match is not None))


def source_files(suite: Suite, kernel: Kernel) -> tuple[SourceFile, ...]:
    """The kernel's source first, then every file of the suite it includes, directly or not, sorted by path.

    Paths are relative to the suite, `/` between parts. `<…>` is the toolkit's and left alone, and so is a
    quoted name that no file of the suite answers to. Raises UsageError for an include that lies outside the
    suite (absolute, through `..` or through links), and for one whose name only the preprocessor knows.
    """
    root = suite.root.resolve()
    if kernel.program is not None:
        # Its own tools read it: what belongs to it is what the manifest names.
        return tuple(
            SourceFile(name, _read(root / name, name))
            for name in dict.fromkeys((kernel.source, *kernel.program.files))
        )
    first = resolve_inside(root, root, kernel.source)
    if first is None:
        raise UsageError(
            f"{kernel.manifest}: source {kernel.source!r} lies outside the suite",
            allowed=f"files under {suite.root}",
            remedy="copy the file into the suite",
        )
    seen: dict[Path, SourceFile] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        if len(seen) >= MOST_FILES:
            raise UsageError(f"{kernel.source} includes more than {MOST_FILES} files")
        shown = path.relative_to(root).as_posix()
        if not is_plain_path(shown):
            raise UsageError(f"source file {shown!r} has an unfit name", allowed=PLAIN_PATH_FORM)
        text = _read(path, shown)
        seen[path] = SourceFile(shown, text)
        waiting.extend(_included(root, path, shown, text))
    rest = sorted((f for p, f in seen.items() if p != first), key=lambda f: f.path)
    return (seen[first], *rest)


def _included(root: Path, path: Path, shown: str, text: str) -> Iterator[Path]:
    joined = text.replace("\\\r\n", "").replace("\\\n", "")  # a directive may go on after a backslash
    operands = dict.fromkeys(
        operand.strip()
        for form in (joined, _COMMENT.sub(" ", joined))
        for operand in (*_DIRECTIVE.findall(form), *_ASKED.findall(form))
    )
    for operand in operands:
        if quoted := _QUOTED.match(operand):
            target = _target(root, path, shown, quoted[1])
            if target is not None:
                yield target
        elif angled := _ANGLED.match(operand):
            if _climbs(angled[1]):
                raise _outside(root, shown, f"<{angled[1]}>")
        elif not operand.startswith("/*"):  # a comment first: the form without comments has it too
            raise UsageError(
                f"{shown} includes {operand!r}, which only the preprocessor could resolve",
                allowed='"file" of the suite or <header> of the toolkit',
                remedy="write the file's name out",
            )


def _target(root: Path, path: Path, shown: str, name: str) -> Path | None:
    """The included file of the suite, None where the name must be the toolkit's."""
    target = resolve_inside(root, path.parent, name)
    if target is None:
        raise _outside(root, shown, f'"{name}"')
    if is_file(target):
        return target
    if _climbs(name):
        raise UsageError(f'{shown} includes "{name}", which does not exist', remedy="mend the name")
    return None


def _climbs(name: str) -> bool:
    return name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name)


def _outside(root: Path, shown: str, name: str) -> UsageError:
    return UsageError(
        f"{shown} includes {name}, which lies outside the suite",
        allowed=f"quoted files under {root}, <headers> of the toolkit",
        remedy="copy the file into the suite",
    )


def _read(path: Path, shown: str) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{shown} is larger than {MOST_BYTES >> 20} MiB")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}") from error
