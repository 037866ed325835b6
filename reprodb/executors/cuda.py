"""Runs recorded cubins on a GPU through CuPy: every repetition queued, each into a slot of its own."""

from __future__ import annotations

import ctypes
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np

from reprodb.domain import Artifact, Case, CodeOrigin, Device, Input, Kernel, Lane, Pairs, Samples, Stage
from reprodb.environment import check_cupy, dotted, driver_version, format_uuid
from reprodb.errors import ExecutionError
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import DeviceError, Platform, collect
from reprodb.executors.slots import GUARD, POISON, Arguments, Batch, Region, stride_of

# What one batch of repetitions may take; more repetitions go in further batches.
BATCH_BYTES = 1 << 30
# Inputs kept on the device between results.
INPUT_BYTES = 4 << 30
# From so many launches in a batch, one graph of them is faster (measured: docs/executing.md).
GRAPH_FROM = 1 << 62

_NON_BLOCKING = 1
_CAPTURE_THREAD_LOCAL = 1
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3
_MAX_DYNAMIC_SHARED = 8

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class CudaExecutor:
    """Executes on one device of this process. `cupy` is the module, or a stand-in with the same calls."""

    lane = Lane.MEASURED

    def __init__(self, cupy: Any, ordinal: int, arrays: Arrays, *, graph_from: int = GRAPH_FROM) -> None:
        self._cupy = cupy
        self._driver = cupy.cuda.driver
        self._runtime = cupy.cuda.runtime
        self._ordinal = ordinal
        self._arrays = arrays
        self._graph_from = graph_from
        self._inputs: OrderedDict[Input, tuple[int, int]] = OrderedDict()  # (address, bytes)
        self._slots = (0, 0)  # (address, bytes), reused between results
        self._host = (0, 0)
        with self._calls(f"opening device {ordinal}"):
            self._runtime.setDevice(ordinal)
            self._runtime.free(0)  # makes the context
            self._stream = self._runtime.streamCreateWithFlags(_NON_BLOCKING)

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

    def device(self) -> Device:
        """The device, as the running context knows it."""
        with self._calls("reading the device"):
            found = self._runtime.getDeviceProperties(self._ordinal)
        name = found["name"]
        return Device(
            name=name.decode() if isinstance(name, bytes) else str(name),
            uuid=format_uuid(bytes(found["uuid"])),
            compute_capability=f"{found['major']}.{found['minor']}",
            sm_count=int(found["multiProcessorCount"]),
            memory=int(found["totalGlobalMem"]),
            index=self._ordinal,
        )

    def platform(self) -> Platform:
        with self._calls("reading versions"):
            spoken = self._runtime.driverGetVersion()
            runtime = self._runtime.runtimeGetVersion()
        return Platform(
            lane=self.lane,
            libraries=self.libraries(),
            device=self.device(),
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
            addresses = {wanted.name: self._resident(wanted, case) for wanted in case.inputs}
            began = time.perf_counter()
            raws = self._repeat(stages, case, addresses, repetitions)
            seconds = time.perf_counter() - began
        self._check_inputs(case, addresses)
        outputs = tuple(collect(buffer, raws[buffer.name]) for buffer in case.recorded)
        for output in outputs:
            if output.buffer.init == "poison" and set(output.patterns[0]) == {POISON}:
                notes = (*notes, f"buffer {output.buffer.name} was never written: it holds its poison")
        return Samples(outputs, origin, seconds, notes)

    # --- code ---

    @contextmanager
    def _module(self, image: bytes, artifact: Artifact) -> Iterator[int]:
        arch = artifact.build.arch
        with self._calls(f"loading the {arch} code on {self._name()}"):
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
        if stage.shared:
            with self._calls(f"allowing {stage.shared} bytes of dynamic shared memory to {stage.entry!r}"):
                self._driver.funcSetAttribute(function, _MAX_DYNAMIC_SHARED, stage.shared)
        return function

    # --- inputs ---

    def _resident(self, wanted: Input, case: Case) -> int:
        """The device address of an input, uploaded where it is not there yet. Those of `case` all stay."""
        if wanted in self._inputs:
            self._inputs.move_to_end(wanted)
            return self._inputs[wanted][0]
        array = self._arrays.get(wanted)
        size = max(array.nbytes, 1)
        while self._inputs and sum(n for _, n in self._inputs.values()) + size > INPUT_BYTES:
            oldest = next(iter(self._inputs))
            if oldest in case.inputs:
                break
            self._forget(oldest)
        with self._calls(f"uploading input {wanted.name!r} of {array.nbytes} bytes"):
            address = int(self._runtime.malloc(size))
            self._inputs[wanted] = (address, size)
            if array.nbytes:
                self._runtime.memcpyAsync(address, array.ctypes.data, array.nbytes, _TO_DEVICE, self._stream)
            self._runtime.streamSynchronize(self._stream)
        return address

    def _forget(self, wanted: Input) -> None:
        address, _ = self._inputs.pop(wanted)
        with suppress(self._runtime.CUDARuntimeError):
            self._runtime.free(address)

    def _check_inputs(self, case: Case, addresses: Mapping[str, int]) -> None:
        """Refuse a kernel that wrote to its inputs: later repetitions, and later results, read them too."""
        for wanted in case.inputs:
            array = self._arrays.get(wanted)
            found = np.empty_like(array)
            if not array.nbytes:
                continue
            with self._calls(f"reading input {wanted.name!r} back"):
                self._runtime.memcpyAsync(
                    found.ctypes.data, addresses[wanted.name], array.nbytes, _TO_HOST, self._stream
                )
                self._runtime.streamSynchronize(self._stream)
            if found.tobytes() != array.tobytes():
                self._forget(wanted)
                raise ExecutionError(
                    f"the kernel changed its input {wanted.name!r}",
                    remedy=f"give it a buffer with init = 'copy:{wanted.name}' to work in",
                )

    # --- repetitions ---

    def _repeat(
        self,
        stages: Sequence[tuple[Stage, int]],
        case: Case,
        inputs: Mapping[str, int],
        repetitions: int,
    ) -> dict[str, list[bytes]]:
        """The bytes of every recorded buffer after each repetition, by buffer name."""
        a_slot = sum(stride_of(buffer) for buffer in case.buffers)
        at_once = min(repetitions, max(1, self._room() // max(a_slot, 1)))
        raws: dict[str, list[bytes]] = {buffer.name: [] for buffer in case.recorded}
        for start in range(0, repetitions, at_once):
            batch = Batch.of(case, min(at_once, repetitions - start), inputs)
            batch = replace(batch, base=self._device_block(batch.nbytes))
            with self._calls("executing"):
                self._fill(batch)
                self._launch(stages, batch)
                rows = self._fetch(batch)
            for region, found in rows:
                _check_guards(region, found)
                if region.recorded:
                    size = region.buffer.nbytes
                    raws[region.buffer.name] += [row[:size].tobytes() for row in found]
        return raws

    def _room(self) -> int:
        with self._calls("asking for free memory"):
            free, _ = self._runtime.memGetInfo()
        return min(BATCH_BYTES, (int(free) + self._slots[1]) // 2)

    def _fill(self, batch: Batch) -> None:
        """Poison, zero or copy every slot before anything runs: one call a buffer, a copy a repetition."""
        sizes = {wanted.name: self._arrays.get(wanted).nbytes for wanted in batch.case.inputs}
        for region in batch.regions:
            start = batch.base + region.start
            self._runtime.memsetAsync(start, region.fill, region.nbytes, self._stream)
            kind, _, source = region.buffer.init.partition(":")
            if kind == "copy" and (size := min(region.buffer.nbytes, sizes[source])):
                for target in range(start, start + region.nbytes, region.stride):
                    self._runtime.memcpyAsync(target, batch.inputs[source], size, _ON_DEVICE, self._stream)

    def _launch(self, stages: Sequence[tuple[Stage, int]], batch: Batch) -> None:
        launches = [(stage, function, batch.arguments(stage)) for stage, function in stages]
        if batch.slots * len(launches) < self._graph_from:
            self._queue(launches, batch.slots)
            return
        self._runtime.streamBeginCapture(self._stream, _CAPTURE_THREAD_LOCAL)
        try:
            self._queue(launches, batch.slots)
        finally:
            graph = self._runtime.streamEndCapture(self._stream)
        executable = self._runtime.graphInstantiate(graph)
        self._runtime.graphLaunch(executable, self._stream)
        self._runtime.graphExecDestroy(executable)  # CUDA keeps it until it has run
        self._runtime.graphDestroy(graph)

    def _queue(self, launches: Sequence[tuple[Stage, int, Arguments]], slots: int) -> None:
        launch, stream = self._driver.launchKernel, self._stream
        shapes = [(f, *s.grid, *s.block, s.shared, stream, a.address, a.step) for s, f, a in launches]
        for slot in range(slots):
            for *shape, address, step in shapes:
                launch(*shape, address + slot * step, 0)

    def _fetch(self, batch: Batch) -> list[tuple[Region, Bytes]]:
        """Wait for the batch; each region's slots as rows of bytes, of scratch buffers the guards alone."""
        size = batch.recorded_bytes
        scratch = [region for region in batch.regions if not region.recorded]
        host = self._host_block(size + sum(GUARD * region.slots for region in scratch))
        if size:
            self._runtime.memcpyAsync(host, batch.base, size, _TO_HOST, self._stream)
        places = [(region, region.start, region.stride) for region in batch.regions if region.recorded]
        for region in scratch:
            guards = batch.base + region.start + region.stride - GUARD
            self._runtime.memcpy2DAsync(
                host + size, GUARD, guards, region.stride, GUARD, region.slots, _TO_HOST, self._stream
            )
            places.append((region, size, GUARD))
            size += GUARD * region.slots
        self._runtime.streamSynchronize(self._stream)
        return [(region, _rows(host + start, region.slots, width)) for region, start, width in places]

    # --- memory and errors ---

    def _device_block(self, size: int) -> int:
        address, held = self._slots
        if size > held or not address:
            with self._calls(f"allocating {size} bytes for repetitions"):
                self._slots = (0, 0)
                if address:
                    self._runtime.free(address)
                address = int(self._runtime.malloc(max(size, 1)))
            self._slots = (address, size)
        return address

    def _host_block(self, size: int) -> int:
        address, held = self._host
        if size > held or not address:
            self._host = (0, 0)
            if address:
                self._runtime.freeHost(address)
            address = int(self._runtime.hostAlloc(max(size, 1), 0))
            self._host = (address, size)
        return address

    def _name(self) -> str:
        device = self.device()
        return f"{device.name} ({device.arch})"

    @contextmanager
    def _calls(self, doing: str) -> Iterator[None]:
        """Turn a CUDA error into a DeviceError: what was going on, and whether the context is lost."""
        try:
            yield
        except (self._driver.CUDADriverError, self._runtime.CUDARuntimeError) as error:
            failure = DeviceError(f"{doing}: {error}")
            failure.sticky = self._lost()
            raise failure from error

    def _lost(self) -> bool:
        """Whether the context is of no more use: then the next call repeats the error."""
        try:
            self._runtime.deviceSynchronize()
        except self._runtime.CUDARuntimeError:
            return True
        return False


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


def _rows(address: int, count: int, width: int) -> Bytes:
    """Host memory from `address` as `count` rows of `width` bytes."""
    flat = (ctypes.c_uint8 * (count * width)).from_address(address)
    return np.ctypeslib.as_array(flat).reshape(count, width)


def _check_guards(region: Region, rows: Bytes) -> None:
    size = region.buffer.nbytes
    if (rows[:, size if region.recorded else 0 :] != region.fill).any():
        raise ExecutionError(
            f"the kernel wrote past the end of buffer {region.buffer.name!r} ({size} bytes)",
            remedy="run the kernel under compute-sanitizer --tool memcheck",
        )
