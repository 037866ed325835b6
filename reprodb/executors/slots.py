"""Where the buffers of many repetitions lie on a device, and the arguments that point there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from reprodb.domain import DTYPE_BYTES, Arg, ArgKind, Buffer, Case, Role, Stage

POISON = 0xA5
# Every buffer of every repetition starts where cudaMalloc would let it start, and this many bytes behind it
# must still hold their fill when all is done.
ALIGNMENT = GUARD = 256

_CELL = 8  # bytes that an argument takes at most

UInt64s = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class Region:
    """A buffer's slots: repetition r lies at `start + r * stride`, from the start of the batch."""

    buffer: Buffer
    start: int
    stride: int
    slots: int

    @property
    def nbytes(self) -> int:
        return self.stride * self.slots

    @property
    def fill(self) -> int:
        """The byte that fills the region, guards included, before anything runs."""
        return fill_of(self.buffer.init)

    @property
    def recorded(self) -> bool:
        return self.buffer.role is not Role.SCRATCH


def fill_of(init: str) -> int:
    """The byte that a buffer is filled with: 0, the poison, or that of `poison:ff`."""
    if init == "zero":
        return 0
    _, _, byte = init.partition(":") if init.startswith("poison:") else ("", "", "")
    return int(byte, 16) if byte else POISON


def stride_of(buffer: Buffer) -> int:
    """Bytes from one repetition's buffer to the next one's."""
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT + GUARD


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a stage in every slot, as CUDA takes them: a pointer to each value.

    Slot s's pointers begin at `address + s * step`. `kept` are the arrays that hold them; they must live
    until the launches are queued.
    """

    address: int
    step: int
    kept: tuple[UInt64s, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Repetitions that are queued together: their regions from address `base`, and the inputs' addresses."""

    case: Case
    slots: int
    regions: tuple[Region, ...]  # recorded buffers first, so that one copy brings them all back
    inputs: Mapping[str, int]
    base: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)  # bytes of a request's row, of what has rows

    @classmethod
    def of(cls, case: Case, slots: int, inputs: Mapping[str, int]) -> Self:
        regions: list[Region] = []
        start = 0
        for buffer in sorted(case.buffers, key=lambda b: b.role is Role.SCRATCH):
            regions.append(Region(buffer, start, stride_of(buffer), slots))
            start += regions[-1].nbytes
        return cls(case, slots, tuple(regions), inputs)

    @property
    def nbytes(self) -> int:
        return sum(region.nbytes for region in self.regions)

    @property
    def recorded(self) -> tuple[Region, ...]:
        return tuple(region for region in self.regions if region.recorded)

    @property
    def scratch(self) -> tuple[Region, ...]:
        return tuple(region for region in self.regions if not region.recorded)

    @property
    def recorded_bytes(self) -> int:
        return sum(region.nbytes for region in self.recorded)

    @property
    def guard_bytes(self) -> int:
        """Bytes that the guards of all scratch slots take."""
        return GUARD * self.slots * len(self.scratch)

    def fills(self) -> list[tuple[int, int, int]]:
        """Stretches of neighbouring regions with the same fill: (address, bytes, byte)."""
        found: list[tuple[int, int, int]] = []
        for region in self.regions:
            start, size = self.base + region.start, region.nbytes
            if found and found[-1][2] == region.fill:
                start, before, _ = found.pop()
                size += before
            found.append((start, size, region.fill))
        return found

    def input_bytes(self, name: str) -> int:
        found = next(wanted for wanted in self.case.inputs if wanted.name == name)
        return found.n * DTYPE_BYTES[found.dtype]

    def arguments(self, stage: Stage) -> Arguments:
        """The argument blocks of a stage, one a slot."""
        values = np.zeros((self.slots, len(stage.args)), np.uint64)
        for column, arg in enumerate(stage.args):
            values[:, column] = self._values(arg)
        return _blocks(values)

    def launches(self, stage: Stage, batch: int, count: int) -> Arguments:
        """The argument blocks of `count` launches of a stage, each of `batch` requests, in the first slot.

        Launch i gets row `i * batch` of what has rows.
        """
        values = np.zeros((count, len(stage.args)), np.uint64)
        steps = np.arange(count, dtype=np.uint64) * np.uint64(batch)
        for column, arg in enumerate(stage.args):
            found = batch if arg.kind is ArgKind.BATCH else self._values(arg)
            first = np.uint64(found if isinstance(found, int) else found[0])
            rows = arg.kind is not ArgKind.SCALAR and arg.name in self.widths
            values[:, column] = first + steps * np.uint64(self.widths[arg.name] if rows else 0)
        return _blocks(values)

    def _values(self, arg: Arg) -> UInt64s | int:
        match arg.kind:
            case ArgKind.BUFFER:
                region = next(r for r in self.regions if r.buffer.name == arg.name)
                steps = np.arange(self.slots, dtype=np.uint64) * np.uint64(region.stride)
                return np.uint64(self.base + region.start) + steps
            case ArgKind.INPUT:
                return self.inputs[arg.name]
            case ArgKind.SIZE:
                return self.case.n
            case ArgKind.BATCH:
                return 1  # a launch of a composition says its own
            case ArgKind.SCALAR:
                return int.from_bytes(arg.value, "little")


def _blocks(values: UInt64s) -> Arguments:
    """Rows of argument values as CUDA takes them."""
    cells = np.arange(values.size, dtype=np.uint64).reshape(values.shape)
    pointers = np.uint64(values.ctypes.data) + np.uint64(_CELL) * cells
    return Arguments(int(pointers.ctypes.data), _CELL * values.shape[1], (values, pointers))
