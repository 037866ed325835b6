"""Stretches of a function that ptxas fuses within, and what the values of one stretch are used for.

ptxas contracts before it schedules, within what are basic blocks to it. A label ends a stretch where a
branch leads to it, and so does what ptxas itself turns into branches: divisions and roots that it expands,
fences, calls, and guarded instructions that it cannot execute under a predicate at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from reprodb.executors.model.flow import read, written
from reprodb.executors.model.ptx import Float, Function, Instruction, Label, Operand, Reg, Sym

# Base opcodes that compute lanes from registers alone: with a guard they stay one instruction.
_PLAIN = frozenset({
    "add", "sub", "mul", "mad", "mul24", "mad24", "sad", "abs", "neg", "min", "max", "dp2a", "dp4a",
    "addc", "and", "or", "xor", "not", "cnot", "shl", "shr", "shf", "popc", "clz", "brev", "bfind",
    "bfe", "bfi", "bmsk", "szext", "prmt", "lop3", "mov", "selp", "slct", "setp", "set", "fma",
    "copysign", "testp", "cvt", "cvta", "isspacep", "ex2", "rcp", "div", "rem",
})  # fmt: skip
# What neither ends a stretch nor is plain: memory, the warp, barriers. With a guard it ends one.
_PASSED = frozenset({
    "ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu", "nanosleep", "shfl", "vote",
    "activemask", "elect", "match", "redux", "bar", "barrier", "subc", "madc", "rsqrt", "sqrt",
    "lg2", "sin", "cos", "tanh", "griddepcontrol",
})  # fmt: skip
_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap", "call", "membar", "fence", "pmevent"})
_ROUNDED = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True, slots=True)
class Use:
    """Instruction `at` (an index into the function's instructions) reads a value as operand `operand`."""

    at: int
    operand: int


def ends_stretch(ins: Instruction) -> bool | None:
    """Whether ptxas fuses nothing across an instruction; None where that has not been tried."""
    base, parts = ins.base, ins.parts
    if base in _ENDS:
        return "proxy" not in parts
    if base in ("div", "rem") and parts[-1][0] in "us":
        return parts[-1] != "u32"
    if base in ("div", "rcp", "sqrt") and any(p in _ROUNDED for p in parts):
        return True
    if ins.opcode == "rsqrt.approx.f64" or (base == "bfind" and parts[-1] in ("u64", "s64")):
        return True
    if base in _PLAIN:
        return ins.guard is not None and "cc" in parts
    if base in _PASSED:
        return ins.guard is not None
    return None


class Stretches:
    """The instructions of a function by stretch, with the definitions and uses inside each."""

    def __init__(self, function: Function) -> None:
        self.instructions = function.instructions
        self.number: list[int] = []  # the stretch of each instruction
        self.untried: list[int] = []  # instructions of which nobody knows whether they end one
        self._written: dict[str, list[int]] = {}
        self._open: set[str] = set()  # registers read somewhere before their stretch writes them
        self.dead = _dead(self.instructions)
        self._number(function)
        self._registers()

    def _number(self, function: Function) -> None:
        targets = Counter(_targets(function))
        stretch = at = 0
        body = function.body or ()
        for statement, following in zip(body, (*body[1:], None), strict=True):
            if isinstance(statement, Label):
                stretch += targets[statement.name] > 0
                continue
            ends = ends_stretch(statement)
            if ends is None:
                self.untried.append(at)
            if isinstance(following, Label) and _only_way(statement, following, targets):
                targets[following.name], ends = 0, False
            stretch += bool(ends)
            self.number.append(stretch)
            stretch += bool(ends)
            at += 1

    def _registers(self) -> None:
        seen: set[str] = set()
        previous = -1
        for at, ins in enumerate(self.instructions):
            if self.number[at] != previous:
                seen, previous = set(), self.number[at]
            self._open.update(r for r in self._read(at) if r not in seen)
            for register in written(ins):
                self._written.setdefault(register, []).append(at)
                if ins.guard is None:
                    seen.add(register)

    def local(self, register: str) -> bool:
        """Whether every read of a register finds what its own stretch wrote."""
        return register not in self._open

    def _read(self, at: int) -> tuple[str, ...]:
        return () if at in self.dead else read(self.instructions[at])

    def uses(self, at: int) -> list[Use] | None:
        """Who reads what an instruction computes; None where it is also read outside of the stretch."""
        register = self._result(at)
        if register is None:
            return None
        found = []
        for later in range(at + 1, len(self.instructions)):
            if self.number[later] != self.number[at]:
                break
            ins = self.instructions[later]
            if later in self.dead:
                continue
            if ins.guard is not None and ins.guard.register == register:
                return None
            direct = [n for n, o in enumerate(ins.operands) if o == Reg(register)]
            if register in written(ins):
                direct = [n for n in direct if n]
                if ins.guard is not None:
                    return None
            elif read(ins).count(register) != len(direct):
                return None  # inside an address or a vector
            found += [Use(later, n) for n in direct]
            if register in written(ins):
                return found
        return None if register in self._open else found

    def constant(self, operand: Operand) -> Float | None:
        """The number that an operand is: one itself, or a register that one `mov` gives it."""
        if isinstance(operand, Float):
            return operand
        at = self._single(operand)
        ins = self.instructions[at] if at is not None else None
        if ins is None or ins.base != "mov":
            return None
        source = ins.operands[1]
        return source if isinstance(source, Float) else None

    def only(self, register: Reg) -> int | None:
        """The one instruction that computes a register which is read once in the whole function."""
        at = self._single(register)
        if at is None or sum(self._read(n).count(register.name) for n in range(len(self.number))) != 1:
            return None
        source = self.instructions[at].operands[1]
        copied = self.instructions[at].base == "mov" and isinstance(source, Reg)
        return self.only(source) if copied and isinstance(source, Reg) else at

    def _single(self, operand: Operand) -> int | None:
        found = self._written.get(operand.name, []) if isinstance(operand, Reg) else []
        return found[0] if len(found) == 1 and self.instructions[found[0]].guard is None else None

    def changed(self, register: str, first: int, last: int) -> bool:
        """Whether a register is written by instructions after `first` and before `last`."""
        return any(first < at < last for at in self._written.get(register, ()))

    def _result(self, at: int) -> str | None:
        target = self.instructions[at].operands[0]
        return target.name if isinstance(target, Reg) else None


def _only_way(ins: Instruction, label: Label, targets: Counter[str]) -> bool:
    """Whether an instruction jumps to the label behind it, and nothing else does."""
    jumps = ins.base == "bra" and ins.guard is None and ins.operands[0] == Sym(label.name)
    return jumps and targets[label.name] == 1


def _dead(instructions: tuple[Instruction, ...]) -> frozenset[int]:
    """Instructions that compute what no other reads, which ptxas leaves out."""
    dead: set[int] = set()
    while True:
        used = {r for at, ins in enumerate(instructions) if at not in dead for r in read(ins)}
        more = {
            at
            for at, ins in enumerate(instructions)
            if ins.base in _PLAIN and at not in dead and not used.intersection(written(ins))
        }
        if not more:
            return frozenset(dead)
        dead |= more


def _targets(function: Function) -> Iterator[str]:
    for ins in function.instructions:
        if ins.base == "bra" and isinstance(ins.operands[0], Sym):
            yield ins.operands[0].name
    for labels in function.tables.values():
        yield from labels
