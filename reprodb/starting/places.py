"""Writing files into a repository: inside it, never over what is there without a yes, all checked before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from reprodb.errors import StoreError, UsageError
from reprodb.files import replace_file


class State(StrEnum):
    """What happened to a file."""

    WRITTEN = "written"
    REPLACED = "replaced"
    ADDED = "lines added"
    SAME = "is there already"
    KEPT = "kept as it is"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be, its path below the repository's root. One that `extends` keeps all that is there.

    Bytes that are no UTF-8 stand in `text` as Python's surrogates.
    """

    path: str
    text: str
    extends: bool = False


Ask = Callable[[str], bool]


def write_files(root: Path, files: Iterable[NewFile], ask: Ask | None) -> tuple[tuple[str, State], ...]:
    """Write files, and say what became of each. `ask` decides about a file that is there and says otherwise.

    Without anybody to ask, such a file is an error before anything is written. Raises UsageError for a place
    outside the root (through a link) too, and StoreError where a file cannot be written.
    """
    wanted = tuple(files)
    states: list[tuple[NewFile, State]] = []
    for file in wanted:
        path = _inside(root, file.path)
        old = _text(path)
        if old is None:
            states.append((file, State.WRITTEN))
        elif old == file.text:
            states.append((file, State.SAME))
        elif file.extends:
            states.append((file, State.ADDED))
        elif ask is None:
            raise UsageError(
                f"{path} is there and says something else",
                allowed="a repository without these files",
                remedy="--force replaces them; in a terminal each is asked for; nothing was written",
            )
        else:
            states.append((file, State.REPLACED if ask(f"replace {file.path}?") else State.KEPT))
    for file, state in states:
        if state in (State.WRITTEN, State.REPLACED, State.ADDED):
            _write(root / file.path, file.text)
    return tuple((file.path, state) for file, state in states)


def extended(root: Path, name: str, lines: Iterable[str]) -> NewFile:
    """A file with those of the lines at its end that it does not have yet; all else stays, byte for byte."""
    text = _text(_inside(root, name)) or ""
    there = {line.strip() for line in text.splitlines()}
    new = [line for line in lines if line not in there]
    gap = "\n" if new and text and not text.endswith("\n") else ""
    return NewFile(name, text + gap + "".join(f"{line}\n" for line in new), extends=True)


def repository_of(folder: Path) -> Path | None:
    """The nearest folder from here upwards that git keeps something in; None where there is none."""
    return next((f for f in (folder, *folder.parents) if (f / ".git").exists()), None)


def _inside(root: Path, name: str) -> Path:
    path = root / name
    parent = path.parent
    while not parent.exists() and parent != root:
        parent = parent.parent
    if not parent.resolve().is_relative_to(root.resolve()) or path.is_symlink():
        raise UsageError(
            f"{path} is a link, or below one that leaves the repository",
            allowed=f"plain files and folders under {root}",
            remedy="remove the link",
        )
    return path


def _text(path: Path) -> str | None:
    """What a file says, None where there is none."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None
