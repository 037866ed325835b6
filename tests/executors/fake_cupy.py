"""A stand-in for CuPy whose device is this process's own memory and whose kernels are Python functions."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

# A kernel gets the values of its arguments as unsigned 64-bit numbers.
FakeKernel = Callable[..., None]


class CUDADriverError(RuntimeError):
    pass


class CUDARuntimeError(RuntimeError):
    pass


class FakeCupy:
    """`kernels`: an entry's number of arguments and function. `fails`: the error that a call raises."""

    __version__ = "14.2.0"

    def __init__(self, kernels: dict[str, tuple[int, FakeKernel]], room: int = 1 << 30) -> None:
        self.kernels = kernels
        self.destroyed: list[int] = []
        self.room = room
        self.blocks: dict[int, Any] = {}
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.lost = False
        self.entries: list[str] = []
        self.shared: dict[str, int] = {}
        self.variables: dict[str, int] = {}  # address of each
        self.captured: list[Callable[[], None]] | None = None
        self.graphs: list[list[Callable[[], None]]] = []
        driver = (
            "moduleLoadData moduleUnload moduleGetFunction moduleGetGlobal funcGetAttribute"
            " funcSetAttribute launchKernel"
        )
        runtime = (
            "setDevice free malloc hostAlloc freeHost streamCreateWithFlags memGetInfo getDeviceProperties"
            " driverGetVersion runtimeGetVersion memsetAsync memcpyAsync memcpy2DAsync streamSynchronize"
            " deviceSynchronize streamBeginCapture streamEndCapture graphInstantiate graphUpload graphLaunch"
            " graphDestroy graphExecDestroy streamDestroy"
        )
        self.cuda = SimpleNamespace(
            driver=SimpleNamespace(
                CUDADriverError=CUDADriverError, **{name: self.call(name) for name in driver.split()}
            ),
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError, **{name: self.call(name) for name in runtime.split()}
            ),
        )

    def call(self, name: str) -> Callable[..., Any]:
        def made(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.fails:
                raise self.fails[name]
            if self.lost and name in ("deviceSynchronize", "streamSynchronize", "free"):
                raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
            function = getattr(self, name, None)
            return function(*arguments) if function else 0

        return made

    def queued(self, action: Callable[[], None]) -> None:
        if self.captured is None:
            action()
        else:
            self.captured.append(action)

    # --- memory ---

    def streamDestroy(self, stream: int) -> None:
        self.destroyed.append(stream)

    def malloc(self, size: int) -> int:
        block = (ctypes.c_uint8 * (size + 256))()
        address = -(-ctypes.addressof(block) // 256) * 256
        self.blocks[address] = block
        return address

    def hostAlloc(self, size: int, flags: int) -> int:
        return self.malloc(size)

    def memGetInfo(self) -> tuple[int, int]:
        return self.room, 1 << 34

    def memsetAsync(self, address: int, value: int, size: int, stream: int) -> None:
        self.queued(lambda: void(ctypes.memset(address, value, size)))

    def memcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        self.queued(lambda: void(ctypes.memmove(target, source, size)))

    def memcpy2DAsync(
        self, target: int, step: int, source: int, pitch: int, width: int, height: int, kind: int, stream: int
    ) -> None:
        for row in range(height):
            ctypes.memmove(target + row * step, source + row * pitch, width)

    # --- code ---

    def getDeviceProperties(self, ordinal: int) -> dict[str, Any]:
        return {"name": b"Fake GPU", "uuid": bytes(range(16)), "major": 9, "minor": 0,
                "multiProcessorCount": 132, "totalGlobalMem": 1 << 34}  # fmt: skip

    def driverGetVersion(self) -> int:
        return 13000

    def runtimeGetVersion(self) -> int:
        return 12090

    def moduleLoadData(self, image: bytes) -> int:
        if image == b"sm_80":
            raise CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available")
        return 1

    def moduleGetFunction(self, module: int, entry: str) -> int:
        if entry not in self.kernels:
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        self.entries.append(entry)
        return len(self.entries) - 1

    def moduleGetGlobal(self, module: int, name: str) -> int:
        if name not in self.variables:
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        return self.variables[name]

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self.shared[self.entries[function]] = value

    def launchKernel(self, function: int, *rest: int) -> None:
        *shape, _shared, _stream, pointers, _extra = rest
        if shape[3] * shape[4] * shape[5] > 1024:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        count, kernel = self.kernels[self.entries[function]]
        cells = [ctypes.c_uint64.from_address(pointers + 8 * i).value for i in range(count)]
        values = [ctypes.c_uint64.from_address(cell).value for cell in cells]
        self.queued(lambda: kernel(*values))

    # --- graphs ---

    def streamBeginCapture(self, stream: int, mode: int) -> None:
        self.captured = []

    def streamEndCapture(self, stream: int) -> int:
        assert self.captured is not None
        self.graphs.append(self.captured)
        self.captured = None
        return len(self.graphs) - 1

    def graphInstantiate(self, graph: int) -> int:
        return graph

    def graphLaunch(self, graph: int, stream: int) -> None:
        for action in self.graphs[graph]:
            action()


def void(value: object) -> None:
    """Drop a value."""
