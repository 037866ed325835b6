"""What a worker may take of the machine: file size, processes, CPU time, address space; memory by cgroup.

Workers run what a pull request brought. They set the first four for themselves, before any of it; children
inherit them. A cgroup is made by whoever starts a worker, where the system lets this user make one.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Far above what compilers and kernels need, low enough that a runaway one does not take the machine along.
FILE_BYTES = 16 << 30  # a command of a suite gets its inputs as files
PROCESSES = 512
_ROOM = 0.9  # of the machine's memory


@dataclass(frozen=True, slots=True)
class Limits:
    """`processes` counts what the user gains from now on; `memory` is address space, None for no limit."""

    file_bytes: int = FILE_BYTES
    processes: int = PROCESSES
    memory: int | None = None


def apply(limits: Limits) -> None:
    """Limit this process and its children for good.

    Root is above the limit on processes (the kernel's rule), which docs/security.md says.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + limits.processes)
    if limits.memory is not None:
        _lower(resource.RLIMIT_AS, limits.memory)


def allow_cpu(seconds: float) -> None:
    """From now on so much CPU time, then SIGXCPU: whatever else fails, nothing computes for ever."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, int(min(used.ru_utime + used.ru_stime + seconds, 1 << 40)) + 1)


def _lower(which: int, value: int) -> None:
    """The soft limit, never above the hard one; the hard one stays, so that the next may be higher again."""
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _tasks_of(user: int) -> int:
    """How many processes and threads a user has."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == user:
                count += sum(1 for _ in (folder / "task").iterdir())
    return count


def machine_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# --- cgroup ------------------------------------------------------------------------------------


def cgroup_parent(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The cgroup (version 2) beside which a group of its own can be made for a worker; None where none can.

    A group with processes cannot have groups with limits inside it, and so a worker's stands beside this
    process's own, in the parent.
    """
    try:
        paths = [line.removeprefix("0::") for line in own.read_text().splitlines() if line.startswith("0::")]
        parent = (root / paths[0].strip("/")).parent if paths and paths[0].strip("/") else None
        if parent is None or not {"memory", "pids"} <= set(
            (parent / "cgroup.subtree_control").read_text().split()
        ):
            return None
        return parent if os.access(parent / "cgroup.procs", os.W_OK) and os.access(parent, os.W_OK) else None
    except OSError:
        return None


class Group:
    """A cgroup around one worker: when it takes most of the machine's memory, it alone is ended."""

    def __init__(self, parent: Path, process: int) -> None:
        """Raises OSError where the system refuses."""
        self._folder = parent / f"reprodb-worker-{process}"
        self._folder.mkdir()
        try:
            self._set("memory.max", int(machine_memory() * _ROOM))
            with suppress(OSError):  # a kernel without swap accounting
                self._set("memory.swap.max", 0)
            self._set("pids.max", PROCESSES)
            self._set("cgroup.procs", process)
        except OSError:
            self.close()
            raise

    def _set(self, name: str, value: int) -> None:
        (self._folder / name).write_text(f"{value}\n")

    def close(self) -> None:
        """Gone with its last process; one that the system still holds is left to the system."""
        with suppress(OSError):
            self._folder.rmdir()


def group_around(process: int, parent: Path | None) -> Group | None:
    """A group around a worker where there can be one."""
    if parent is None:
        return None
    try:
        return Group(parent, process)
    except OSError:
        return None
