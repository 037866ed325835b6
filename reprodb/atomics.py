"""Floats in PTX that meet as threads arrive: `atom` and `red` that add, swaps in loops, locks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from reprodb.executors.model.ptx import Function, Instruction, Label, Module, Operand, Sym, parse
from reprodb.locks import added_under_lock, carried_by_exchange

_FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
# What rounds. The largest and the smallest of floats are the same in every order.
_ROUNDING = frozenset({"add", "sub", "mul", "mad", "fma", "div", "mma", "wmma", "wgmma"})
_SPACES = ("global", "shared")


class Meeting(StrEnum):
    """How floats meet."""

    ADDED = "floats added"
    SWAPPED = "a compare-and-swap loop with float arithmetic in it"
    EXCHANGED = "floats taken out, added to and put back by exchanges"
    LOCKED = "floats added under a lock"


@dataclass(frozen=True, slots=True)
class FloatAtomic:
    """One place where floats meet in the order in which threads arrive."""

    function: str
    opcode: str  # atom.global.add.f32, the atom.cas that closes a loop, or what takes the lock
    line: int  # of the PTX
    space: str  # of the atomic: global, shared, or both where the address does not say
    how: Meeting

    @property
    def phrase(self) -> str:
        where = f"{self.opcode} in {self.function}, PTX line {self.line}"
        return f"{self.how} in {self.space} memory ({where})"


def float_atomics(ptx: str, entries: Iterable[str]) -> tuple[FloatAtomic, ...]:
    """Those that the entries reach, calls included. Raises UnsupportedError for text that is no PTX."""
    module, entries = parse(ptx), tuple(entries)
    functions = _reached(module, entries)
    found = {(each.function, each.line): each for f in functions for each in _in(module, f)}
    homes = {ins.line: f.name for f in functions for ins in f.instructions}
    for how, search in ((Meeting.EXCHANGED, carried_by_exchange), (Meeting.LOCKED, added_under_lock)):
        for ins in (ins for entry in entries for ins in search(module, entry, _is_rounding)):
            home = homes[ins.line]
            found[home, ins.line] = FloatAtomic(home, ins.opcode, ins.line, _space(ins), how)
    return tuple(sorted(found.values(), key=lambda each: each.line))


def _reached(module: Module, entries: Iterable[str]) -> list[Function]:
    """The entries and what they call; every function where a call does not say which."""
    waiting, seen = list(entries), dict[str, Function]()
    while waiting:
        name = waiting.pop()
        function = module.function(name)
        if function is None or name in seen:
            continue
        seen[name] = function
        for call in (i for i in function.instructions if i.opcode.split(".")[0] == "call"):
            named = [name for name in _names(call.operands) if module.function(name) is not None]
            waiting += named or [f.name for f in module.functions if not f.entry]
    return list(seen.values())


def _names(operands: Iterable[Operand]) -> list[str]:
    return [operand.name for operand in operands if isinstance(operand, Sym)]


def _in(module: Module, function: Function) -> Iterator[FloatAtomic]:
    for ins in function.instructions:
        parts = ins.opcode.split(".")
        # Beside the plain forms: multimem.red, and bulk copies that add (cp.reduce.async.bulk).
        if not {"atom", "red", "reduce"} & set(parts[:2]):
            continue
        if "add" in parts and (parts[-1] in _FLOATS or "tensor" in parts):  # a tensor's type is its map's
            yield FloatAtomic(function.name, ins.opcode, ins.line, _space(ins), Meeting.ADDED)
        elif "cas" in parts and any(_rounds(module, each) for each in _loop_around(function, ins)):
            yield FloatAtomic(function.name, ins.opcode, ins.line, _space(ins), Meeting.SWAPPED)


def _space(ins: Instruction) -> str:
    return next((part for part in ins.parts if part in _SPACES), "global or shared")


def _is_rounding(ins: Instruction) -> bool:
    return ins.base in _ROUNDING and bool(_FLOATS & set(ins.parts))


def _rounds(module: Module, ins: Instruction, depth: int = 4) -> bool:
    """Whether an instruction is float arithmetic, or calls a function that has some."""
    parts = ins.opcode.split(".")
    if parts[0] == "call" and depth:
        called = (module.function(name) for name in _names(ins.operands))
        return any(_rounds(module, each, depth - 1) for f in called if f for each in f.instructions)
    return _is_rounding(ins)


def _loop_around(function: Function, ins: Instruction) -> tuple[Instruction, ...]:
    """The instructions of the smallest loop that holds `ins`: from a label to a branch back to it."""
    body = function.body or ()
    labels = {item.name: place for place, item in enumerate(body) if isinstance(item, Label)}
    at = next(place for place, item in enumerate(body) if item is ins)
    loops = [
        (place - labels[name], labels[name], place)
        for place, item in enumerate(body[at:], at)
        if isinstance(item, Instruction) and item.opcode.split(".")[0] == "bra"
        for name in _names(item.operands)
        if labels.get(name, place) <= at
    ]
    if not loops:
        return ()
    _, first, last = min(loops)
    return tuple(item for item in body[first : last + 1] if isinstance(item, Instruction))
