"""Build workers on all cores: each holds one toolchain, has a time limit, and dies alone."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from reprodb.cgroups import Group, group_around, place
from reprodb.domain import BuildRequest
from reprodb.errors import ToolchainError
from reprodb.pipes import ForeignValueError
from reprodb.toolchains import sass
from reprodb.toolchains.process import clean_environment, end_group, python_child, read_log, signal_name
from reprodb.toolchains.protocol import CompileOutput
from reprodb.toolchains.sass import Disassembler
from reprodb.toolchains.worker import Done, Job, receive, send

# A build that takes longer is stopped. Single kernels take a second.
TIME_LIMIT = 300.0

_KEPT_OF_A_CRASH = 4_000  # bytes of what a dying worker said


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def compile_all(
    requests: Sequence[BuildRequest],
    jobs: int | None = None,
    *,
    disassembler: Disassembler | None = None,
    seconds: float = TIME_LIMIT,
    environ: Mapping[str, str] = os.environ,
    memory: int | None = None,
) -> Iterator[Done]:
    """Compile requests in worker processes; answers as they come, numbered as the requests are.

    A worker that crashes, runs past `seconds` or takes more than `memory` bytes with all that it started
    (None for nine tenths of what there is; where the system sees to it) costs its own request, which comes
    back failed with the reason. Leaving the iteration early ends all workers. Raises ToolchainError where no
    temporary folder can be made.
    """
    if not requests:
        return
    limit = max(1, min(jobs or cores(), len(requests)))
    try:
        folder = tempfile.TemporaryDirectory(prefix="reprodb-build-", ignore_cleanup_errors=True)
    except OSError as error:
        raise ToolchainError(
            f"no temporary folder to compile in: {error.strerror}: {error.filename}",
            remedy="name a writable folder with free space in TMPDIR",
        ) from error
    remembered = sass.memory(environ)
    with folder as scratch:
        pool = _Pool(limit, seconds, clean_environment(environ), memory)
        for number, request in enumerate(requests):
            pool.add(Job(number, request, Path(scratch, str(number)), disassembler, remembered))
        try:
            yield from pool.answers()
        finally:
            pool.close()


@dataclass(slots=True, eq=False)
class _Worker:
    """A running worker process of the toolchain at `path`; `said` is its standard error."""

    process: subprocess.Popen[bytes]
    path: str
    said: IO[bytes]
    enclosure: Group | None
    job: Job | None = None
    deadline: float = 0.0

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None  # noqa: S101 -- opened as a pipe
        return self.process.stdout

    @property
    def orders(self) -> IO[bytes]:
        assert self.process.stdin is not None  # noqa: S101 -- opened as a pipe
        return self.process.stdin


class _Pool:
    """Jobs that wait, by toolchain, and at most `limit` workers."""

    def __init__(self, limit: int, seconds: float, environment: dict[str, str], memory: int | None) -> None:
        self._limit = limit
        self._seconds = seconds
        self._environment = environment
        self._memory = memory
        self._place = place()
        self._waiting: dict[str, deque[Job]] = {}
        self._workers: list[_Worker] = []
        self._ready = selectors.DefaultSelector()

    def add(self, job: Job) -> None:
        self._waiting.setdefault(job.request.toolchain.path, deque()).append(job)

    def answers(self) -> Iterator[Done]:
        while True:
            self._hand_out()
            busy = [worker for worker in self._workers if worker.job]
            if not busy:
                return
            nearest = min(worker.deadline for worker in busy)
            done: list[Done] = []
            for key, _ in self._ready.select(max(0.0, nearest - time.monotonic())):
                worker: _Worker = key.data
                if worker.job is not None:
                    done.append(self._collect(worker, worker.job))
                else:  # it died while idle
                    self._discard(worker)
            for worker in busy:
                if worker.job is not None and worker.deadline <= time.monotonic():
                    done.append(self._stop(worker, worker.job))
            self._hand_out()  # nobody idles while the answers are looked at
            yield from done

    def close(self) -> None:
        for worker in tuple(self._workers):
            self._discard(worker)
        self._ready.close()

    def _hand_out(self) -> None:
        """Give every free slot a job. A worker stays with its toolchain while jobs of that wait."""
        for worker in self._workers:
            # Asked anew for each: two idle workers of one toolchain may find a single job.
            if worker.job is None and self._waiting.get(worker.path):
                self._give(worker)
        while path := self._next_toolchain():
            idle = [worker for worker in self._workers if worker.job is None]
            if len(self._workers) >= self._limit:
                if not idle:
                    return
                self._discard(idle[0])  # it holds another version
            self._give(self._start(path))

    def _next_toolchain(self) -> str | None:
        """The toolchain with the most waiting jobs a worker, so that the last workers end together."""
        at_work = Counter(worker.path for worker in self._workers)
        waiting = {path: len(jobs) / (1 + at_work[path]) for path, jobs in self._waiting.items() if jobs}
        return max(waiting, key=lambda path: waiting[path], default=None)

    def _give(self, worker: _Worker) -> None:
        job = self._waiting[worker.path].popleft()
        job.folder.mkdir()
        worker.job, worker.deadline = job, time.monotonic() + self._seconds
        # A worker that died just now is noticed when its answer is read.
        with suppress(BrokenPipeError):
            send(worker.orders, job)

    def _start(self, path: str) -> _Worker:
        said = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the worker
        process = subprocess.Popen(
            python_child("reprodb.toolchains.worker"), env=self._environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=said, start_new_session=True,
        )  # fmt: skip
        worker = _Worker(process, path, said, group_around(process.pid, self._place, self._memory))
        self._workers.append(worker)
        self._ready.register(worker.answers, selectors.EVENT_READ, worker)
        return worker

    def _collect(self, worker: _Worker, job: Job) -> Done:
        try:
            done = receive(worker.answers)
            if not isinstance(done, Done) or done.number != job.number:
                raise ForeignValueError("an answer to another job")
            worker.job = None
            if not done.output.ok and (reason := _exhausted(worker)):
                self._discard(worker)
                done = _failed(job, f"{reason}\n{done.output.log}")
        except (EOFError, OSError, ForeignValueError):
            end_group(worker.process)
            code = worker.process.returncode
            how = f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"
            how = _exhausted(worker) or how
            said = read_log(worker.said, _KEPT_OF_A_CRASH)
            self._discard(worker)
            done = _failed(job, f"the compiler crashed ({how})\n{said}")
        shutil.rmtree(job.folder, ignore_errors=True)
        return done

    def _stop(self, worker: _Worker, job: Job) -> Done:
        self._discard(worker)
        shutil.rmtree(job.folder, ignore_errors=True)
        return _failed(job, f"ran past its time limit of {self._seconds:g} s and was stopped")

    def _discard(self, worker: _Worker) -> None:
        end_group(worker.process)
        self._ready.unregister(worker.answers)
        self._workers.remove(worker)
        worker.job = None
        for stream in (worker.orders, worker.answers, worker.said):
            with suppress(OSError):
                stream.close()
        if worker.enclosure is not None:
            worker.enclosure.close()


def _exhausted(worker: _Worker) -> str:
    """What to say where the system ended something of the worker's for its memory; else nothing."""
    enclosure = worker.enclosure
    if enclosure is None or not enclosure.exhausted():
        return ""
    return f"memory was exhausted: a compiler may hold {enclosure.memory >> 20} MiB here"


def _failed(job: Job, reason: str) -> Done:
    log = f"{job.request.toolchain.label}: {reason}"
    return Done(job.number, CompileOutput(False, None, None, log))
