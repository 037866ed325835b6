"""What a kernel's stages take of a multiprocessor: registers and shared memory, read from SASS text."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from reprodb.codegen import launched

# `.word index@(NAME)` and a count follow each other in the table of registers.
_REGISTERS = re.compile(
    r"nvinfo : EIATTR_REGCOUNT\b.*?\.word\s+index@\(([^)\n]+)\).*?\.word\s+(0x[0-9a-fA-F]+)", re.DOTALL
)
_SHARED = re.compile(r"^\.nv\.shared\.([^:\n]+):\s*\n\s*\.zero\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resources:
    """One function: registers a thread and bytes of static shared memory a block."""

    function: str
    registers: int
    shared: int


def resources(sass: str, functions: Iterable[str]) -> tuple[Resources, ...]:
    """The resources of the named `__global__` functions, as far as the disassembly tells them."""
    registers = {name: int(count, 16) for name, count in _REGISTERS.findall(sass)}
    shared = {name: int(size) for name, size in _SHARED.findall(sass)}
    found = []
    for function in functions:
        name = next((n for n in registers if launched(n, (function,))), None)
        if name is not None:
            found.append(Resources(function, registers[name], shared.get(name, 0)))
    return tuple(found)
