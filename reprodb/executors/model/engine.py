"""The model executor: compile stages once, execute every repetition, collect the bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import (
    Artifact,
    Buffer,
    Case,
    CodeOrigin,
    Kernel,
    Lane,
    OutputSamples,
    Pairs,
    Samples,
    Stage,
)
from reprodb.errors import ExecutionError
from reprodb.executors.arrays import Arrays
from reprodb.executors.model import scheduler
from reprodb.executors.model.arrivals import Arrivals
from reprodb.executors.model.contraction import reconcile
from reprodb.executors.model.device import Memory
from reprodb.executors.model.launches import Limits, Part, StageRun
from reprodb.executors.model.lower import Lowered, lower
from reprodb.executors.model.machine import MODEL_VERSION, Compiled, Compiler, Host, llvm_version
from reprodb.executors.model.ptx import Module, parse
from reprodb.executors.model.replay import NO_ARRIVALS
from reprodb.executors.serving import Serving
from reprodb.stress import NO_PRESSURE


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel's module and its stages, ready to run."""

    name: str
    module: Module
    stages: tuple[tuple[Stage, Compiled], ...]
    notes: tuple[str, ...] = ()
    record: Callable[[int], Compiled] | None = None  # compiles a stage so that it can be replayed


@dataclass(frozen=True, slots=True)
class Outcome:
    """The raw bytes of each recorded buffer, one entry a repetition, and what there is to note."""

    raws: dict[str, list[bytes]]
    notes: tuple[str, ...]
    batches: tuple[int, ...] = ()  # as Samples has them


class ModelExecutor:
    """Executes PTX on the CPU. One thread; keeps compiled stages, in memory and in the `cache` folder."""

    lane = Lane.MODELLED

    def __init__(
        self,
        cache: Path | None = None,
        *,
        arrays: Arrays | None = None,
        host: Host | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`arrays` keeps inputs between results; `host` is the CPU to compile for, this one by default."""
        self.limits = limits or Limits()
        self.host = host or Host.this()
        self._arrays = arrays or Arrays()
        self._compiler = Compiler(self.host, cache)
        self._compiled: dict[str, Compiled] = {}
        self._last: tuple[object, Program] | None = None
        self.pressure = NO_PRESSURE  # what the next execution is put under

    def libraries(self) -> Pairs:
        """Versions of what computes; the CPU is told although no bit depends on it."""
        import llvmlite
        import numpy

        return (
            ("llvmlite", str(llvmlite.__version__)),
            ("LLVM", llvm_version()),
            ("numpy", str(numpy.__version__)),
            ("reprodb model", MODEL_VERSION),
            ("model CPU", self.host.cpu + ("" if self.host.fma else " without FMA")),
        )

    def execute(
        self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int = 0
    ) -> Samples:
        """Runs all stages `repetitions` times. Raises UnsupportedError and ExecutionError."""
        started = perf_counter()
        if artifact.ptx is None:
            raise ExecutionError(
                f"{kernel.name}: the artifact has no PTX, and the model executes nothing else",
                remedy="build the kernel with a profile that keeps PTX",
            )
        program = self.program(kernel.name, artifact.ptx, kernel.stages, artifact)
        arrays = self._arrays.of(case.inputs)
        if kernel.composition is None:
            outcome = run(
                program, case.buffers, arrays, case.n, repetitions, seed, self.limits,
                offset=self.pressure.offset,
            )  # fmt: skip
        else:
            serving = Serving.of(kernel, case)
            outcome = serve(
                program, serving, arrays, repetitions, seed, self.limits, offset=self.pressure.offset
            )
        outputs = tuple(_collect(b, outcome.raws[b.name]) for b in case.recorded)
        notes = (*program.notes, *outcome.notes)
        return Samples(outputs, CodeOrigin.PTX, perf_counter() - started, notes, outcome.batches)

    def program(
        self, name: str, ptx: str, stages: Sequence[Stage], artifact: Artifact | None = None
    ) -> Program:
        """The stages of a PTX text, lowered and compiled where they are not held yet."""
        asked = (name, ptx, tuple(stages), artifact.build if artifact is not None else None)
        # Probing an order executes one program on many inputs.
        if self._last is None or self._last[0] != asked:
            self._last = (asked, self._made(name, ptx, stages, artifact))
        return self._last[1]

    def _made(self, name: str, ptx: str, stages: Sequence[Stage], artifact: Artifact | None) -> Program:
        module = parse(ptx)
        notes: tuple[str, ...] = ()
        changes = ""
        if artifact is not None:
            entries = tuple(s.entry for s in stages)
            code = artifact.build.code
            counts = code.counts if code is not None and code.sass is not None else None
            module, notes = reconcile(module, counts, artifact.build.options, entries)
            changes = "\n".join(notes)
        compiled = tuple((s, self._stage(ptx, module, s, changes)) for s in stages)

        def record(index: int) -> Compiled:
            return self._stage(ptx, module, stages[index], changes, recorded=True)

        return Program(name, module, compiled, notes, record)

    def _stage(
        self, ptx: str, module: Module, stage: Stage, changes: str, *, recorded: bool = False
    ) -> Compiled:
        key = self._compiler.key(ptx, stage.entry, changes, *(["recorded"] if recorded else []))
        found = self._compiled.get(key)
        if found is None:

            def lowering() -> tuple[Lowered, str]:
                lowered = lower(module, stage.entry, fma=self.host.fma, recorded=recorded)
                return lowered.without_text(), lowered.text

            found = self._compiler.stage(key, lowering)
            self._compiled[key] = found
        return found


def run(
    program: Program,
    buffers: Sequence[Buffer],
    arrays: Mapping[str, NDArray[Any]],
    n: int,
    repetitions: int,
    seed: int,
    limits: Limits | None = None,
    *,
    offset: int = 0,
) -> Outcome:
    """Every repetition of all stages: memory reset, then each stage's blocks in an order of its own."""
    limits = limits or Limits()
    memory = Memory(program.module, buffers, arrays, offset)
    work = (repetitions - 1) * sum(array.nbytes for array in arrays.values())
    replays = limits.log > 0 and work >= limits.worth
    runs = [_arriving(program, part, memory, n, limits, replays=replays) for part in _parts(program)]
    recorded = [b.name for b in buffers]
    raws: dict[str, list[bytes]] = {name: [] for name in recorded}
    for repetition in range(repetitions):
        memory.reset()
        for each in runs:
            each.execute(seed, repetition)
        for name in recorded:
            raw = memory.buffers[name].data.tobytes()
            held = raws[name]
            held.append(held[-1] if held and held[-1] == raw else raw)
    notes = tuple(note for each in runs for note in each.notes())
    return Outcome(raws, notes)


def _parts(program: Program) -> list[Part]:
    return [Part(program.name, i, *each) for i, each in enumerate(program.stages)]


def _arriving(
    program: Program, part: Part, memory: Memory, n: int, limits: Limits, *, replays: bool
) -> StageRun | Arrivals:
    """A stage's run; where it has arrival orders, one that replays them if it can."""
    plain = StageRun(part, memory, n, limits)
    record = program.record
    if record is None or not replays or part.compiled.lowered.unfit == NO_ARRIVALS:
        return plain
    return Arrivals(plain, lambda: record(part.index))


def serve(
    program: Program,
    serving: Serving,
    arrays: Mapping[str, NDArray[Any]],
    repetitions: int,
    seed: int,
    limits: Limits | None = None,
    *,
    offset: int = 0,
) -> Outcome:
    """Every composition of every repetition: requests laid down as they are served, a launch a batch."""
    limits = limits or Limits()
    case, widths = serving.case, serving.row_bytes()
    requests = serving.requests(arrays[serving.input])
    room = np.empty((serving.room, *requests.shape[1:]), requests.dtype)
    memory = Memory(program.module, case.buffers, {**arrays, serving.input: room}, offset)
    served = memory.inputs[serving.input].data.view(requests.dtype).reshape(room.shape)
    runs = [StageRun(part, memory, case.n, limits) for part in _parts(program)]
    pieces: dict[str, list[bytes]] = {buffer.name: [] for buffer in case.recorded}
    batches = []
    for number, composed in enumerate(serving.compositions(repetitions)):
        batches.append(composed.batch)
        memory.reset()
        served[: len(composed.order)] = requests[composed.order]
        for each in runs:
            each.reshape(composed.batch, widths)
        for launch in range(composed.launches):
            # No launch has a right to the rows of another, although they lie in the same buffers here.
            first, after = launch * composed.batch, (launch + 1) * composed.batch
            memory.bound({name: (first * width, after * width) for name, width in widths.items()})
            for each in runs:
                each.begin_at(first)
                each.execute(scheduler.mix(seed ^ launch), number)
        for buffer in case.recorded:
            pieces[buffer.name].append(serving.part(buffer, memory.buffers[buffer.name].data, composed))
    notes = tuple(note for each in runs for note in each.notes())
    raws = {name: serving.joined(found) for name, found in pieces.items()}
    return Outcome(raws, notes, serving.batches(batches))


def _collect(buffer: Buffer, raws: Sequence[bytes]) -> OutputSamples:
    from reprodb.executors.base import collect

    return collect(buffer, raws)


def run_stages(
    ptx: str,
    stages: Sequence[Stage],
    buffers: Sequence[Buffer],
    arrays: Mapping[str, NDArray[Any]],
    n: int,
    repetitions: int = 1,
    seed: int = 0,
    *,
    executor: ModelExecutor | None = None,
    limits: Limits | None = None,
    name: str = "kernel",
) -> dict[str, list[bytes]]:
    """Executes PTX as it is on given arrays: the raw bytes of every buffer, one entry a repetition."""
    executor = executor or ModelExecutor()
    program = executor.program(name, ptx, stages)
    return run(program, buffers, arrays, n, repetitions, seed, limits).raws


__all__ = ["Limits", "ModelExecutor", "Outcome", "Program", "run", "run_stages"]
