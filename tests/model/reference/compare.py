"""What differs between two sets of buffers, and the buffers that a random program starts from."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.model.reference.launch import Launch, Order, run
from tests.model.reference.programs import Program
from tests.model.reference.words import input_bytes


def buffers_of(program: Program, rng: Random) -> dict[str, bytes]:
    return {name: input_bytes(rng, name, size) for name, size in (program.inputs | program.outputs).items()}


def interpreted(
    ptx: str, launch: Launch, buffers: Mapping[str, bytes], order: Order | None = None
) -> dict[str, bytes]:
    """Every buffer's bytes after the launch."""
    memory = {name: bytearray(data) for name, data in buffers.items()}
    run(ptx, [launch], memory, order)
    return {name: bytes(data) for name, data in memory.items()}


def differences(got: Mapping[str, bytes], wanted: Mapping[str, bytes], width: int = 4) -> list[str]:
    """A line for each word that differs: buffer, index, what was got, what the interpreter says."""
    return [
        f"{name}[{i // width}]: got {got[name][i : i + width][::-1].hex()}, "
        f"interpreter {data[i : i + width][::-1].hex()}"
        for name, data in wanted.items()
        for i in range(0, len(data), width)
        if got[name][i : i + width] != data[i : i + width]
    ]
