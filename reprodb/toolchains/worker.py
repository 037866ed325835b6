"""A build worker, a process of its own: takes jobs of one toolchain, compiles, disassembles, answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from reprodb import limits, pipes
from reprodb.domain import BuildRequest, Code
from reprodb.errors import ReprodbError
from reprodb.toolchains.protocol import CompileOutput
from reprodb.toolchains.sass import Disassembler
from reprodb.toolchains.sass_memory import SassMemory

_FRAME = 8  # bytes of a length, little endian

# Far above what compilers of kernels need, low enough that a runaway one does not take the machine along.
_MEMORY = 32 * 1024**3
_FILE = 2 * 1024**3
# CPU of one job; the pool's limit on the clock comes first, unless the pool itself is stopped.
_CPU_SECONDS = 1200.0


@dataclass(frozen=True, slots=True)
class Job:
    """One compilation in a private folder that the pool owns and removes."""

    number: int
    request: BuildRequest
    folder: Path
    disassembler: Disassembler | None
    memory: SassMemory | None = None  # of what was disassembled before


@dataclass(frozen=True, slots=True)
class Done:
    """A job's answer. `error` is set where the compiler itself is broken."""

    number: int
    output: CompileOutput
    sass: str | None = None
    code: Code | None = None


def send(stream: IO[bytes], value: Any) -> None:
    data = pipes.dumps(value)
    stream.write(len(data).to_bytes(_FRAME, "little") + data)
    stream.flush()


def receive(stream: IO[bytes], read: Callable[[bytes], Any] = pipes.loads) -> Any:
    """The next value of a pipe between pool and worker. Raises EOFError at its end, or ForeignValueError."""
    head = stream.read(_FRAME)
    if len(head) < _FRAME:
        raise EOFError
    size = int.from_bytes(head, "little")
    if size > pipes.LONGEST:
        raise pipes.ForeignValueError(f"a value of {size} bytes")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return read(data)


def carry_out(job: Job) -> Done:
    """Compile, disassemble, digest and count."""
    from reprodb.codegen import code_of
    from reprodb.toolchains.base import COMPILERS
    from reprodb.toolchains.process import run_in_group
    from reprodb.toolchains.sass import disassemble

    try:
        output = COMPILERS[job.request.toolchain.compiler].compile(job.request, job.folder)
    except (ReprodbError, OSError) as error:
        return Done(job.number, CompileOutput(False, None, None, str(error)))
    if not output.ok or output.cubin is None:
        return Done(job.number, output)
    sass = None
    if job.disassembler:
        # Inside the job's folder, so that nothing stays behind if this process is ended.
        sass = disassemble(
            output.cubin, job.disassembler, run_in_group, scratch=job.folder, memory=job.memory
        )
    return Done(job.number, output, sass, code_of(output.ptx, sass))


def main() -> None:
    """Serve jobs from standard input until it closes. Answers go to what was standard output."""
    limits.apply(limits.Limits(_FILE, memory=_MEMORY))
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever a compiler prints must not mix with the answers.
    os.dup2(2, 1)
    while True:
        try:
            job = receive(sys.stdin.buffer, pipes.order)
        except EOFError:
            return
        limits.allow_cpu(_CPU_SECONDS)
        send(answers, carry_out(job))
