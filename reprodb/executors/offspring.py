"""The processes that a process started, also those that left its group: found in /proc and ended.

A daemon leaves the group and session of whoever started it, and its parent is gone. It stays a descendant of
the next process above that adopts orphans, which a worker does on Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
# How long killed processes may take to go; one inside a driver can outlast SIGKILL.
_SECONDS = 5.0
_PAUSE = 0.002


def adopt() -> None:
    """From now on this process is the parent of every orphan below it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(process: int) -> frozenset[int]:
    """The numbers of all processes below one; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # `pid (name) state ppid …`: the name may hold anything, brackets and blanks too.
            parent = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found: set[int] = set()
    left = [process]
    while left:
        for child in children.get(left.pop(), ()):
            if child not in found:
                found.add(child)
                left.append(child)
    return frozenset(found)


def kill(processes: Collection[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def end_all(but: Collection[int] = ()) -> None:
    """End every process below this one except those named, and reap them."""
    until = time.monotonic() + _SECONDS
    while (left := descendants(os.getpid()).difference(but)) and time.monotonic() < until:
        kill(left)
        for process in left:
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        time.sleep(_PAUSE)
