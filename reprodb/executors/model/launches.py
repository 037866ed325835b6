"""One stage over the repetitions of a run: its launches, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import ArgKind, Stage
from reprodb.errors import ExecutionError
from reprodb.executors.model import layout, scheduler
from reprodb.executors.model.device import Arguments, Launch, Memory, address_of, pack_params
from reprodb.executors.model.diagnose import explain
from reprodb.executors.model.lower import Lowered
from reprodb.executors.model.machine import Compiled

# Runs blocks: launch record, block record, the order, and the first and the last place in it.
RunBlocks = Callable[[int, int, int, int, int], int]

# Backward branches of one warp's turn; rounds in which warps only spin before their block gives way;
# backward branches of a stage spent in turns that ran out, after which it is given up.
QUANTUM = 4096
STALLS = 8
STEPS = 1 << 28
RESIDENT = 4096  # blocks kept at once when they give way
# Bytes of what a stage writes that are kept to replay its arrival orders. One that writes about as much as it
# reads is executed as fast as it is replayed: the additions are what takes the time.
LOG = 8 << 20
WORTH = 64 << 20  # bytes of input, over all repetitions, from which recording the first pays


@dataclass(frozen=True, slots=True)
class Limits:
    """How long warps and stages may run, and what may be kept of a stage; tests make them small.

    With a `log` of 0 every arrival order is executed in full.
    """

    quantum: int = QUANTUM
    stalls: int = STALLS
    steps: int = STEPS
    resident: int = RESIDENT
    log: int = LOG
    worth: int = WORTH


@dataclass(frozen=True, slots=True)
class Part:
    """A stage of a kernel as it is compiled; `index` is its place among the kernel's stages."""

    kernel: str
    index: int
    stage: Stage
    compiled: Compiled


class StageRun:
    """One stage over the repetitions of a run."""

    def __init__(self, part: Part, memory: Memory, n: int, limits: Limits) -> None:
        self.part, self.memory, self.n, self.limits = part, memory, n, limits
        self.stage, self.compiled = part.stage, part.compiled
        lowered = self.compiled.lowered
        check_shape(part.kernel, self.stage, lowered)
        params = pack_params(part.kernel, self.stage, lowered, memory, Arguments(n))
        self.launch = Launch(
            self.stage, lowered, memory, params, self.compiled.warp, limits.quantum, limits.stalls
        )
        self.blocks = self.stage.grid[0] * self.stage.grid[1] * self.stage.grid[2]
        self.resident = self.launch.new_block()
        self.moving: list[tuple[NDArray[np.uint64], int, int]] = []

    def reshape(self, batch: int, widths: Mapping[str, int]) -> None:
        """From now on launches of `batch` requests; `widths` are the bytes of a row of what has rows."""
        lowered = self.compiled.lowered
        self.stage = self.part.stage.at(batch)
        check_shape(self.part.kernel, self.stage, lowered)
        params = pack_params(self.part.kernel, self.stage, lowered, self.memory, Arguments(self.n, batch))
        self.launch.reshape(self.stage, params)
        self.blocks = self.stage.grid[0] * self.stage.grid[1] * self.stage.grid[2]
        self.moving = []
        for arg, param in zip(self.stage.args, lowered.params, strict=True):
            if arg.name in widths and arg.kind is not ArgKind.SCALAR:
                place = self.launch.params[param.offset : param.offset + 8].view(np.uint64)
                self.moving.append((place, int(place[0]), widths[arg.name]))

    def begin_at(self, row: int) -> None:
        """The next launch's requests begin at this row, and its memory has other bounds."""
        self.launch.forget()
        for place, first, width in self.moving:
            place[0] = first + row * width

    def execute(self, seed: int, repetition: int) -> None:
        """Every block, in the order of that repetition."""
        self.carry_out(self.compiled.run, seed, repetition)

    def carry_out(self, run_blocks: RunBlocks, seed: int, repetition: int) -> bool:
        """The same, the blocks run by `run_blocks`; whether some of them had to give way."""
        launch = self.launch
        order = scheduler.block_order(self.blocks, seed, repetition, self.part.index)
        launch.start(scheduler.warp_seed(seed, repetition, self.part.index), self.limits.steps)
        gave_way = False
        parked: list[tuple[tuple[Any, Any], int]] = []
        at = 0
        while at < self.blocks:
            record = address_of(self.resident[0])
            at = int(run_blocks(launch.address, record, address_of(order), at, self.blocks))
            if at == self.blocks:
                break
            self._check(int(order[at]))
            gave_way = True
            parked.append((self.resident, int(order[at])))
            self.resident = launch.new_block()
            at += 1
            while len(parked) >= self.limits.resident:
                parked = self._again(parked)
        while parked:
            parked = self._again(parked)
        return gave_way

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
                self.part.kernel, self.stage, self.compiled.lowered, self.launch, self.memory, block
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
