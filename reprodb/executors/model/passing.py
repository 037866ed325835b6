"""Parameters of calls that were put in become registers: after inlining nothing else about them is memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reprodb.executors.model.ptx import TYPE_BYTES, Instruction, Label, Mem, Operand, Reg, Statement, Sym


def register(name: str) -> str:
    """The register that holds a variable."""
    return f"{name}~value"


def in_registers(
    body: tuple[Statement, ...], passed: Iterable[str]
) -> tuple[tuple[Statement, ...], dict[str, str]]:
    """The body with variables of `passed` in registers, and which: their names and the registers' types.

    It can where a variable is only ever written and read whole, in one width, under its own name.
    """
    widths: dict[str, set[int]] = {name: set() for name in passed}
    for statement in body:
        if isinstance(statement, Label):
            continue
        whole = _whole_access(statement)
        for operand in statement.operands:
            for name in _names(operand):
                if name in widths:
                    widths[name].add(whole if whole and isinstance(operand, Mem) else 0)
    found = {name: f"b{8 * next(iter(w))}" for name, w in widths.items() if len(w) == 1 and w <= {4, 8}}
    moved = tuple(s if isinstance(s, Label) else _moved(s, found) for s in body)
    return moved, found


def _whole_access(ins: Instruction) -> int:
    """The bytes of a local access to a variable's start that is one element; 0 for everything else."""
    if ins.base not in ("ld", "st") or "local" not in ins.parts or len(ins.operands) != 2:
        return 0
    memory, value = ins.operands if ins.base == "st" else ins.operands[::-1]
    if not isinstance(memory, Mem) or memory.offset or memory.extra or not isinstance(memory.base, Sym):
        return 0
    if not isinstance(value, Reg) or ins.parts[-1] not in TYPE_BYTES:
        return 0
    return TYPE_BYTES[ins.parts[-1]]


def _moved(ins: Instruction, found: dict[str, str]) -> Instruction:
    if not _whole_access(ins):
        return ins
    memory, value = ins.operands if ins.base == "st" else ins.operands[::-1]
    assert isinstance(memory, Mem) and isinstance(memory.base, Sym)  # noqa: S101 -- a whole access
    kind = found.get(memory.base.name)
    if kind is None:
        return ins
    place = Reg(register(memory.base.name))
    operands = (place, value) if ins.base == "st" else (value, place)
    return replace(ins, opcode=f"mov.{kind}", operands=operands)


def _names(operand: Operand) -> Iterable[str]:
    """The variables that an operand names, wherever in it they stand."""
    match operand:
        case Sym(name):
            yield name
        case Mem(base, _, extra):
            for each in (base, *extra):
                yield from _names(each)
        case _:
            for each in getattr(operand, "items", ()):
                yield from _names(each)
