"""One stage's arrival orders: one repetition is recorded, the others are replayed where that is proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reprodb.executors.model import layout, replay
from reprodb.executors.model.device import Bytes, Launch, Memory, Region, address_of, aligned
from reprodb.executors.model.launches import StageRun
from reprodb.executors.model.machine import Compiled

TURNS = 16 << 20  # bytes of how turns ended
WARPS = 1 << 18  # of a grid that is recorded


@dataclass(frozen=True, slots=True)
class Log:
    """What is kept of a stage while a repetition runs: the arrays that its record points to."""

    record: Bytes
    entries: Bytes
    turns: Bytes
    heads: NDArray[np.uint64]  # of each warp of the grid its first turn
    nexts: NDArray[np.uint64]
    blocks: NDArray[np.uint64]
    touched: NDArray[np.uint64]
    shadow: NDArray[np.uint64]

    @classmethod
    def of(cls, compiled: Compiled, launch: Launch, blocks: int, memory: Memory, limit: int) -> Log:
        warps = blocks * launch.warps
        words = -(-launch.shared_bytes // 4)
        log = cls(
            aligned(layout.G_BYTES), aligned(limit), aligned(TURNS),
            np.zeros(warps, np.uint64), np.empty(warps, np.uint64), np.zeros((blocks, 3), np.uint64),
            np.zeros(len(memory.regions), np.uint64), np.zeros(2 * words + 2, np.uint64),
        )  # fmt: skip
        log.nexts[:] = address_of(log.heads) + 8 * np.arange(warps, dtype=np.uint64)
        low, high = memory.input_range
        words_of = log.record.view(np.uint64)
        words_of.fill(0)
        for place, value in {
            layout.G_AT: address_of(log.entries),
            layout.G_END: address_of(log.entries) + len(log.entries),
            layout.G_TURN: address_of(log.turns),
            layout.G_TURNS_END: address_of(log.turns) + len(log.turns),
            layout.G_WARP: compiled.warp,
            layout.G_HEADS: address_of(log.heads),
            layout.G_NEXT: address_of(log.nexts),
            layout.G_BLOCKS: address_of(log.blocks),
            layout.G_TOUCHED: address_of(log.touched),
            layout.G_QUIET: low,
            layout.G_QUIET_END: high,
            layout.G_SHADOW: address_of(log.shadow),
            layout.G_WORDS: words,
            layout.G_BLOCK: (1 << 64) - 1,
        }.items():
            words_of[place // 8] = value
        return log

    @property
    def flags(self) -> int:
        return int(self.record.view(np.uint64)[layout.G_FLAGS // 8])

    def rewind(self) -> None:
        """Before each replay: every warp stands at its first turn."""
        self.nexts[:] = self.heads


class Arrivals:
    """One stage over the repetitions of a run, its arrival orders replayed where that is proven.

    Takes the place of `plain`, which executes in full whatever is not replayed. `record` compiles the stage
    once more, so that it can be recorded.
    """

    def __init__(self, plain: StageRun, record: Callable[[], Compiled]) -> None:
        self.plain = plain
        self.refused = plain.compiled.lowered.unfit
        if not self.refused and plain.blocks * plain.launch.warps > WARPS:
            self.refused = f"its grid has more than {WARPS:,} warps"
        self._record = record
        self._kept: tuple[StageRun, Log] | None = None
        self._read: list[tuple[Region, bytes]] = []  # what the stage reads beside inputs, as it was
        self._total = self._replayed = 0

    def execute(self, seed: int, repetition: int) -> None:
        """Every block, in the order of that repetition: recorded, replayed or executed in full."""
        self._total += 1
        if self.refused:
            self.plain.execute(seed, repetition)
        elif self._kept is None:
            self._keep(seed, repetition)
        elif all(region.data.tobytes() == held for region, held in self._read):
            run, log = self._kept
            log.rewind()
            run.carry_out(run.compiled.replay, seed, repetition)
            self._replayed += 1
        else:
            self.plain.execute(seed, repetition)

    def _keep(self, seed: int, repetition: int) -> None:
        """Executes the repetition and records it; decides whether those that follow may be replayed."""
        plain = self.plain
        part = replace(plain.part, compiled=self._record())
        run = StageRun(part, plain.memory, plain.n, plain.limits)
        log = Log.of(part.compiled, run.launch, run.blocks, plain.memory, plain.limits.log)
        run.launch.call(part.compiled.recorder, address_of(log.record))
        gave_way = run.carry_out(part.compiled.run, seed, repetition)
        run.launch.call(part.compiled.replayer, address_of(log.record))
        touched = list(zip(plain.memory.regions, map(int, log.touched), strict=True))
        read = [r for r, how in touched if r.writable and how == layout.TOUCH_READ]
        if gave_way:
            self.refused = "its blocks wait for each other"
        elif sum(len(r.data) for r in read) > plain.limits.log:
            self.refused = "it reads too much that is no input"
        else:
            self.refused = replay.broken(log.flags, ((r.name, how) for r, how in touched))
        if not self.refused:
            self._kept = run, log
            self._read = [(r, r.data.tobytes()) for r in read]  # the stage has not written it

    def notes(self) -> list[str]:
        """What is to be noted of the executions, and how many were replayed, or why none was."""
        runs = [self.plain, *([self._kept[0]] if self._kept else [])]
        entry = self.plain.stage.entry
        if self.refused:
            how = f"{entry}: each arrival order executed in full: {self.refused}"
        else:
            how = f"{entry}: {self._replayed} of {self._total} arrival orders replayed from recorded operands"
        return [*dict.fromkeys(note for run in runs for note in run.notes()), how]
