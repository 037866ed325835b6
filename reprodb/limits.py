"""What a worker may take of the machine: file size, processes, CPU time, address space.

Workers run what a pull request brought. They set these for themselves, before any of it; children inherit
them. Whoever starts a worker puts a cgroup around it as well, where the system allows one (`cgroups.py`).
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
