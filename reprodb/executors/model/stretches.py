"""Stretches of a function that ptxas fuses within, and what the values of one stretch are used for.

ptxas contracts before it schedules, within what are basic blocks to it. A label ends a stretch where a
branch leads to it, and so does what ptxas itself turns into branches: divisions and roots that it expands,
fences, calls, and guarded instructions that it cannot execute under a predicate at once.
"""

from __future__ import annotations

from bisect import bisect_right
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
        self._reads = [read(ins) for ins in self.instructions]
        self._writes = [written(ins) for ins in self.instructions]
        self.dead = _dead(self.instructions, self._reads, self._writes)
        self._written: dict[str, list[int]] = {}  # by register, where it is written,
        self._read: dict[str, list[int]] = {}  # and where it is read, dead instructions left out
        self._open: set[str] = set()  # registers read somewhere before their stretch writes them
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
            if at not in self.dead:
                for register in self._reads[at]:
                    self._read.setdefault(register, []).append(at)
                self._open.update(r for r in self._reads[at] if r not in seen)
            for register in self._writes[at]:
                self._written.setdefault(register, []).append(at)
                if ins.guard is None:
                    seen.add(register)

    def local(self, register: str) -> bool:
        """Whether every read of a register finds what its own stretch wrote."""
        return register not in self._open

    def readers(self, register: str) -> list[int]:
        """The instructions that read a register, in order, once for each time."""
        return self._read.get(register, [])

    def uses(self, at: int) -> list[Use] | None:
        """Who reads what an instruction computes; None where it is also read outside of the stretch."""
        target = self.instructions[at].operands[0]
        if not isinstance(target, Reg):
            return None
        name, here = target.name, self.number[at]
        writes = self._written[name]
        after = bisect_right(writes, at)
        end = writes[after] if after < len(writes) and self.number[writes[after]] == here else None
        if end is not None and self.instructions[end].guard is not None:
            return None  # the old value stays in some lanes
        readers = self.readers(name)
        first = bisect_right(readers, at)
        found: list[Use] = []
        for later in dict.fromkeys(readers[first:]):
            if self.number[later] != here or (end is not None and later > end):
                break
            ins = self.instructions[later]
            direct = [
                Use(later, n) for n, o in enumerate(ins.operands) if o == target and (n or later != end)
            ]
            if self._reads[later].count(name) != len(direct):
                return None  # a guard, or inside an address or a vector
            found += direct
        return None if end is None and name in self._open else found

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
        if at is None or len(self.readers(register.name)) != 1:
            return None
        source = self.instructions[at].operands[1]
        copied = self.instructions[at].base == "mov" and isinstance(source, Reg)
        return self.only(source) if copied and isinstance(source, Reg) else at

    def _single(self, operand: Operand) -> int | None:
        found = self._written.get(operand.name, []) if isinstance(operand, Reg) else []
        return found[0] if len(found) == 1 and self.instructions[found[0]].guard is None else None

    def changed(self, register: str, first: int, last: int) -> bool:
        """Whether a register is written by instructions after `first` and before `last`."""
        writes = self._written.get(register, [])
        after = bisect_right(writes, first)
        return after < len(writes) and writes[after] < last


def _only_way(ins: Instruction, label: Label, targets: Counter[str]) -> bool:
    """Whether an instruction jumps to the label behind it, and nothing else does."""
    jumps = ins.base == "bra" and ins.guard is None and ins.operands[0] == Sym(label.name)
    return jumps and targets[label.name] == 1


def _dead(
    instructions: tuple[Instruction, ...], reads: list[tuple[str, ...]], writes: list[tuple[str, ...]]
) -> set[int]:
    """Instructions that compute what no other reads, which ptxas leaves out."""
    readers = Counter(register for names in reads for register in names)
    writers: dict[str, list[int]] = {}
    for at, names in enumerate(writes):
        for register in names:
            writers.setdefault(register, []).append(at)
    dead: set[int] = set()
    waiting = list(range(len(instructions)))
    while waiting:
        at = waiting.pop()
        if at in dead or instructions[at].base not in _PLAIN or any(readers[r] for r in writes[at]):
            continue
        dead.add(at)
        for register in reads[at]:
            readers[register] -= 1
            if not readers[register]:
                waiting += writers.get(register, [])
    return dead


def _targets(function: Function) -> Iterator[str]:
    for ins in function.instructions:
        if ins.base == "bra" and isinstance(ins.operands[0], Sym):
            yield ins.operands[0].name
    for labels in function.tables.values():
        yield from labels
