"""Runs recorded cubins on a GPU through CuPy: every repetition queued, each into a slot of its own."""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import isqrt, prod
from typing import Any, NamedTuple, Self

import numpy as np

from reprodb.compositions import Composed
from reprodb.domain import Artifact, Case, CodeOrigin, Device, Input, Kernel, Lane, Pairs, Samples, Stage
from reprodb.environment import check_cupy, dotted, driver_version, find_gpus, format_uuid
from reprodb.errors import ExecutionError
from reprodb.executors import difference
from reprodb.executors.arrays import PROBE, Arrays
from reprodb.executors.base import DeviceError, Platform, collect
from reprodb.executors.serving import Serving
from reprodb.executors.slots import ALIGNMENT, GUARD, POISON, Arguments, Batch, Region, stride_of
from reprodb.stress import NO_PRESSURE

# What the slots of one cycle, and the kept results of one batch, may take; the rest goes in further batches.
SLOT_BYTES = 1 << 30
SMALL_BYTES = 16 << 20  # so little needs no look at what is free
RESULT_BYTES = 256 << 20
# A repetition that records so many bytes is compared on the device, and brought back where it is another.
LARGE_BYTES = 1 << 20
# Inputs kept on the device between results, and how much of one is read back at once.
INPUT_BYTES = 4 << 30
CHUNK_BYTES = 32 << 20
# From so many repetitions on, replaying a graph is faster than launching (measured: docs/executing.md).
GRAPH_FROM = 16

# What contends with a kernel under that stress, and how long it may take to begin.
RIVAL_BYTES = 128 << 20
_RIVAL_SECONDS = 5.0

_NON_BLOCKING = 1
_CAPTURE_THREAD_LOCAL = 1
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3
_BINARY_VERSION, _MAX_DYNAMIC_SHARED = 6, 8  # cuFuncGetAttribute

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Launches = Sequence[tuple[Stage, int, Arguments]]


class Held(NamedTuple):
    """A global variable of the loaded code, and a copy of it as it was declared."""

    address: int
    pristine: int
    size: int


class Work(NamedTuple):
    """What a repetition does: the stages with their functions, on these inputs, from these variables."""

    stages: Sequence[tuple[Stage, int]]
    case: Case
    inputs: Mapping[str, int]
    variables: tuple[Held, ...]


class Repeated(NamedTuple):
    """The bytes of every recorded buffer after each repetition, by its name; and the seconds it took."""

    raws: dict[str, list[bytes]]
    seconds: float
    batches: tuple[int, ...] = ()  # as Samples has them


class Block:
    """Memory that is kept between results and exchanged for a larger piece when one is needed."""

    def __init__(self, allocate: Callable[[int], int], free: Callable[[int], None]) -> None:
        self._allocate = allocate
        self._free = free
        self.address = 0
        self.size = 0

    def take(self, size: int) -> int:
        """The address of at least `size` bytes; what the block held before is lost."""
        if size > self.size or not self.address:
            address, self.address, self.size = self.address, 0, 0
            if address:
                self._free(address)
            self.address = int(self._allocate(max(size, 1)))
            self.size = size
        return self.address


class Rival(threading.Thread):
    """Keeps a stream of its own busy with fills and copies of `RIVAL_BYTES`, which take the same memory."""

    def __init__(self, runtime: Any, ordinal: int) -> None:
        super().__init__(daemon=True, name="reprodb-rival")
        self._runtime = runtime
        self._ordinal = ordinal
        self.began = threading.Event()
        self.ended = threading.Event()

    def run(self) -> None:
        runtime, half = self._runtime, RIVAL_BYTES // 2
        runtime.setDevice(self._ordinal)
        stream = runtime.streamCreateWithFlags(_NON_BLOCKING)
        address = int(runtime.malloc(RIVAL_BYTES))
        try:
            while not self.ended.is_set():
                for byte in range(8):
                    runtime.memsetAsync(address, byte, half, stream)
                    runtime.memcpyAsync(address + half, address, half, _ON_DEVICE, stream)
                self.began.set()
                runtime.streamSynchronize(stream)
        finally:
            self.began.set()
            runtime.free(address)
            runtime.streamDestroy(stream)


class CudaExecutor:
    """Executes on one device of this process. `cupy` is the module, or a stand-in with the same calls."""

    lane = Lane.MEASURED

    def __init__(self, cupy: Any, ordinal: int, arrays: Arrays) -> None:
        self._cupy = cupy
        self._driver = cupy.cuda.driver
        self._runtime = cupy.cuda.runtime
        self._ordinal = ordinal
        self._arrays = arrays
        self._inputs: OrderedDict[Input, tuple[int, int]] = OrderedDict()  # (address, bytes)
        self._compare: int | None = None  # the function that compares memory, once it is loaded
        self.pressure = NO_PRESSURE  # what the next execution is put under
        self._device = Block(self._runtime.malloc, self._runtime.free)
        self._host = Block(lambda size: self._runtime.hostAlloc(size, 0), self._runtime.freeHost)
        with self._calls(f"opening device {ordinal}"):
            self._runtime.setDevice(ordinal)
            self._runtime.free(0)  # makes the context
            self._stream = self._runtime.streamCreateWithFlags(_NON_BLOCKING)
            self._found = self._read_device()

    @classmethod
    def open(cls, ordinal: int, arrays: Arrays) -> Self:
        """The executor of a device. Raises ExecutionError where CuPy or the device cannot be used."""
        check_cupy()
        try:
            import cupy
        except ImportError as error:
            raise ExecutionError(
                f"CuPy cannot be imported: {error}", remedy="pip install 'reprodb[cuda13]'"
            ) from error
        return cls(cupy, ordinal, arrays)

    def libraries(self) -> Pairs:
        return (("cupy", str(self._cupy.__version__)), ("numpy", np.__version__))

    def _read_device(self) -> Device:
        """The device, as the running context knows it."""
        found = self._runtime.getDeviceProperties(self._ordinal)
        name = found["name"]
        return Device(
            name=name.decode() if isinstance(name, bytes) else str(name),
            uuid=self._uuid(bytes(found["uuid"])),
            compute_capability=f"{found['major']}.{found['minor']}",
            sm_count=int(found["multiProcessorCount"]),
            memory=int(found["totalGlobalMem"]),
            index=self._ordinal,
        )

    def _uuid(self, seen: bytes) -> str:
        """The driver's word for it: what CuPy sees ends at the first zero byte."""
        devices = find_gpus().devices
        return devices[self._ordinal].uuid if self._ordinal < len(devices) else format_uuid(seen)

    def platform(self) -> Platform:
        with self._calls("reading versions"):
            spoken = self._runtime.driverGetVersion()
            runtime = self._runtime.runtimeGetVersion()
        return Platform(
            lane=self.lane,
            libraries=self.libraries(),
            device=self._found,
            driver=driver_version(),
            cuda_driver=dotted(spoken),
            cuda_runtime=dotted(runtime),
        )

    def execute(
        self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int = 0
    ) -> Samples:
        """Run all stages `repetitions` times. Arrival order is the device's own, so `seed` has no effect."""
        image, origin, notes = code_image(artifact)
        with self._module(image, artifact) as module:
            stages = [(stage, self._function(module, stage, artifact)) for stage in kernel.stages]
            serving = Serving.of(kernel, case) if kernel.composition is not None else None
            resident = [i for i in case.inputs if serving is None or i.name != serving.input]
            addresses = {wanted.name: self._resident(wanted, case) for wanted in resident}
            with self._variables(module, artifact) as (held, lost), self._contended():
                if serving is None:
                    raws, seconds, batches = self._repeat(Work(stages, case, addresses, held), repetitions)
                else:
                    work = Work(stages, serving.case, addresses, held)
                    raws, seconds, batches = self._serve(work, serving, repetitions)
            notes += tuple(f"variable {name} keeps its value between repetitions" for name in lost)
        self._check_inputs(resident, addresses)
        outputs = tuple(collect(buffer, raws[buffer.name]) for buffer in case.recorded)
        for output in outputs:
            first = output.patterns[0]
            if output.buffer.init == "poison" and first and first.count(POISON) == len(first):
                notes = (*notes, f"buffer {output.buffer.name} was never written: it holds its poison")
        return Samples(outputs, origin, seconds, notes, batches)

    # --- code ---

    @contextmanager
    def _module(self, image: bytes, artifact: Artifact) -> Iterator[int]:
        arch = artifact.build.arch
        with self._calls(f"loading the {arch} code on {self._found.name} ({self._found.arch})"):
            module = int(self._driver.moduleLoadData(image))
        try:
            yield module
        finally:
            with suppress(self._driver.CUDADriverError):
                self._driver.moduleUnload(module)

    def _function(self, module: int, stage: Stage, artifact: Artifact) -> int:
        with self._calls(f"looking up entry {stage.entry!r}"):
            function = int(self._driver.moduleGetFunction(module, stage.entry))
        taken = parameters(artifact.ptx, stage.entry)
        if taken is not None and taken != len(stage.args):
            raise ExecutionError(
                f"entry {stage.entry!r} takes {taken} arguments and the manifest passes {len(stage.args)}",
                remedy="make args in kernel.toml match the kernel's parameters",
            )
        with self._calls(f"loading entry {stage.entry!r}"):  # now, not at its first launch
            self._driver.funcGetAttribute(_BINARY_VERSION, function)
        if stage.shared:
            with self._calls(f"allowing {stage.shared} bytes of dynamic shared memory to {stage.entry!r}"):
                self._driver.funcSetAttribute(function, _MAX_DYNAMIC_SHARED, stage.shared)
        return function

    @contextmanager
    def _variables(self, module: int, artifact: Artifact) -> Iterator[tuple[tuple[Held, ...], list[str]]]:
        """Copies of the module's global variables as declared, to start every repetition with.

        With them the names of those that the loaded code does not show: nothing can set these back.
        """
        held: list[Held] = []
        lost: list[str] = []
        try:
            for name, size in variables(artifact.ptx):
                try:
                    address = int(self._driver.moduleGetGlobal(module, name))
                except self._driver.CUDADriverError:
                    lost.append(name)
                    continue
                with self._calls(f"keeping variable {name!r}"):
                    held.append(Held(address, int(self._runtime.malloc(size)), size))
                    self._copy(held[-1].pristine, address, size, _ON_DEVICE)
            yield tuple(held), lost
        finally:
            for each in held:
                with suppress(self._runtime.CUDARuntimeError):
                    self._runtime.free(each.pristine)

    # --- inputs ---

    def _resident(self, wanted: Input, case: Case) -> int:
        """The device address of an input, uploaded where it is not there yet. Those of `case` all stay."""
        held, offset = self._held(wanted), self.pressure.offset
        if held in self._inputs:
            self._inputs.move_to_end(held)
            return self._inputs[held][0] + offset
        for probe in [kept for kept in self._inputs if kept.pattern == PROBE]:
            self._forget(probe)  # each is used once
        array = self._arrays.get(wanted)
        size = max(array.nbytes, 1) + offset
        while self._inputs and sum(n for _, n in self._inputs.values()) + size > INPUT_BYTES:
            oldest = next(iter(self._inputs))
            if oldest in map(self._held, case.inputs):
                break
            self._forget(oldest)
        with self._calls(f"uploading input {wanted.name!r} of {array.nbytes} bytes"):
            address = int(self._runtime.malloc(size))
            self._inputs[held] = (address, size)
            address += offset
            if array.nbytes:
                self._runtime.memcpyAsync(address, array.ctypes.data, array.nbytes, _TO_DEVICE, self._stream)
            self._runtime.streamSynchronize(self._stream)
        return address

    def _held(self, wanted: Input) -> Input:
        """What an input is kept under: one at another offset is kept beside it."""
        offset = self.pressure.offset
        return replace(wanted, params=(*wanted.params, ("offset", offset))) if offset else wanted

    def _room(self, size: int) -> int:
        """The address of `size` bytes for buffers, moved where the pressure says so."""
        return self._device.take(size + self.pressure.offset) + self.pressure.offset

    @contextmanager
    def _contended(self) -> Iterator[None]:
        """Other work on a second stream while this lasts, where the pressure says so."""
        if not self.pressure.contention:
            yield
            return
        rival = Rival(self._runtime, self._ordinal)
        rival.start()
        try:
            rival.began.wait(_RIVAL_SECONDS)
            yield
        finally:
            rival.ended.set()
            rival.join()

    def _forget(self, wanted: Input) -> None:
        address, _ = self._inputs.pop(wanted)
        with suppress(self._runtime.CUDARuntimeError):
            self._runtime.free(address)

    def _check_inputs(self, inputs: Sequence[Input], addresses: Mapping[str, int]) -> None:
        """Refuse a kernel that wrote to its inputs: later repetitions, and later results, read them too."""
        for wanted in inputs:
            if not self._holds(addresses[wanted.name], self._arrays.get(wanted)):
                self._forget(self._held(wanted))
                raise _changed_input(wanted.name)

    def _holds(self, address: int, array: Bytes) -> bool:
        """Whether the device memory at `address` still equals the array."""
        expected = array.view(np.uint8)
        for start in range(0, expected.size, CHUNK_BYTES):
            chunk = expected[start : start + CHUNK_BYTES]
            with self._calls("reading an input back"):
                host = self._host.take(chunk.size)
                self._copy(host, address + start, chunk.size, _TO_HOST)
                self._runtime.streamSynchronize(self._stream)
            if not _equal(host, chunk.ctypes.data, chunk.size):
                return False
        return True

    # --- repetitions ---

    def _repeat(self, work: Work, repetitions: int) -> Repeated:
        """All repetitions, in as many batches as memory asks for, and the seconds of their work.

        The seconds count from the first launch to the last copy back; capturing a graph comes before.
        """
        a_result = sum(stride_of(buffer) for buffer in work.case.recorded)
        if a_result >= LARGE_BYTES and repetitions > 1:
            return self._repeat_large(work, repetitions)
        at_once = max(1, min(repetitions, RESULT_BYTES // max(a_result, 1)))
        raws: dict[str, list[bytes]] = {buffer.name: [] for buffer in work.case.recorded}
        seconds = 0.0
        for start in range(0, repetitions, at_once):
            count = min(at_once, repetitions - start)
            with self._calls("executing"), self._prepared(work, count) as (batch, queue):
                began = time.perf_counter()
                queue()
                self._runtime.streamSynchronize(self._stream)
                seconds += time.perf_counter() - began
            for region, rows in self._rows(batch, count):
                _check_guards(region, rows)
                if region.recorded:
                    raws[region.buffer.name] += _split(rows, region.buffer.nbytes)
        return Repeated(raws, seconds)

    def _repeat_large(self, work: Work, repetitions: int) -> Repeated:
        """Repetitions with large results: the first is brought back, of the others those that differ from it.

        Every repetition is read once more on the device, which costs memory bandwidth and no transfer.
        """
        slots = self._slots(work.case, repetitions)
        batch = Batch.of(work.case, slots, work.inputs)
        size = sum(region.stride for region in batch.recorded)
        flags = -(-4 * slots // ALIGNMENT) * ALIGNMENT
        base = self._room(batch.nbytes + size + flags)
        batch = replace(batch, base=base)
        first, flags_at = base + batch.nbytes, base + batch.nbytes + size
        launches = [(stage, function, batch.arguments(stage)) for stage, function in work.stages]
        raws: dict[str, list[bytes]] = {buffer.name: [] for buffer in work.case.recorded}
        seconds = 0.0
        with self._calls("executing"):
            for done in range(0, repetitions, slots):
                count = min(slots, repetitions - done)
                began = time.perf_counter()
                self._cycle(work, batch, launches, count)
                if not done:
                    self._keep_first(batch, first)
                told = self._differing(batch, count, first, (flags_at, flags))
                seconds += time.perf_counter() - began
                for slot in range(count):
                    if told[slot] or not (done or slot):
                        self._bring_back(batch, slot, raws)
                    else:
                        for rows in raws.values():
                            rows.append(rows[0])
                self._check_scratch(batch)
        return Repeated(raws, seconds)

    def _keep_first(self, batch: Batch, target: int) -> None:
        """The recorded regions of slot 0, put aside on the device."""
        for region in batch.recorded:
            self._copy(target, batch.base + region.start, region.stride, _ON_DEVICE)
            target += region.stride

    def _comparing(self) -> int:
        """The function that compares memory on the device; loaded once, it stays while the process does."""
        if self._compare is None:
            module = int(self._driver.moduleLoadData(difference.PTX.encode() + b"\0"))
            self._compare = int(self._driver.moduleGetFunction(module, difference.ENTRY))
        return self._compare

    def _differing(self, batch: Batch, count: int, first: int, flags: tuple[int, int]) -> list[bool]:
        """Which of the first `count` slots differ from the memory at `first`, guards included."""
        function, (flags_at, flag_bytes) = self._comparing(), flags
        self._runtime.memsetAsync(flags_at, 0, flag_bytes, self._stream)
        for slot in range(count):
            kept = first
            for region in batch.recorded:
                here = batch.base + region.start + slot * region.stride
                pair = difference.Comparison(here, kept, region.stride, flags_at + 4 * slot)
                shape = (difference.BLOCKS, 1, 1, difference.THREADS, 1, 1, 0)
                self._driver.launchKernel(function, *shape, self._stream, pair.address, 0)
                kept += region.stride
        host = self._host.take(4 * count)
        self._copy(host, flags_at, 4 * count, _TO_HOST)
        self._runtime.streamSynchronize(self._stream)
        return [any(row) for row in _bytes_at(host, count, 4)]

    def _bring_back(self, batch: Batch, slot: int, raws: dict[str, list[bytes]]) -> None:
        for region in batch.recorded:
            host = self._host.take(region.stride)
            start = batch.base + region.start + slot * region.stride
            self._copy(host, start, region.stride, _TO_HOST)
            self._runtime.streamSynchronize(self._stream)
            rows = _bytes_at(host, 1, region.stride)
            _check_guards(region, rows)
            raws[region.buffer.name] += _split(rows, region.buffer.nbytes)

    def _check_scratch(self, batch: Batch) -> None:
        host = self._host.take(batch.guard_bytes)
        self._copy_scratch_guards(batch, host)
        self._runtime.streamSynchronize(self._stream)
        for region, rows in _scratch_guards(batch, host):
            _check_guards(region, rows)

    @contextmanager
    def _prepared(self, work: Work, count: int) -> Iterator[tuple[Batch, Callable[[], None]]]:
        """Memory for `count` repetitions, and what queues them, cycle by cycle, with one copy to the host.

        A cycle fills every slot, runs all stages in each, and its recorded regions are then kept aside. More
        than one cycle is captured once as a CUDA graph: capturing costs as much a repetition as launching,
        replaying costs a fifth, and so about the square root of the count is captured.
        """
        slots = self._slots(work.case, count)
        batch = Batch.of(work.case, slots, work.inputs)
        cycles, rest = divmod(count, slots)
        size = batch.recorded_bytes
        kept_bytes = -(-count // slots) * size
        batch = replace(batch, base=self._room(batch.nbytes + kept_bytes))
        host = self._host.take(kept_bytes + batch.guard_bytes)
        kept = batch.base + batch.nbytes
        launches = [(stage, function, batch.arguments(stage)) for stage, function in work.stages]

        with self._replayed(lambda: self._cycle(work, batch, launches, slots), cycles * slots) as run_cycle:

            def queue() -> None:
                for cycle in range(cycles):
                    run_cycle()
                    self._copy(kept + cycle * size, batch.base, size, _ON_DEVICE)
                if rest:
                    self._cycle(work, batch, launches, rest)
                    self._copy(kept + cycles * size, batch.base, size, _ON_DEVICE)
                self._copy(host, kept, kept_bytes, _TO_HOST)
                self._copy_scratch_guards(batch, host + kept_bytes)

            yield batch, queue

    @contextmanager
    def _replayed(self, cycle: Callable[[], None], repetitions: int) -> Iterator[Callable[[], None]]:
        """What queues one full cycle: the calls themselves, or a graph of them where they are many."""
        if repetitions < GRAPH_FROM:
            yield cycle
            return
        self._runtime.streamBeginCapture(self._stream, _CAPTURE_THREAD_LOCAL)
        try:
            cycle()
        except BaseException:
            with suppress(self._runtime.CUDARuntimeError):  # the first error is the one to tell
                self._runtime.streamEndCapture(self._stream)
            raise
        graph = self._runtime.streamEndCapture(self._stream)
        try:
            executable = self._runtime.graphInstantiate(graph)
        finally:
            self._runtime.graphDestroy(graph)
        try:
            self._runtime.graphUpload(executable, self._stream)
            yield lambda: self._runtime.graphLaunch(executable, self._stream)
        finally:
            with suppress(self._runtime.CUDARuntimeError):
                self._runtime.graphExecDestroy(executable)

    def _cycle(self, work: Work, batch: Batch, launches: Launches, slots: int) -> None:
        """Fill the buffers and run all stages, in the first `slots` slots; variables start as declared."""
        self._fill(batch, slots)
        launch, stream = self._driver.launchKernel, self._stream
        shapes = [(f, *s.grid, *s.block, s.shared, stream, a.address, a.step) for s, f, a in launches]
        for slot in range(slots):
            for held in work.variables:
                self._copy(held.address, held.pristine, held.size, _ON_DEVICE)
            for *shape, address, step in shapes:
                launch(*shape, address + slot * step, 0)

    def _fill(self, batch: Batch, slots: int) -> None:
        """Poison, zero or copy before anything runs: a call a stretch of one fill, for copies one a slot."""
        for start, size, value in batch.fills():
            self._runtime.memsetAsync(start, value, size, self._stream)
        for region in batch.regions:
            kind, _, source = region.buffer.init.partition(":")
            if kind == "copy":
                size = min(region.buffer.nbytes, batch.input_bytes(source))
                first = batch.base + region.start
                for slot in range(slots):
                    self._copy(first + slot * region.stride, batch.inputs[source], size, _ON_DEVICE)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        if size:
            self._runtime.memcpyAsync(target, source, size, kind, self._stream)

    def _copy_scratch_guards(self, batch: Batch, host: int) -> None:
        """Bring back what lies behind the scratch buffers of the last cycle; their contents stay."""
        for region in batch.scratch:
            guards = batch.base + region.start + region.stride - GUARD
            self._runtime.memcpy2DAsync(
                host, GUARD, guards, region.stride, GUARD, region.slots, _TO_HOST, self._stream
            )
            host += GUARD * region.slots

    def _rows(self, batch: Batch, count: int) -> Iterator[tuple[Region, Bytes]]:
        """The repetitions of each region as rows of bytes, in order; of scratch buffers the guards alone."""
        cycles, size = -(-count // batch.slots), batch.recorded_bytes
        kept = _bytes_at(self._host.address, cycles, size)
        for region in batch.recorded:
            found = kept[:, region.start : region.start + region.nbytes]
            yield region, found.reshape(cycles * batch.slots, region.stride)[:count]
        yield from _scratch_guards(batch, self._host.address + cycles * size)

    def _slots(self, case: Case, count: int) -> int:
        """How many slots a cycle gets: `slots_for` the count, or what half of the free memory holds."""
        a_slot = sum(stride_of(buffer) for buffer in case.buffers)
        wanted = slots_for(count)
        if wanted * a_slot <= SMALL_BYTES:
            return wanted
        free, _ = self._runtime.memGetInfo()
        room = min(SLOT_BYTES, (int(free) + self._device.size) // 2)
        return max(1, min(wanted, room // a_slot))

    # --- compositions ---

    def _serve(self, work: Work, serving: Serving, repetitions: int) -> Repeated:
        """Every composition of every repetition: requests uploaded as they are served, a launch a batch."""
        wanted = next(i for i in work.case.inputs if i.name == serving.input)
        requests, widths = serving.requests(self._arrays.get(wanted)), serving.row_bytes()
        batch = Batch.of(work.case, 1, work.inputs)
        size, room = batch.recorded_bytes, serving.room * widths[serving.input]
        base = self._room(batch.nbytes + room)
        served_at = base + batch.nbytes  # regions end at a multiple of the alignment
        inputs = {**work.inputs, serving.input: served_at}
        batch = replace(batch, base=base, inputs=inputs, widths=widths)
        host = self._host.take(size + batch.guard_bytes)
        pieces: dict[str, list[bytes]] = {buffer.name: [] for buffer in work.case.recorded}
        batches: list[int] = []
        served = requests[:0]
        began = time.perf_counter()
        with self._calls("executing"):
            for composed in serving.compositions(repetitions):
                served = np.ascontiguousarray(requests[composed.order])
                self._copy(served_at, served.ctypes.data, served.nbytes, _TO_DEVICE)
                kept = self._launch_batches(work, batch, composed)
                self._copy(host, base, size, _TO_HOST)
                self._copy_scratch_guards(batch, host + size)
                self._runtime.streamSynchronize(self._stream)
                del kept  # the arguments had to live until here
                batches.append(composed.batch)
                for region, rows in self._rows(batch, 1):
                    _check_guards(region, rows)
                    if region.recorded:
                        pieces[region.buffer.name].append(serving.part(region.buffer, rows[0], composed))
        seconds = time.perf_counter() - began
        if not self._holds(served_at, served.reshape(-1)):
            raise _changed_input(serving.input)
        raws = {name: serving.joined(found) for name, found in pieces.items()}
        return Repeated(raws, seconds, serving.batches(batches))

    def _launch_batches(self, work: Work, batch: Batch, composed: Composed) -> list[Arguments]:
        """Fill the buffers and run all stages for one batch after the other; variables start as declared."""
        self._fill(batch, 1)
        for held in work.variables:
            self._copy(held.address, held.pristine, held.size, _ON_DEVICE)
        launches = []
        for stage, function in work.stages:
            at = stage.at(composed.batch)
            arguments = batch.launches(at, composed.batch, composed.launches)
            launches.append((function, (*at.grid, *at.block, at.shared, self._stream), arguments))
        launch = self._driver.launchKernel
        for number in range(composed.launches):
            for function, shape, arguments in launches:
                launch(function, *shape, arguments.address + number * arguments.step, 0)
        return [arguments for _, _, arguments in launches]

    # --- memory and errors ---

    @contextmanager
    def _calls(self, doing: str) -> Iterator[None]:
        """Turn a CUDA error into a DeviceError: what was going on, and whether the context is lost."""
        try:
            yield
        except (self._driver.CUDADriverError, self._runtime.CUDARuntimeError) as error:
            failure = DeviceError(f"{doing}: {error}", remedy=_remedy(str(error)))
            failure.sticky = self._lost()
            raise failure from error

    def _lost(self) -> bool:
        """Whether the context is of no more use: then the next call repeats the error."""
        try:
            self._runtime.deviceSynchronize()
        except self._runtime.CUDARuntimeError:
            return True
        return False


# What to do about CUDA's errors that are not the kernel's fault, by a part of their names.
_REMEDIES = (
    (
        "InsufficientDriver",
        "CuPy is newer than this driver: pip install 'reprodb[cuda12]', or a newer driver",
    ),
    (
        "UNSUPPORTED_PTX_VERSION",
        "the compiler is newer than this driver: an older toolkit, or a newer driver",
    ),
    ("NO_BINARY_FOR_GPU", "build for this GPU: leave --arch out, or name its architecture"),
    ("MemoryAllocation", "a smaller case; and see which other programs use the card"),
    ("DevicesUnavailable", "another process holds the card for itself alone"),
)


def _remedy(error: str) -> str:
    return next((remedy for part, remedy in _REMEDIES if part in error), "")


def _changed_input(name: str) -> ExecutionError:
    return ExecutionError(
        f"the kernel changed its input {name!r}",
        remedy=f"give it a buffer with init = 'copy:{name}' to work in",
    )


def slots_for(count: int) -> int:
    """How many repetitions a cycle has: about the square root of the count, without a rest if that can be."""
    root = isqrt(count)
    near = range(-(-root // 2), 2 * root + 1)
    divisors = [slots for slots in near if count % slots == 0]
    return min(divisors, key=lambda slots: max(slots / root, root / slots), default=root)


def code_image(artifact: Artifact) -> tuple[bytes, CodeOrigin, tuple[str, ...]]:
    """What to load: the recorded cubin, or the PTX where the architecture is a virtual one (`compute_90`).

    The driver compiles PTX only then, and the driver's version joins the build. Raises ExecutionError where
    there is neither.
    """
    arch = artifact.build.arch
    if arch.startswith("compute_"):
        if artifact.ptx is None:
            raise ExecutionError(f"the artifact for {arch} holds no PTX", remedy="rebuild it: reprodb build")
        note = f"PTX for {arch} compiled by driver {driver_version() or 'of unknown version'}"
        return artifact.ptx.encode() + b"\0", CodeOrigin.JIT, (note,)
    if artifact.cubin is None:
        raise ExecutionError(f"the artifact for {arch} holds no cubin", remedy="rebuild it: reprodb build")
    return artifact.cubin, CodeOrigin.CUBIN, ()


_ENTRY = r"\.entry\s+{name}\s*\(([^)]*)\)"


def parameters(ptx: str | None, entry: str) -> int | None:
    """How many parameters an entry takes by its PTX; None where that does not say."""
    found = re.search(_ENTRY.format(name=re.escape(entry)), ptx or "")
    return None if found is None else found[1].count(".param")


_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|weak|common)\s+)*\.global\s+(?:\.align\s+\d+\s+)?\.\w*?(\d+)\s+([\w$]+)((?:\[\d+\])*)",
    re.MULTILINE,
)
# What compilers name by themselves: texts of printf and assert, which no kernel writes.
_LITERALS = ("$", "__unnamed_")


def variables(ptx: str | None) -> tuple[tuple[str, int], ...]:
    """The global variables that a PTX text defines, with their sizes in bytes."""
    found = []
    for bits, name, dimensions in _VARIABLE.findall(ptx or ""):
        if not name.startswith(_LITERALS):
            found.append((name, int(bits) // 8 * prod(int(d) for d in re.findall(r"\d+", dimensions))))
    return tuple(found)


def _equal(a: int, b: int, size: int) -> bool:
    """Whether host memory at two addresses holds the same bytes; NumPy would take five times as long."""
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return int(compare(a, b, size)) == 0


def _bytes_at(address: int, count: int, width: int) -> Bytes:
    """Host memory from `address` as `count` rows of `width` bytes."""
    flat = (ctypes.c_uint8 * (count * width)).from_address(address)
    return np.ctypeslib.as_array(flat).reshape(count, width)


def _split(rows: Bytes, size: int) -> list[bytes]:
    """The first `size` bytes of each row."""
    flat = rows[:, :size].tobytes()
    return (
        [flat[start : start + size] for start in range(0, len(rows) * size, size)]
        if size
        else [b""] * len(rows)
    )


def _scratch_guards(batch: Batch, host: int) -> Iterator[tuple[Region, Bytes]]:
    """What `_copy_scratch_guards` brought to `host`: a row a slot of each scratch buffer."""
    for region in batch.scratch:
        yield region, _bytes_at(host, region.slots, GUARD)
        host += GUARD * region.slots


def _check_guards(region: Region, rows: Bytes) -> None:
    size = region.buffer.nbytes
    if (rows[:, size if region.recorded else 0 :] != region.fill).any():
        raise ExecutionError(
            f"the kernel wrote past the end of buffer {region.buffer.name!r} ({size} bytes)",
            remedy="run the kernel under compute-sanitizer --tool memcheck",
        )
