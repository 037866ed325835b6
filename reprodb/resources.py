"""What a kernel's stages take of a multiprocessor: registers and shared memory, read from SASS text."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reprodb.codegen import launched

# In the table of registers each entry has a mark, `.word index@(NAME)` and `.word COUNT`, in this order.
_REGISTERS = re.compile(
    r"nvinfo : (EIATTR_REGCOUNT)\b|\.word\s+index@\(([^)\n]+)\)|\.word\s+(0x[0-9a-fA-F]+)"
)
_SHARED = re.compile(r"^\.nv\.shared\.([^:\n]+):[ \t]*\n\s*\.zero\s+(\d{1,9})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resources:
    """One function: registers a thread and bytes of static shared memory a block."""

    function: str
    registers: int
    shared: int


def resources(sass: str, functions: Iterable[str]) -> tuple[Resources, ...]:
    """The resources of the named `__global__` functions, as far as the disassembly tells them."""
    registers = dict(_registers(sass))
    shared = {name: int(size) for name, size in _SHARED.findall(sass)}
    found = []
    for function in functions:
        name = next((n for n in registers if launched(n, (function,))), None)
        if name is not None:
            found.append(Resources(function, registers[name], shared.get(name, 0)))
    return tuple(found)


def _registers(sass: str) -> Iterator[tuple[str, int]]:
    """In one pass: text from elsewhere may hold any number of marks without an end."""
    marked, name = False, ""
    for mark, index, count in _REGISTERS.findall(sass):
        if mark:
            marked = True
        elif index:
            name = name or (index if marked else "")
        elif name:
            yield name, int(count, 16)
            marked, name = False, ""
