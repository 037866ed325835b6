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


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other worker is inside `alone` of this name."""
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
