"""A cgroup, of version 1 or 2, around a worker: limits of memory and processes for it and all that it starts.

One is made where this user may make one. In version 2 a group with processes has none with limits inside: a
worker's stands beside this process's own, in the parent, which must have been delegated. In version 1 it is
inside this process's own group of each controller.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reprodb.limits import PROCESSES, machine_memory

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_ROOM = 0.9  # of the memory that there is: this process needs some, too
_NAME = "reprodb-worker-"


@dataclass(frozen=True, slots=True)
class Place:
    """Where groups can be made, by controller, the same folder in version 2; `pids` may be missing in 1.

    `room` is the bytes that this process may take with all its workers.
    """

    version: int
    memory: Path
    pids: Path | None
    room: int


def place(root: Path = ROOT, own: Path = OWN) -> Place | None:
    """Where this user may make groups for workers; None where none can be made that limits memory."""
    try:
        mine = {
            name: path
            for _, names, path in (line.split(":", 2) for line in own.read_text().splitlines())
            for name in names.split(",")
        }
    except (OSError, ValueError):
        return None
    return _second(root, mine.get("")) or _first(root, mine)


def _second(root: Path, path: str | None) -> Place | None:
    """Version 2: beside this process's own group."""
    if path is None or not path.strip("/"):
        return None
    own = root / path.strip("/")
    try:
        controllers = (own.parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    if not {"memory", "pids"} <= set(controllers) or not _writable(own.parent):
        return None
    above = [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return Place(2, own.parent, own.parent, _room(folder / "memory.max" for folder in above))


def _first(root: Path, mine: Mapping[str, str]) -> Place | None:
    """Version 1: inside this process's own groups."""
    folders = {name: root / name / mine[name].strip("/") for name in ("memory", "pids") if name in mine}
    memory, pids = folders.get("memory"), folders.get("pids")
    if memory is None or not _writable(memory):
        return None
    above = [folder for folder in (memory, *memory.parents) if folder.is_relative_to(root / "memory")]
    limits = (folder / "memory.limit_in_bytes" for folder in above)
    return Place(1, memory, pids if pids is not None and _writable(pids) else None, _room(limits))


def _writable(folder: Path) -> bool:
    return os.access(folder / "cgroup.procs", os.W_OK) and os.access(folder, os.W_OK)


def _room(limits: Iterable[Path]) -> int:
    """The least of what the machine has and what these files allow."""
    room = machine_memory()
    for file in limits:
        with suppress(OSError, ValueError):  # the root has none; `max` is no number
            room = min(room, int(file.read_text()))
    return room


class Group:
    """A cgroup around one worker: when it takes too much, something in it is ended, and nothing else."""

    def __init__(self, where: Place, process: int, memory: int | None) -> None:
        """Raises OSError where the system refuses."""
        name = f"{_NAME}{process}"
        self.memory = int(where.room * _ROOM) if memory is None else memory
        self._memory = where.memory / name
        self._kills = "memory.events" if where.version == 2 else "memory.oom_control"
        self._folders = tuple(dict.fromkeys(f / name for f in (where.memory, where.pids) if f is not None))
        try:
            for folder in self._folders:
                _make(folder)
            if where.version == 2:
                _set(self._memory / "memory.max", self.memory)
                swap = self._memory / "memory.swap.max", 0
            else:
                _set(self._memory / "memory.limit_in_bytes", self.memory)
                swap = self._memory / "memory.memsw.limit_in_bytes", self.memory  # of both together
            with suppress(OSError):  # a kernel without swap accounting
                _set(*swap)
            if where.pids is not None:
                _set(where.pids / name / "pids.max", PROCESSES)
            for folder in self._folders:
                _set(folder / "cgroup.procs", process)
        except OSError:
            self.close()
            raise

    def exhausted(self) -> bool:
        """Whether the system ended anything in it for its memory."""
        with suppress(OSError, ValueError):
            lines = (self._memory / self._kills).read_text().splitlines()
            counts = dict(line.split(maxsplit=1) for line in lines)
            return int(counts.get("oom_kill", "0")) > 0
        return False

    def close(self) -> None:
        """Gone with its last process; one that the system still holds is left to the system."""
        for folder in self._folders:
            with suppress(OSError):
                folder.rmdir()


def _make(folder: Path) -> None:
    """A fresh group; one of a process that had this number before, and left it, goes."""
    try:
        folder.mkdir()
    except FileExistsError:
        folder.rmdir()
        folder.mkdir()


def sweep(where: Place) -> None:
    """Removes groups whose worker is gone and whose maker was killed before it could; one in use stays."""
    for controller in (where.memory, where.pids):
        for folder in controller.glob(f"{_NAME}*") if controller is not None else ():
            if not Path("/proc", folder.name.removeprefix(_NAME)).exists():
                with suppress(OSError):
                    folder.rmdir()


def _set(file: Path, value: int) -> None:
    file.write_text(f"{value}\n")


def group_around(process: int, where: Place | None, memory: int | None = None) -> Group | None:
    """A group around a worker where there can be one. `memory` in bytes; None for nine tenths of the room."""
    if where is None:
        return None
    try:
        return Group(where, process, memory)
    except OSError:
        return None
