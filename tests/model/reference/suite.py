"""A kernel of a suite under the slow interpreter: the case's inputs made, buffers filled, stages run."""

from __future__ import annotations

from reprodb.domain import Arg, ArgKind, Buffer, Case, Kernel
from reprodb.inputs import generate
from tests.model.reference.launch import Launch, Order, run
from tests.model.reference.memory import UNSET


def run_case(kernel: Kernel, case: Case, ptx: str, order: Order | None = None) -> dict[str, bytes]:
    """The bytes of every recorded buffer after one repetition, by name."""
    inputs = {i.name: generate(i).tobytes() for i in case.inputs}
    memory = {name: bytearray(data) for name, data in inputs.items()}
    memory |= {buffer.name: _filled(buffer, inputs) for buffer in case.buffers}
    stages = [
        Launch(s.entry, s.grid, s.block, tuple(_argument(a, case) for a in s.args), s.shared)
        for s in kernel.stages
    ]
    run(ptx, stages, memory, order)
    return {buffer.name: buffer.pack(bytes(memory[buffer.name])) for buffer in case.recorded}


def _filled(buffer: Buffer, inputs: dict[str, bytes]) -> bytearray:
    if buffer.init.startswith("copy:"):
        return bytearray(inputs[buffer.init.removeprefix("copy:")][: buffer.nbytes])
    return bytearray([0 if buffer.init == "zero" else UNSET]) * buffer.nbytes


def _argument(arg: Arg, case: Case) -> str | bytes:
    if arg.kind is ArgKind.SIZE:
        return case.n.to_bytes(8, "little")
    return arg.value if arg.kind is ArgKind.SCALAR else arg.name
