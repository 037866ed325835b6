"""What an executor is, the table of them, and how raw repetitions become patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Protocol

from reprodb.digest import run_hash, sha256
from reprodb.domain import (
    Artifact,
    Buffer,
    Case,
    Device,
    Kernel,
    Lane,
    Output,
    OutputSamples,
    Pairs,
    Pattern,
    Samples,
)
from reprodb.errors import ExecutionError, UsageError
from reprodb.executors.arrays import Arrays
from reprodb.stress import Pressure

REPLAY = "REPRODB_REPLAY"  # of the environment: with 0 the model executes every arrival order in full


class Executor(Protocol):
    """Runs artifacts on one device. Raises ExecutionError and UnsupportedError."""

    pressure: Pressure  # what the next execution is put under

    @property
    def lane(self) -> Lane: ...

    def execute(
        self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int = 0
    ) -> Samples: ...

    def libraries(self) -> Pairs: ...


class DeviceError(ExecutionError):
    """A CUDA call failed. After a `sticky` one every further call in this process fails too."""

    sticky = False


@dataclass(frozen=True, slots=True)
class Platform:
    """What an executor reads from its running context."""

    lane: Lane
    libraries: Pairs = ()
    device: Device | None = None
    driver: str | None = None
    cuda_driver: str | None = None
    cuda_runtime: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """What a worker needs to open its executor. `device` is the ordinal that CUDA counts by."""

    name: str
    device: int = 0
    cache: Path | None = None  # where the model keeps compiled object code
    memory: int | None = None  # bytes of address space for the model; CUDA needs far more than it uses


# Opens an executor: what it is, and what it found around it. Inputs are kept in the arrays given.
Opener = Callable[[ExecutorOptions, Arrays], tuple[Executor, Platform]]


def _open_cuda(options: ExecutorOptions, arrays: Arrays) -> tuple[Executor, Platform]:
    from reprodb.executors.context import begin_context

    begin_context(options.device)
    from reprodb.executors.cuda import CudaExecutor

    executor = CudaExecutor.open(options.device, arrays)
    return executor, executor.platform()


def _open_model(options: ExecutorOptions, arrays: Arrays) -> tuple[Executor, Platform]:
    from reprodb.executors.model.engine import Limits, ModelExecutor

    limits = Limits(log=0) if environ.get(REPLAY) == "0" else Limits()
    executor: Executor = ModelExecutor(options.cache, arrays=arrays, limits=limits)
    return executor, Platform(executor.lane, executor.libraries())


def _open_host(options: ExecutorOptions, arrays: Arrays) -> tuple[Executor, Platform]:
    from reprodb.executors.programs import HostExecutor

    executor: Executor = HostExecutor()
    return executor, Platform(executor.lane, executor.libraries())


# The whole table. Each entry imports its executor only when it is opened.
EXECUTORS: dict[str, Opener] = {
    "cuda": _open_cuda,
    "model": _open_model,
    "host": _open_host,
}
LANES = {"cuda": Lane.MEASURED, "model": Lane.MODELLED, "host": Lane.HOST}


def open_executor(options: ExecutorOptions, arrays: Arrays) -> tuple[Executor, Platform]:
    """The executor named in the options, and what it found around it. `arrays` is where inputs are kept."""
    try:
        factory = EXECUTORS[options.name]
    except KeyError:
        raise UsageError(f"no executor {options.name!r}", allowed=", ".join(EXECUTORS)) from None
    return factory(options, arrays)


def collect(buffer: Buffer, raws: Iterable[bytes]) -> OutputSamples:
    """The distinct patterns of a buffer's repetitions, struct padding left out.

    `raws` are the device bytes of one repetition each, in order. Equal neighbours are compared and not
    hashed, so a thousand equal repetitions cost a thousand comparisons.
    """
    patterns: list[bytes] = []
    sequence: list[int] = []
    seen: dict[bytes, int] = {}
    last: bytes | None = None
    index = 0
    for raw in raws:
        if raw != last:
            pattern = buffer.pack(raw)
            index = seen.setdefault(pattern, len(patterns))
            if index == len(patterns):
                patterns.append(pattern)
            last = raw
        sequence.append(index)
    return OutputSamples(buffer, tuple(patterns), tuple(sequence))


def output_of(kernel: Kernel, samples: OutputSamples) -> Output:
    """What is recorded of a buffer: distinct patterns with count and first repetition, and the run hash."""
    buffer, sequence = samples.buffer, samples.sequence
    counts = [0] * len(samples.patterns)
    firsts = [-1] * len(samples.patterns)
    for repetition, index in enumerate(sequence):
        counts[index] += 1
        if firsts[index] < 0:
            firsts[index] = repetition
    first = samples.patterns[0]
    return Output(
        name=buffer.name,
        role=buffer.role,
        dtype=buffer.dtype,
        shape=buffer.shape,
        determinism=buffer.determinism or kernel.determinism,
        patterns=tuple(
            Pattern(sha256(data), count, at, data)
            for data, count, at in zip(samples.patterns, counts, firsts, strict=True)
        ),
        sequence=sequence,
        run_hash=run_hash(samples.patterns, sequence),
        fields=buffer.fields,
        first_bits=_word(first) if buffer.elements == 1 and not buffer.fields else None,
    )


def _word(data: bytes) -> str:
    """A one-element pattern as a number: `0x4b25426d`."""
    return "0x" + data[::-1].hex()
