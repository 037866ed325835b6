"""The memory of one run: buffers at the addresses that kernels see, variables, parameters, launch records."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import Arg, ArgKind, Buffer, Stage
from reprodb.errors import ExecutionError, UnsupportedError
from reprodb.executors.model import layout
from reprodb.executors.model.layout import align_up
from reprodb.executors.model.lower import Lowered, Param, place_variables
from reprodb.executors.model.ptx import Module
from reprodb.executors.slots import fill_of

Bytes = NDArray[np.uint8]
ALIGN = 64


def aligned(nbytes: int) -> Bytes:
    """Unset bytes at a host address that is a multiple of 64."""
    raw = np.empty(nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + nbytes]


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that kernels may access: what it is, where they see it, and its bytes on the host."""

    name: str
    address: int
    data: Bytes
    writable: bool

    @property
    def end(self) -> int:
        return self.address + len(self.data)


@dataclass(frozen=True, slots=True)
class Image:
    """A module variable's bytes at the start of a repetition."""

    region: Region
    initial: bytes


class Memory:
    """All global and constant memory of a run. Host arrays are kept as long as it lives."""

    def __init__(
        self,
        module: Module,
        buffers: Sequence[Buffer],
        arrays: Mapping[str, NDArray[Any]],
        offset: int = 0,
    ) -> None:
        """Every address is `offset` bytes further than it would be."""
        self.inputs: dict[str, Region] = {}
        self.buffers: dict[str, Region] = {}
        self._specs = {b.name: b for b in buffers}
        at = layout.BUFFERS_AT
        for name, array in arrays.items():
            self.inputs[name] = Region(name, at + offset, _host_bytes(array), writable=False)
            at = align_up(at + offset + max(1, array.nbytes) + ALIGN, layout.SPACING)
        for buffer in buffers:
            data = aligned(buffer.nbytes)
            self.buffers[buffer.name] = Region(buffer.name, at + offset, data, writable=True)
            at = align_up(at + offset + max(1, buffer.nbytes) + ALIGN, layout.SPACING)
        # From the first address of an input to the end of the last.
        ends = [(r.address, r.end) for r in self.inputs.values()]
        self.input_range = (ends[0][0], ends[-1][1]) if ends else (0, 0)
        self.images = _images(module)
        self.regions = (*self.inputs.values(), *self.buffers.values(), *(i.region for i in self.images))
        self.table = np.array(
            [(r.address, r.end, r.data.ctypes.data - r.address, r.writable) for r in self.regions], object
        ).reshape(-1, 4)
        self.table = np.array([[int(x) & (2**64 - 1) for x in row] for row in self.table], np.uint64)
        self.bounds: dict[str, tuple[int, int]] = {}

    def bound(self, rows: Mapping[str, tuple[int, int]]) -> None:
        """From now on kernels may access of these inputs and buffers the bytes from one number to another.

        Launches must forget what they have looked up (`Launch.forget`).
        """
        self.bounds = dict(rows)
        for place, region in enumerate(self.regions):
            if region.name in rows and place < len(self.inputs) + len(self.buffers):
                self.table[place, :2] = [region.address + at for at in rows[region.name]]

    def reset(self) -> None:
        """What holds at the start of a repetition: poison, zeros or copies, and variables as declared."""
        for name, region in self.buffers.items():
            init = self._specs[name].init
            if init.startswith("copy:"):
                source = self.inputs[init.removeprefix("copy:")].data
                region.data.fill(layout.POISON)
                count = min(len(source), len(region.data))
                region.data[:count] = source[:count]
            else:
                region.data.fill(fill_of(init))
        for image in self.images:
            if image.region.writable:
                image.region.data[:] = np.frombuffer(image.initial, np.uint8)


def _host_bytes(array: NDArray[Any]) -> Bytes:
    """An array's bytes, aligned to at least 16; a copy only where they are not."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if flat.ctypes.data % 16 == 0:
        return flat
    copy = aligned(len(flat))
    copy[:] = flat
    return copy


def _images(module: Module) -> tuple[Image, ...]:
    """Global and constant variables, with the addresses of others filled in."""
    places = place_variables(module)
    images = []
    for variable in module.variables:
        if variable.name not in places:
            continue
        initial = bytearray(variable.data or bytes(variable.nbytes))
        for offset, name, addend, _generic in variable.relocations:
            if name not in places:
                raise UnsupportedError(
                    f"variable {variable.name} at PTX line {variable.line} holds the address of {name}",
                    allowed="addresses of global and constant variables",
                    remedy="execute this kernel on a GPU",
                )
            initial[offset : offset + 8] = (places[name][1] + addend).to_bytes(8, "little")
        data = aligned(variable.nbytes)
        data[:] = np.frombuffer(bytes(initial), np.uint8)
        space, address = places[variable.name]
        images.append(Image(Region(variable.name, address, data, space == "global"), bytes(initial)))
    return tuple(images)


# --- Parameters --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a launch is given beside the memory: the size, and BATCH."""

    n: int
    batch: int = 1


def pack_params(kernel: str, stage: Stage, lowered: Lowered, memory: Memory, given: Arguments) -> Bytes:
    """The parameter block of a stage: pointers, sizes and scalars as its entry declares them."""
    if len(stage.args) != len(lowered.params):
        raise ExecutionError(
            f"{kernel}: stage {stage.entry} passes {len(stage.args)} arguments, its entry takes "
            f"{len(lowered.params)}",
            remedy="make the args of the manifest's stage match the kernel's parameters",
        )
    block = aligned(max(16, lowered.param_bytes))
    block.fill(0)
    for arg, param in zip(stage.args, lowered.params, strict=True):
        data = _argument(kernel, stage, arg, param, memory, given)
        block[param.offset : param.offset + param.nbytes] = np.frombuffer(data, np.uint8)
    return block


def _argument(kernel: str, stage: Stage, arg: Arg, param: Param, memory: Memory, given: Arguments) -> bytes:
    if arg.kind is ArgKind.SCALAR:
        if len(arg.value) != param.nbytes:
            raise ExecutionError(
                f"{kernel}: stage {stage.entry} passes {len(arg.value)} bytes for {arg.name}, its "
                f"parameter has {param.nbytes}",
                remedy="give the scalar the type of the kernel's parameter",
            )
        return arg.value
    if arg.kind in (ArgKind.SIZE, ArgKind.BATCH):
        n = given.n if arg.kind is ArgKind.SIZE else given.batch
        if n >= 1 << 8 * param.nbytes or param.nbytes not in (4, 8):
            raise ExecutionError(
                f"{kernel}: size {n} does not fit the {param.nbytes} bytes of {stage.entry}'s parameter",
                remedy="take the size as unsigned long long",
            )
        return n.to_bytes(param.nbytes, "little")
    table = memory.inputs if arg.kind is ArgKind.INPUT else memory.buffers
    if arg.name not in table:
        raise ExecutionError(
            f"{kernel}: stage {stage.entry} passes {arg.name!r}, which the case does not have",
            allowed=", ".join((*memory.inputs, *memory.buffers)),
        )
    if param.nbytes != 8:
        raise ExecutionError(
            f"{kernel}: stage {stage.entry} passes a pointer for {arg.name}, its parameter has "
            f"{param.nbytes} bytes",
            remedy="make the args of the manifest's stage match the kernel's parameters",
        )
    return table[arg.name].address.to_bytes(8, "little")


# --- Launch records ----------------------------------------------------------------------------


def address_of(data: NDArray[Any]) -> int:
    return int(data.ctypes.data)


class Launch:
    """The launch record of one stage, and the tables that it points to."""

    def __init__(
        self,
        stage: Stage,
        lowered: Lowered,
        memory: Memory,
        params: Bytes,
        warp: int,
        quantum: int,
        stalls: int,
    ) -> None:
        threads = stage.block[0] * stage.block[1] * stage.block[2]
        self.warps = -(-threads // 32)
        self.shared_bytes = lowered.shared_bytes + stage.shared
        self.block_bytes = layout.B_WARPS + self.warps * lowered.warp_bytes
        self.steps = 0
        self.record = aligned(layout.L_BYTES)
        self.address = address_of(self.record)
        self.record.fill(0)
        self.params = params
        self.tids = _thread_indices(stage.block, self.warps)
        self.sites = np.zeros((len(lowered.sites) + 1, layout.SITE_BYTES // 8), np.uint64)
        self.table = memory.table
        rest = threads % 32
        self._put(layout.L_PARAMS, 8, address_of(params))
        self._put(layout.L_REGIONS, 8, address_of(memory.table))
        self._put(layout.L_REGION_COUNT, 8, len(memory.table))
        self._put(layout.L_SITES, 8, address_of(self.sites))
        self._put(layout.L_TIDS, 8, address_of(self.tids))
        self._put(layout.L_SHARED, 8, self.shared_bytes)
        self._put(layout.L_DYNAMIC, 8, stage.shared)
        for axis in range(3):
            self._put(layout.L_NTID + 4 * axis, 4, stage.block[axis])
            self._put(layout.L_NCTAID + 4 * axis, 4, stage.grid[axis])
        self._put(layout.L_WARPS, 4, self.warps)
        self._put(layout.L_LAST_LANES, 4, (1 << rest) - 1 if rest else 0xFFFFFFFF)
        self._put(layout.L_QUANTUM, 8, quantum)
        self._put(layout.L_STALLS, 8, stalls)
        self._put(layout.L_WARP, 8, warp)
        self._put(layout.L_WARP_BYTES, 8, lowered.warp_bytes)
        self._put(layout.L_LOCAL_AT, 8, lowered.local_at)
        self._put(layout.L_LOCAL_BYTES, 8, lowered.local_bytes)
        self._put(layout.L_PARAM_BYTES, 8, lowered.param_bytes)

    def _put(self, at: int, size: int, value: int) -> None:
        ctypes.memmove(self.address + at, value.to_bytes(size, "little"), size)

    def get(self, at: int, size: int) -> int:
        return int.from_bytes(ctypes.string_at(self.address + at, size), "little")

    def reshape(self, stage: Stage, params: Bytes) -> None:
        """Another grid and other parameters, from the next start on; the block's shape stays."""
        self.params[:] = params
        for axis in range(3):
            self._put(layout.L_NCTAID + 4 * axis, 4, stage.grid[axis])

    def forget(self) -> None:
        """Where each instruction found memory last: bounds have changed."""
        self.sites.fill(0)

    def call(self, warp: int, log: int) -> None:
        """From now on the scheduler calls that function for a warp's turn; `log` is its log's address."""
        self._put(layout.L_WARP, 8, warp)
        self._put(layout.L_LOG, 8, log)

    def start(self, seed: int, steps: int) -> None:
        """Before each repetition: the warps' seed, the step budget, no error."""
        self.steps = steps
        self._put(layout.L_SEED, 8, seed)
        self._put(layout.L_STEPS, 8, steps)
        self._put(layout.L_ERROR, 4, 0)

    def new_block(self) -> tuple[Bytes, Bytes]:
        """A resident block's record and its shared memory."""
        record = aligned(self.block_bytes)
        shared = aligned(max(1, self.shared_bytes))
        ctypes.memmove(address_of(record), address_of(shared).to_bytes(8, "little"), 8)
        return record, shared


def _thread_indices(block: tuple[int, int, int], warps: int) -> NDArray[np.uint32]:
    """x, y and z of each thread, by warp and lane: shape (warps, 3, 32), 64-byte aligned."""
    linear = np.arange(warps * 32, dtype=np.uint32).reshape(warps, 32)
    table = aligned(warps * 384).view(np.uint32).reshape(warps, 3, 32)
    table[:, 0] = linear % block[0]
    table[:, 1] = linear // block[0] % block[1]
    table[:, 2] = linear // (block[0] * block[1])
    return table
