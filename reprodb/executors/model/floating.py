"""Which registers of a kernel carry floating-point values, and of what type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from reprodb.executors.model.flow import written
from reprodb.executors.model.inline import Flat
from reprodb.executors.model.ptx import TYPE_BYTES, Instruction, Operand, Pair, Reg, Vec

FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")
# Untyped instructions through which a value travels from the first source to the result.
_CARRYING = ("mov", "selp", "shfl")


def types_of(ins: Instruction) -> tuple[str, str]:
    """The floating-point types of an instruction's result and sources by its opcode; empty where not one."""
    found = [part for part in ins.parts[1:] if part in TYPE_BYTES]
    if not found:
        return "", ""
    if ins.base in ("cvt", "set") and len(found) > 1:
        result, source = found[-2:]
    elif ins.base == "slct" and len(found) > 1:
        result = source = found[-2]
    else:
        result = source = found[-1]
    if ins.base in ("setp", "testp"):
        result = ""
    return result if result in FLOATS else "", source if source in FLOATS else ""


def carriers(flat: Flat) -> dict[str, str]:
    """Registers that a floating-point instruction sets or reads, and those that values travel through.

    Newer compilers declare such registers as plain words, so the instructions decide, not declarations.
    """
    instructions = [i for i in flat.body if isinstance(i, Instruction)]
    found: dict[str, str] = {}
    for ins in instructions:
        result, source = types_of(ins)
        for kind, names in ((result, written(ins)), (source, _sources(ins))):
            for name in names:
                if kind and _fits(flat, name, kind):
                    found.setdefault(name, kind)
    moves = [pair for ins in instructions if ins.base in _CARRYING for pair in _moved(ins)]
    changed = True
    while changed:
        known = len(found)
        for to, source in moves:
            for name, other in ((to, source), (source, to)):
                if name in found and _fits(flat, other, found[name]):
                    found.setdefault(other, found[name])
        changed = len(found) > known
    return found


def words_between(flat: Flat, floats: Collection[str]) -> set[str]:
    """Registers through which values travel as plain words from one of `floats` to another.

    A double goes through shuffles in halves, say; loop counters and addresses are not among them.
    """
    edges = [
        (source, to)
        for ins in flat.body
        if isinstance(ins, Instruction) and ins.base not in ("ld", "ldu", "atom", "setp")
        for to in written(ins)
        for source in _sources(ins)
    ]
    forward = _reached(edges, floats)
    return (forward & _reached([(to, source) for source, to in edges], floats)) - set(floats)


def _reached(edges: list[tuple[str, str]], start: Iterable[str]) -> set[str]:
    following: dict[str, list[str]] = {}
    for a, b in edges:
        following.setdefault(a, []).append(b)
    found = set(start)
    waiting = list(found)
    while waiting:
        for each in following.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _fits(flat: Flat, name: str, kind: str) -> bool:
    declared = flat.registers.get(name, "pred")
    return declared != "pred" and TYPE_BYTES[declared] == TYPE_BYTES[kind]


def _sources(ins: Instruction) -> Iterator[str]:
    """Registers that an instruction computes with; addresses and the third of `slct` are not."""
    places = ins.operands if ins.base in ("st", "red") else ins.operands[1:]
    if ins.base == "slct":
        places = places[:2]
    for operand in places:
        yield from _registers(operand)


def _registers(operand: Operand) -> Iterator[str]:
    match operand:
        case Reg(name):
            yield name
        case Vec(items):
            for item in items:
                yield from _registers(item)


def _moved(ins: Instruction) -> Iterator[tuple[str, str]]:
    to = ins.operands[0].first if isinstance(ins.operands[0], Pair) else ins.operands[0]
    sources = ins.operands[1:3] if ins.base == "selp" else ins.operands[1:2]
    for source in sources:
        if isinstance(to, Reg) and isinstance(source, Reg):
            yield to.name, source.name
