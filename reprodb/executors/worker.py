"""The worker process: opens one executor and does the tasks that the pool sends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from dataclasses import dataclass
from queue import SimpleQueue

from reprodb import limits
from reprodb.errors import ReprodbError
from reprodb.executors import frames, offspring
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import ExecutorOptions, Opener, Platform, open_executor
from reprodb.executors.task import Outcome, Task, perform

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message to a worker."""

    parent: int  # its process id
    options: ExecutorOptions
    cpu_seconds: float = 0.0  # a task's limit of CPU time; 0 for none


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an executor could not be opened, as the parts of a ReprodbError."""

    problem: str
    allowed: str = ""
    remedy: str = ""
    detail: str = ""


Reply = Platform | Refusal | Outcome


def main(tasks: int, replies: int, opener: Opener = open_executor) -> None:
    """Serve tasks from file descriptor `tasks` until it ends; answer on `replies`."""
    first = frames.read(tasks)
    if first is None:
        return
    hello: Hello = frames.order(first)
    _die_with(hello.parent)
    offspring.adopt()
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(tasks, inbox), daemon=True).start()
    limits.apply(limits.Limits(memory=hello.options.memory))
    arrays = Arrays()
    try:
        executor, platform = opener(hello.options, arrays)
    except ReprodbError as error:
        _reply(replies, Refusal(error.problem, error.allowed, error.remedy, error.detail))
        return
    except Exception as error:
        _reply(replies, Refusal(f"the {hello.options.name} executor failed to start: {error!r}"))
        return
    _reply(replies, platform)
    while True:
        task: Task = frames.order(inbox.get())
        if hello.cpu_seconds:
            limits.allow_cpu(hello.cpu_seconds)
        _reply(replies, perform(executor, task, arrays))


def _reply(fd: int, message: Reply) -> None:
    sys.stdout.flush()
    frames.write(fd, frames.pack(message))


def _receive(tasks: int, inbox: SimpleQueue[bytes]) -> None:
    """Pass on tasks. The end of the pipe means that the parent is gone: leave at once, whatever runs."""
    while (body := frames.read(tasks)) is not None:
        inbox.put(body)
    os._exit(0)


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process with its parent, also while a library holds the interpreter lock."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # it died before the request was made
