"""Parsed instructions as PTX text again, for people."""

from __future__ import annotations

from reprodb.executors.model.ptx import (
    Args,
    Float,
    Instruction,
    Int,
    Mem,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Sym,
    Vec,
)


def instruction_text(ins: Instruction) -> str:
    """`@%p1 fma.rn.f32 %f7, %f6, %f6, 0f3E800000`."""
    guard = f"@{'!' if ins.guard.negated else ''}{ins.guard.register} " if ins.guard else ""
    return f"{guard}{ins.opcode} {', '.join(map(operand_text, ins.operands))}".rstrip()


def operand_text(operand: Operand) -> str:
    match operand:
        case Reg(name) | Sym(name):
            return name
        case Int(value):
            return str(value)
        case Float(bits, width):
            return f"0f{bits:08X}" if width == 32 else f"0d{bits:016X}"
        case Mem(base, offset, extra):
            inner = operand_text(base) + (f"{offset:+}" if offset else "")
            return f"[{', '.join((inner, *map(operand_text, extra)))}]"
        case Vec(items):
            return f"{{{', '.join(map(operand_text, items))}}}"
        case Args(items):
            return f"({', '.join(map(operand_text, items))})"
        case Pair(first, second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case Not(register):
            return f"!{register.name}"
        case Sink():
            return "_"
