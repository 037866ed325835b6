"""Worker processes with a time limit a result: one dies, hangs or turns sick, and only its result is lost."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from reprodb.cgroups import Group, Place, group_around, place, sweep
from reprodb.domain import Status
from reprodb.errors import ExecutionError
from reprodb.executors import frames, offspring
from reprodb.executors.base import REPLAY, ExecutorOptions, Platform
from reprodb.executors.task import Outcome, Task
from reprodb.executors.worker import Hello, Refusal, Reply
from reprodb.pipes import ForeignValueError

# How long an executor may take to open: CuPy and a context take seconds on a cold, busy machine.
START_SECONDS = 120.0
# A start can fail by bad luck (memory, a GPU that recovers from a crash): so often in a row, and it is none.
START_TRIES = 3
# How long a killed process may take to go. One that waits inside the driver can outlast even SIGKILL.
REAP_SECONDS = 10.0
# What is kept of a worker's own output: enough for a traceback, whatever a kernel prints.
TAIL_BYTES = 16 << 10
_READ_BYTES = 1 << 20
# What the pipes to and from a worker hold: a task, or a result's patterns, while this process is busy
# recording. Users have a limit over all pipes; beyond it new ones hold next to nothing.
PIPE_BYTES = 1 << 20
PIPES_BYTES = 16 << 20
_STEP_SECONDS = 3600.0
# CPU time of a result, by its limit on the clock: that comes first, unless this process itself is stopped.
_CPU_A_SECOND = 8.0
_CPU_START = 60.0

WORKER_MODULE = "reprodb.executors.worker"
_BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(int(sys.argv[3]), int(sys.argv[4]))"
)

# What a worker sees of the environment: enough to find the driver, and all that steers CUDA, since a run
# records it. Tokens and Python's own start-up variables stay outside.
_KEPT = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD", REPLAY})
_KEPT_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "NV_", "CUPY_", "CUBLAS_", "NVTX_")


def worker_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of a worker whose temporary files go to `folder`."""
    kept = {k: v for k, v in environ.items() if k in _KEPT or k.startswith(_KEPT_PREFIXES)}
    # One thread a worker: the pool already has one process a core.
    return {**kept, "TMPDIR": str(folder), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Limits:
    """`timeout` is the seconds that one result may take, `start` those that opening an executor may.

    `memory` is the bytes that a worker and its children may hold, where the system sees to it; None for nine
    tenths of what there is.
    """

    timeout: float = 60.0
    start: float = START_SECONDS
    memory: int | None = None


class _Worker:
    """One child process, its pipes and what it is doing."""

    def __init__(
        self,
        module: str,
        hello: Hello,
        environment: dict[str, str],
        folder: Path,
        where: Place | None,
        memory: int | None,
        room: int,
    ) -> None:
        task_end, self._tasks = os.pipe()
        self.replies, reply_end = os.pipe()
        for fd in (self._tasks, self.replies):
            _widen(fd, room)
        path = [str(Path(entry).resolve()) if entry else str(Path.cwd()) for entry in sys.path]
        command = [sys.executable, "-c", _BOOT, json.dumps(path), module, str(task_end), str(reply_end)]
        try:
            # A session of its own: Ctrl-C in the terminal reaches the parent alone, which then decides.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(task_end, reply_end),
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        finally:
            os.close(task_end)
            os.close(reply_end)
        assert self.process.stdout is not None  # noqa: S101 -- it was asked for
        self.output = self.process.stdout.fileno()
        for fd in (self._tasks, self.replies, self.output):
            os.set_blocking(fd, False)
        self.reader = frames.FrameReader()
        self.tail = bytearray()
        self.printed = 0
        self.outbox = bytearray()
        self.deadline = float("inf")
        self.ticket: int | None = None
        self.group: tuple[str, str] | None = None
        self.ready = False
        self.enclosure = group_around(self.process.pid, where, memory)
        self.post(frames.pack(hello))

    @property
    def idle(self) -> bool:
        return self.ready and self.ticket is None

    @property
    def tasks(self) -> int:
        return self._tasks

    def post(self, frame: bytes) -> None:
        """Send a frame, as much as the pipe takes now; the rest goes when it can be written again."""
        self.outbox += frame
        self.flush()

    def flush(self) -> None:
        while self.outbox:
            try:
                sent = os.write(self._tasks, self.outbox)
            except BlockingIOError:
                return
            except BrokenPipeError:  # it died; the end of its replies says so
                self.outbox.clear()
                return
            del self.outbox[:sent]

    def drain(self) -> bool:
        """Take what it printed, keeping the end of it. False once it closed its output."""
        while True:
            try:
                data = os.read(self.output, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.printed += len(data)
            self.tail += data
            del self.tail[:-TAIL_BYTES]
            if len(data) < _READ_BYTES:
                return True

    def said(self) -> str:
        """What it printed, for an error message."""
        text = self.tail.decode(errors="replace").strip()
        cut = self.printed - len(self.tail)
        return f"[{cut} bytes before]\n{text}" if cut > 0 else text

    def kill(self) -> None:
        """Kill it with all that it started."""
        below = offspring.descendants(self.process.pid)  # a daemon is in another group
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        offspring.kill(below)

    def end(self) -> str:
        """Kill it with all that it started and say how it ended."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REAP_SECONDS)
        ending = _ending(self.process.returncode, self.enclosure)
        if self.enclosure is not None:
            self.enclosure.close()
        return ending

    def close(self) -> None:
        for fd in (self._tasks, self.replies):
            os.close(fd)
        if self.process.stdout is not None:
            self.process.stdout.close()


def _widen(pipe: int, room: int) -> None:
    """Let a pipe hold so much where the system allows it; what does not fit waits for this end."""
    with contextlib.suppress(OSError, AttributeError):
        if fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) < room:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, room)


def _ending(code: int | None, enclosure: Group | None) -> str:
    if code == -signal.SIGKILL and enclosure is not None and enclosure.exhausted():
        return f"memory was exhausted: a worker may hold {enclosure.memory >> 20} MiB here; it was ended"
    if code is None:
        return "the worker process could not be ended"
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the system kills so when memory runs out)" if -code == signal.SIGKILL else ""
        return f"the worker process was ended by {name}{hint}"
    return f"the worker process left with exit code {code}"


class Pool:
    """Does tasks in worker processes, at most `workers` at once. Used as a context; closing kills workers.

    `begin` sets the first worker going, `start` waits for it and says what it found. `submit` queues a task
    under a number of the caller's; `poll` waits and returns the outcomes that came. `wake` may be called from
    another thread. `module` is what a worker runs: another one than the default is a test's way in.
    """

    def __init__(
        self,
        options: ExecutorOptions,
        *,
        workers: int = 1,
        limits: Limits = Limits(),
        module: str = WORKER_MODULE,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._options = options
        self._count = workers
        self._limits = limits
        self._module = module
        self._environ = environ
        self._workers: list[_Worker] = []
        self._queue: deque[tuple[int, Task]] = deque()
        self._done: list[tuple[int, Outcome]] = []
        self._platform: Platform | None = None
        self._broken: str | None = None
        self._failed_starts = 0
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = os.pipe()
        for fd in (self._woken, self._waker):
            os.set_blocking(fd, False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._folder = Path(tempfile.mkdtemp(prefix="reprodb-"))
        self._place = place()
        if self._place is not None:
            sweep(self._place)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        """Set the first worker going and return at once: it opens its executor meanwhile."""
        if not self._workers:
            self._hire()

    def start(self) -> Platform:
        """Open the first worker. Raises ExecutionError with the executor's own words if it cannot."""
        while self._platform is None:
            if self._broken is not None:
                raise ExecutionError(self._broken)
            self.begin()
            self._step()
        return self._platform

    def another(self, device: int | None = None) -> Pool:
        """A pool of one worker like these, on another device where one is named: a fresh process."""
        options = self._options if device is None else replace(self._options, device=device)
        return Pool(options, limits=self._limits, module=self._module, environ=self._environ)

    def submit(self, ticket: int, task: Task) -> None:
        self._queue.append((ticket, task))

    def wake(self) -> None:
        """Make a waiting `poll` return. Nothing happens once the pool is closed."""
        if self._closed:
            return
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"!")

    def poll(self) -> list[tuple[int, Outcome]]:
        """Wait until a task ended or `wake` was called; the outcomes since the last call."""
        woken = False
        self._assign()
        while not self._done and not woken:
            woken = self._step()
            self._assign()
        done, self._done = self._done, []
        return done

    def run(self, tasks: Iterable[Task]) -> list[Outcome]:
        """The outcomes of all tasks, in their order."""
        outcomes: dict[int, Outcome] = {}
        count = 0
        for count, task in enumerate(tasks, 1):
            self.submit(count - 1, task)
        while len(outcomes) < count:
            outcomes.update(self.poll())
        return [outcomes[ticket] for ticket in range(count)]

    def release(self) -> None:
        """Kill every worker without waiting for their ends, which take a GPU's memory down; `close` does."""
        for worker in self._workers:
            worker.kill()

    def close(self) -> None:
        """Kill every worker and remove their folder."""
        if self._closed:
            return
        self._closed = True
        for worker in list(self._workers):
            self._dismiss(worker)
        self._selector.close()
        for fd in (self._woken, self._waker):
            os.close(fd)
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- inside ---

    def _hire(self) -> None:
        environment = worker_environment(self._environ, self._folder)
        hello = Hello(os.getpid(), self._options, _CPU_A_SECOND * self._limits.timeout + _CPU_START)
        room = min(PIPE_BYTES, PIPES_BYTES // self._count)
        worker = _Worker(
            self._module, hello, environment, self._folder, self._place, self._limits.memory, room
        )
        worker.deadline = time.monotonic() + self._limits.start
        self._workers.append(worker)
        self._selector.register(worker.replies, selectors.EVENT_READ, worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        self._watch_outbox(worker)

    def _dismiss(self, worker: _Worker) -> str:
        self._workers.remove(worker)
        for fd in (worker.replies, worker.output, worker.tasks):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
        ending = worker.end()
        worker.drain()
        worker.close()
        return ending

    def _assign(self) -> None:
        """Give queued tasks to idle workers, hiring while there are more tasks than workers on their way."""
        if self._broken is not None:
            while self._queue:
                ticket, _ = self._queue.popleft()
                self._done.append((ticket, Outcome(Status.CRASHED, error=self._broken)))
            return
        for worker in self._workers:
            if worker.idle and self._queue:
                ticket, task = self._choose(worker)
                worker.ticket, worker.group = ticket, _group(task)
                worker.deadline = time.monotonic() + self._limits.timeout
                worker.post(frames.pack(task))
                self._watch_outbox(worker)
        starting = sum(not worker.ready for worker in self._workers)
        while len(self._workers) < self._count and starting < len(self._queue):
            self._hire()
            starting += 1

    def _choose(self, worker: _Worker) -> tuple[int, Task]:
        """The next task, one on the inputs that the worker already holds if there is any."""
        for position, (ticket, task) in enumerate(self._queue):
            if _group(task) == worker.group:
                del self._queue[position]
                return ticket, task
        return self._queue.popleft()

    def _step(self) -> bool:
        """Wait for one round of events. True if `wake` was called."""
        deadline = min((worker.deadline for worker in self._workers), default=float("inf"))
        # Waiting in steps: the system takes no limit of many days.
        wait = None if deadline == float("inf") else min(max(0.0, deadline - time.monotonic()), _STEP_SECONDS)
        woken = False
        for key, mask in self._selector.select(wait):
            worker: _Worker | None = key.data
            if worker is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, _READ_BYTES)
                woken = True
            elif worker not in self._workers:
                continue  # dismissed by an earlier event of this round
            elif key.fd == worker.output:
                if not worker.drain():
                    self._selector.unregister(worker.output)
            elif mask & selectors.EVENT_WRITE:
                worker.flush()
                self._watch_outbox(worker)
            else:
                self._listen(worker)
        now = time.monotonic()
        for worker in [w for w in self._workers if w.deadline <= now]:
            self._expire(worker)
        return woken

    def _watch_outbox(self, worker: _Worker) -> None:
        watched = worker.tasks in self._selector.get_map()
        if worker.outbox and not watched:
            self._selector.register(worker.tasks, selectors.EVENT_WRITE, worker)
        elif watched and not worker.outbox:
            self._selector.unregister(worker.tasks)

    def _listen(self, worker: _Worker) -> None:
        try:
            data = os.read(worker.replies, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._bury(worker)
            return
        try:
            for body in worker.reader.feed(data):
                self._take(worker, frames.unpack(body))
        except ForeignValueError as error:
            self._refuse(worker, f"the worker process answered with something else: {error}")

    def _take(self, worker: _Worker, reply: Reply) -> None:
        worker.deadline = float("inf")
        if isinstance(reply, Platform):
            worker.ready = True
            self._failed_starts = 0
            self._platform = self._platform or reply
        elif isinstance(reply, Refusal):
            error = ExecutionError(
                reply.problem, allowed=reply.allowed, remedy=reply.remedy, detail=reply.detail
            )
            self._broken = str(error)
            self._dismiss(worker)
        elif worker.ticket is not None:
            if not isinstance(reply, Outcome):
                raise ForeignValueError(f"{type(reply).__name__} for an outcome")
            self._done.append((worker.ticket, reply))
            worker.ticket = None
            if reply.sticky:
                self._dismiss(worker)

    def _refuse(self, worker: _Worker, problem: str) -> None:
        """End a worker whose answer is none: what it ran has taken it over, or it is broken."""
        if worker not in self._workers:
            return
        self._dismiss(worker)
        if worker.ticket is not None:
            self._done.append((worker.ticket, Outcome(Status.CRASHED, error=problem)))
        elif not worker.ready:
            self._fail_start(problem)

    def _bury(self, worker: _Worker) -> None:
        """Account for a worker that closed its pipe: its task, or the whole pool if it never started."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(1.0)  # let it end by itself, so that its own exit code is seen
        ending = self._dismiss(worker)
        said = worker.said()
        error = f"{ending}\n{said}" if said else ending
        if worker.ticket is not None:
            self._done.append((worker.ticket, Outcome(Status.CRASHED, error=error)))
        elif not worker.ready:
            self._fail_start(f"no worker could be started: {error}")

    def _fail_start(self, problem: str) -> None:
        self._failed_starts += 1
        if self._failed_starts >= START_TRIES:
            self._broken = problem

    def _expire(self, worker: _Worker) -> None:
        self._dismiss(worker)
        if worker.ticket is None:
            problem = f"no worker was ready within {self._limits.start:g} s"
            self._fail_start(f"{problem}\n{worker.said()}".strip())
            return
        said = worker.said()
        error = f"ran past its limit of {self._limits.timeout:g} s and was ended"
        outcome = Outcome(
            Status.TIMED_OUT, error=f"{error}\n{said}" if said else error, seconds=self._limits.timeout
        )
        self._done.append((worker.ticket, outcome))


def _group(task: Task) -> tuple[str, str]:
    return task.kernel.name, task.case.name
