"""Calls a kernel that is a Python function on CuPy arrays, and records which libraries it used."""

from __future__ import annotations

import time
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reprodb.domain import Artifact, Buffer, Case, CodeOrigin, Kernel, Lane, Pairs, Samples
from reprodb.errors import ExecutionError
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import DeviceError, Executor, collect
from reprodb.executors.task import Prepared
from reprodb.patterns import storage
from reprodb.stress import NO_PRESSURE


@dataclass(frozen=True, slots=True)
class Context:
    """What a callable is told: the case's `n`, the manifest's defines as text, and which repetition it is.

    It tells which libraries it calls with `library`: their versions stand where a compiler's would.
    """

    n: int
    defines: Mapping[str, str]
    repetition: int
    libraries: dict[str, str] = field(default_factory=dict)

    def library(self, name: str, version: object) -> None:
        """Record that this library of this version computes."""
        self.libraries[str(name)[:100]] = str(version)[:100]


class CallableExecutor:
    """`device` is the GPU's executor, whose context the arrays lie in; `xp` is CuPy, or NumPy in tests."""

    def __init__(
        self, device: Executor, prepared: Prepared, *, xp: Any = None, arrays: Arrays | None = None
    ) -> None:
        self.lane: Lane = device.lane
        self.pressure = NO_PRESSURE
        self._device = device
        self._prepared = prepared
        self._xp = xp
        self._arrays = arrays or Arrays()

    def libraries(self) -> Pairs:
        return self._device.libraries()

    def execute(
        self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int = 0
    ) -> Samples:
        """Calls the function `repetitions` times on the same inputs. Raises ExecutionError with its words."""
        xp = self._xp if self._xp is not None else _cupy()
        call = self._function(kernel)
        inputs = {declared.name: xp.array(self._arrays.get(declared)) for declared in case.inputs}
        defines = dict(kernel.defines)
        raws: dict[str, list[bytes]] = {b.name: [] for b in case.recorded}
        used: dict[str, str] = {}
        started = time.perf_counter()
        for repetition in range(repetitions):
            returned = _called(call, dict(inputs), Context(case.n, defines, repetition, used))
            for buffer in case.recorded:
                raws[buffer.name].append(_bytes(xp, returned, buffer, case.recorded))
        seconds = time.perf_counter() - started
        for declared in case.inputs:
            before, after = self._arrays.get(declared), _host(xp, inputs[declared.name])
            if not np.array_equal(after.view(np.uint8), before.view(np.uint8)):
                raise ExecutionError(
                    f"{kernel.name} changed its input {declared.name!r}", remedy="work on a copy: x.copy()"
                )
        outputs = tuple(collect(buffer, raws[buffer.name]) for buffer in case.recorded)
        # The first that the callable named stands for a compiler, the others beside it.
        used.setdefault(str(xp.__name__), str(xp.__version__))
        return Samples(outputs, CodeOrigin.LIBRARY, seconds, libraries=tuple(used.items()))

    def _function(self, kernel: Kernel) -> Callable[[dict[str, Any], Context], Any]:
        file = self._prepared.files[0]
        program = kernel.program
        name = program.function if program is not None else ""
        module = types.ModuleType("reprodb_kernel")
        module.__file__ = file.path
        try:
            exec(compile(file.text, file.path, "exec"), module.__dict__)  # noqa: S102 -- the suite's own code
        except SyntaxError as error:
            raise ExecutionError(f"{file.path}, line {error.lineno}: {error.msg}") from error
        call = getattr(module, name, None)
        if not callable(call):
            raise ExecutionError(
                f"{file.path} has no function {name!r}", remedy="mend callable in the manifest"
            )
        found: Callable[[dict[str, Any], Context], Any] = call
        return found


def _called(call: Callable[[dict[str, Any], Context], Any], arrays: dict[str, Any], context: Context) -> Any:
    """What the suite's function returns. Whatever it raises may have left the device in any state."""
    try:
        return call(arrays, context)
    except Exception as error:
        detail = "".join(traceback.format_exception(error)[-6:])
        failed = DeviceError(f"the callable raised {type(error).__name__}: {error}", detail=detail)
        failed.sticky = True
        raise failed from error


def _cupy() -> Any:
    import cupy

    return cupy


def _host(xp: Any, array: Any) -> Any:
    return array if xp is np else xp.asnumpy(array)


def _bytes(xp: Any, returned: Any, buffer: Buffer, recorded: tuple[Buffer, ...]) -> bytes:
    """One output's bytes: of the mapping returned, or of the array itself where one output is declared."""
    if isinstance(returned, Mapping):
        if buffer.name not in returned:
            raise ExecutionError(
                f"the callable returned {', '.join(map(str, returned))} and no {buffer.name}"
            )
        array = returned[buffer.name]
    elif len(recorded) == 1:
        array = returned
    else:
        raise ExecutionError(
            "the callable returned one array", allowed="a dict with every result and witness"
        )
    host = np.ascontiguousarray(_host(xp, array))
    if host.dtype != storage(buffer.dtype) or host.size != buffer.elements:
        raise ExecutionError(
            f"the callable returned {host.size} × {host.dtype} for {buffer.name}",
            allowed=f"{buffer.elements} × {buffer.dtype}",
        )
    return host.tobytes()
