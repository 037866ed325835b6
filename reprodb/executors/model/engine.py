"""The model executor: compile stages once, execute every repetition, collect the bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import (
    ArgKind,
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
from reprodb.executors.model import layout, scheduler
from reprodb.executors.model.contraction import reconcile
from reprodb.executors.model.device import Arguments, Launch, Memory, address_of, pack_params
from reprodb.executors.model.diagnose import explain
from reprodb.executors.model.lower import Lowered, lower
from reprodb.executors.model.machine import MODEL_VERSION, Compiled, Compiler, Host, llvm_version
from reprodb.executors.model.ptx import Module, parse
from reprodb.executors.serving import Serving
from reprodb.stress import NO_PRESSURE

# Backward branches of one warp's turn; rounds in which warps only spin before their block gives way;
# backward branches of a stage spent in turns that ran out, after which it is given up.
QUANTUM = 4096
STALLS = 8
STEPS = 1 << 28
RESIDENT = 4096  # blocks kept at once when they give way


@dataclass(frozen=True, slots=True)
class Limits:
    """How long warps and stages may run; tests make them small."""

    quantum: int = QUANTUM
    stalls: int = STALLS
    steps: int = STEPS
    resident: int = RESIDENT


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel's module and its stages, ready to run."""

    name: str
    module: Module
    stages: tuple[tuple[Stage, Compiled], ...]
    notes: tuple[str, ...] = ()


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
        self, cache: Path | None = None, *, arrays: Arrays | None = None, host: Host | None = None
    ) -> None:
        """`arrays` keeps inputs between results; `host` is the CPU to compile for, this one by default."""
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
                program, case.buffers, arrays, case.n, repetitions, seed, offset=self.pressure.offset
            )
        else:
            serving = Serving.of(kernel, case)
            outcome = serve(program, serving, arrays, repetitions, seed, offset=self.pressure.offset)
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
        return Program(name, module, compiled, notes)

    def _stage(self, ptx: str, module: Module, stage: Stage, changes: str) -> Compiled:
        key = self._compiler.key(ptx, stage.entry, changes)
        found = self._compiled.get(key)
        if found is None:

            def lowering() -> tuple[Lowered, str]:
                lowered = lower(module, stage.entry, fma=self.host.fma)
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
    runs = [_StageRun(program, i, memory, n, limits) for i in range(len(program.stages))]
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
    runs = [_StageRun(program, i, memory, case.n, limits) for i in range(len(program.stages))]
    pieces: dict[str, list[bytes]] = {buffer.name: [] for buffer in case.recorded}
    batches = []
    for number, composed in enumerate(serving.compositions(repetitions)):
        batches.append(composed.batch)
        memory.reset()
        served[: len(composed.order)] = requests[composed.order]
        for each in runs:
            each.reshape(composed.batch, widths)
        for launch in range(composed.launches):
            for each in runs:
                each.begin_at(launch * composed.batch)
                each.execute(scheduler.mix(seed ^ launch), number)
        for buffer in case.recorded:
            pieces[buffer.name].append(serving.part(buffer, memory.buffers[buffer.name].data, composed))
    notes = tuple(note for each in runs for note in each.notes())
    raws = {name: serving.joined(found) for name, found in pieces.items()}
    return Outcome(raws, notes, serving.batches(batches))


class _StageRun:
    """One stage over the repetitions of a run."""

    def __init__(self, program: Program, index: int, memory: Memory, n: int, limits: Limits) -> None:
        self.program, self.index, self.memory, self.n, self.limits = program, index, memory, n, limits
        self.stage, self.compiled = program.stages[index]
        lowered = self.compiled.lowered
        check_shape(program.name, self.stage, lowered)
        params = pack_params(program.name, self.stage, lowered, memory, Arguments(n))
        self.launch = Launch(
            self.stage, lowered, memory, params, self.compiled.warp, limits.quantum, limits.stalls
        )
        self.blocks = self.stage.grid[0] * self.stage.grid[1] * self.stage.grid[2]
        self.resident = self.launch.new_block()
        self.moving: list[tuple[NDArray[np.uint64], int, int]] = []

    def reshape(self, batch: int, widths: Mapping[str, int]) -> None:
        """From now on launches of `batch` requests; `widths` are the bytes of a row of what has rows."""
        lowered = self.compiled.lowered
        self.stage = self.program.stages[self.index][0].at(batch)
        check_shape(self.program.name, self.stage, lowered)
        params = pack_params(self.program.name, self.stage, lowered, self.memory, Arguments(self.n, batch))
        self.launch.reshape(self.stage, params)
        self.blocks = self.stage.grid[0] * self.stage.grid[1] * self.stage.grid[2]
        self.moving = []
        for arg, param in zip(self.stage.args, lowered.params, strict=True):
            if arg.name in widths and arg.kind is not ArgKind.SCALAR:
                place = self.launch.params[param.offset : param.offset + 8].view(np.uint64)
                self.moving.append((place, int(place[0]), widths[arg.name]))

    def begin_at(self, row: int) -> None:
        """The next launch's requests begin at this row."""
        for place, first, width in self.moving:
            place[0] = first + row * width

    def execute(self, seed: int, repetition: int) -> None:
        launch, run_blocks = self.launch, self.compiled.run
        order = scheduler.block_order(self.blocks, seed, repetition, self.index)
        launch.start(scheduler.warp_seed(seed, repetition, self.index), self.limits.steps)
        parked: list[tuple[tuple[Any, Any], int]] = []
        at = 0
        while at < self.blocks:
            record = address_of(self.resident[0])
            at = int(run_blocks(launch.address, record, address_of(order), at, self.blocks))
            if at == self.blocks:
                break
            self._check(int(order[at]))
            parked.append((self.resident, int(order[at])))
            self.resident = launch.new_block()
            at += 1
            while len(parked) >= self.limits.resident:
                parked = self._again(parked)
        while parked:
            parked = self._again(parked)

    def _again(self, parked: list[tuple[tuple[Any, Any], int]]) -> list[tuple[tuple[Any, Any], int]]:
        """Gives each block that had given way another turn; those that still have not finished."""
        left = []
        for block, number in parked:
            code = int(self.compiled.again(self.launch.address, address_of(block[0])))
            if code == layout.RC_ERROR:
                self._check(number)
            elif code != layout.RC_DONE:
                left.append((block, number))
        return left

    def _check(self, block: int) -> None:
        if self.launch.get(layout.L_ERROR, 4):
            raise explain(
                self.program.name, self.stage, self.compiled.lowered, self.launch, self.memory, block
            )

    def notes(self) -> list[str]:
        told = (
            (
                layout.L_UNDEFINED,
                "read a lane that does not take part; its value is undefined; the model gives 0, as an "
                "H200 does",
            ),
            (
                layout.L_NANS,
                "met two different NaNs; which of them goes on depends on the order in which ptxas has put "
                "the operands; the model takes that of the text",
            ),
        )
        notes = []
        for place, what in told:
            number = self.launch.get(place, 4)
            if number:
                site = self.compiled.lowered.sites[number - 1]
                notes.append(f"{self.stage.entry}: {site.opcode} at {site.where} {what}")
        return notes


def check_shape(kernel: str, stage: Stage, lowered: Lowered) -> None:
    """Launch limits of every CUDA device: raises ExecutionError where a shape breaks one."""
    threads = stage.block[0] * stage.block[1] * stage.block[2]
    if min(stage.grid) < 1 or min(stage.block) < 1:
        raise ExecutionError(
            f"{kernel}: stage {stage.entry} has grid {stage.grid} and block {stage.block}",
            allowed="at least 1 in every dimension",
        )
    if threads > 1024 or stage.block[2] > 64:
        raise ExecutionError(
            f"{kernel}: stage {stage.entry} has blocks of {threads} threads, {stage.block}",
            allowed="up to 1024 threads a block, 64 of them along z",
        )
    if stage.grid[0] >= 1 << 31 or max(stage.grid[1:]) >= 1 << 16:
        raise ExecutionError(
            f"{kernel}: stage {stage.entry} has grid {stage.grid}",
            allowed="below 2^31 blocks along x, 65536 along y and z",
        )
    total = lowered.shared_bytes + stage.shared
    if total > layout.MOST_SHARED:
        raise ExecutionError(
            f"{kernel}: stage {stage.entry} needs {total} bytes of shared memory",
            allowed=f"up to {layout.MOST_SHARED}",
        )


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
