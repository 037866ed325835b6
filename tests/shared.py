"""A folder that the workers of one test session share, and what only one of them does at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "REPRODB_TEST_FOLDER"  # set by tests/conftest.py


def folder() -> Path:
    return Path(os.environ[NAME])


def store() -> Path:
    """The artifact store of what does not test building: entries are named by content and written whole."""
    return folder() / "store"


def store_below(place: Path) -> None:
    """The shared store is where commands in `place` look for theirs."""
    store().mkdir(exist_ok=True)
    (place / "builds").mkdir(exist_ok=True)
    (place / "builds" / "store").symlink_to(store(), target_is_directory=True)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other worker is inside `alone` of this name."""
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
