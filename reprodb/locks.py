"""Float sums in PTX that no float atomic makes: under a lock, or carried by exchanges. Pure.

An entry is looked at with its calls put in. Values are followed through registers, not through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate

from reprodb.errors import ReprodbError
from reprodb.executors.model.flow import EXIT, Flow, analyse, read, written
from reprodb.executors.model.inline import flatten
from reprodb.executors.model.ptx import Instruction, Mem, Module, Operand, Reg

Rounds = Callable[[Instruction], bool]
Places = frozenset[int]
Address = tuple[Operand, int]  # the base, and the offset

# How memory is read by a thread that waits for another: any other load may be moved out of the loop.
_AWAITING = frozenset({"volatile", "relaxed", "acquire", "mmio"})
_PRIVATE = frozenset({"param", "local", "const"})
_FIXED = frozenset({"param", "const"})


def added_under_lock(module: Module, entry: str, rounds: Rounds) -> tuple[Instruction, ...]:
    """The atomics that take a lock under which the entry adds floats to memory, in the order of the text.

    A lock is taken by a loop that goes on as the result of a compare-and-swap or an exchange says whose new
    value is no function of the old one, or as a comparison of an awaited word with a ticket says, which is
    another atomic's result. It is held until something is written where it lies. Empty where the entry's
    calls cannot be put in: indirect ones, say.
    """
    code = _read(module, entry)
    return () if code is None else tuple(code.instructions[place] for place in _locks(code, rounds))


def carried_by_exchange(module: Module, entry: str, rounds: Rounds) -> tuple[Instruction, ...]:
    """The exchanges whose result is added to and written back where it came from."""
    code = _read(module, entry)
    if code is None:
        return ()
    taken = [p for p, ins in enumerate(code.instructions) if _is(ins, "exch")]
    everywhere = frozenset(range(len(code.instructions)))
    return tuple(code.instructions[p] for p in taken if _added_back(code, everywhere, frozenset({p}), rounds))


class _Code:
    """The instructions of a flat entry, which may follow which, and who writes a register."""

    def __init__(self, flow: Flow) -> None:
        wholes = [(*block.instructions, *((block.end,) if block.end else ())) for block in flow.blocks]
        # An empty block begins where the next one does, which is where it falls through to.
        starts = [0, *accumulate(len(whole) for whole in wholes)]
        self.instructions: tuple[Instruction, ...] = tuple(ins for whole in wholes for ins in whole)
        count = len(self.instructions)
        self.following: list[tuple[int, ...]] = [(place + 1,) for place in range(count)]
        for block, whole, start in zip(flow.blocks, wholes, starts, strict=False):
            if whole:
                targets = (starts[target] for target in block.targets if target != EXIT)
                last = start + len(whole) - 1
                self.following[last] = tuple(target for target in targets if target < count)
        self.leading: list[list[int]] = [[] for _ in self.instructions]
        for place, following in enumerate(self.following):
            for other in following:
                self.leading[other].append(place)
        self.writers: dict[str, list[int]] = {}
        for place, ins in enumerate(self.instructions):
            for name in written(ins):
                self.writers.setdefault(name, []).append(place)
        self._known: dict[str, Operand] = {}
        self._number()

    def reached(self, place: int, until: Callable[[Instruction], bool] = lambda ins: False) -> Places:
        """What may run after an instruction; what `until` names ends a way."""
        seen, waiting = set[int](), list(self.following[place])
        while waiting:
            here = waiting.pop()
            if here not in seen and not until(self.instructions[here]):
                seen.add(here)
                waiting += self.following[here]
        return frozenset(seen)

    def around(self, place: int) -> Places:
        """The loops that an instruction is in: what it leads to and what leads back to it."""
        seen, waiting = set[int](), [place]
        while waiting:
            for before in self.leading[waiting.pop()]:
                if before not in seen:
                    seen.add(before)
                    waiting.append(before)
        return self.reached(place) & seen

    def behind(self, names: Iterable[str]) -> Places:
        """The instructions whose results may have a part in these registers, addresses included."""
        seen, waiting = set[int](), list(names)
        while waiting:
            for place in self.writers.get(waiting.pop(), ()):
                if place not in seen:
                    seen.add(place)
                    waiting += read(self.instructions[place])
        return frozenset(seen)

    def address(self, ins: Instruction) -> Address | None:
        """Where an instruction reads or writes memory. Equal addresses are one place; others may be."""
        found = next((o for o in ins.operands if isinstance(o, Mem)), None)
        return None if found is None else (self._same(found.base), found.offset)

    def _same(self, operand: Operand) -> Operand:
        """One operand for all that hold the same value, as far as that is seen."""
        return self._known.get(operand.name, operand) if isinstance(operand, Reg) else operand

    def _number(self) -> None:
        """Find registers that are computed alike from the same, each of them in one place."""
        first: dict[object, Operand] = {}
        for ins in self.instructions:
            names = written(ins)
            if len(names) != 1 or len(self.writers[names[0]]) != 1 or ins.guard or ins.base == "atom":
                continue
            if ins.base == "ld" and not _FIXED & set(ins.parts):
                continue
            sources = tuple(map(self._same, ins.operands[1:]))
            copied = ins.base in ("mov", "cvta") and len(sources) == 1
            self._known[names[0]] = (
                sources[0] if copied else first.setdefault((ins.opcode, sources), Reg(names[0]))
            )


def _read(module: Module, entry: str) -> _Code | None:
    try:
        return _Code(analyse(flatten(module, entry)))
    except ReprodbError:
        return None


def _is(ins: Instruction, operation: str) -> bool:
    return ins.base == "atom" and operation in ins.parts


def _locks(code: _Code, rounds: Rounds) -> Iterator[int]:
    for place, ins in enumerate(code.instructions):
        if not (ins.base == "atom" or (ins.base == "ld" and _AWAITING & set(ins.parts))):
            continue
        if not _awaited(code, place):
            continue
        lock = code.address(ins)
        held = code.reached(place, partial(_writes, code, lock))
        if _added_back(code, held, held, rounds):
            yield place


def _awaited(code: _Code, place: int) -> bool:
    """Whether a loop around this read of memory takes a lock with it."""
    ins = code.instructions[place]
    takes = _is(ins, "cas") or _is(ins, "exch")
    if takes and place in code.behind(_registers(ins.operands[-1])):
        return False  # the new value follows from the old one: a sum or a maximum, and no lock
    loop = code.around(place)
    for branch in sorted(loop):
        guard = code.instructions[branch].guard
        if guard is not None and code.instructions[branch].base == "bra":
            reasons = code.behind([guard.register])
            if place in reasons and (takes or _ticketed(code, place, reasons - loop)):
                return True
    return False


def _ticketed(code: _Code, place: int, before: Places) -> bool:
    """Whether an awaited word is compared with what an atomic on another one gave to this thread before."""
    here = code.address(code.instructions[place])
    others = (code.instructions[other] for other in before)
    return any(ins.base == "atom" and code.address(ins) != here for ins in others)


def _writes(code: _Code, where: Address | None, ins: Instruction) -> bool:
    return ins.base in ("st", "red", "atom") and code.address(ins) == where


def _added_back(code: _Code, stores: Places, loads: Places, rounds: Rounds) -> bool:
    """Whether one of the stores puts a float sum back where one of its terms was loaded from."""
    for place in sorted(stores):
        ins = code.instructions[place]
        if not (ins.base == "st" or _is(ins, "exch")) or _PRIVATE & set(ins.parts):
            continue
        address = code.address(ins)
        if address is not None and _sums(code, ins.operands[-1], address[0], loads, rounds):
            return True
    return False


def _sums(code: _Code, value: Operand, base: Operand, loads: Places, rounds: Rounds) -> bool:
    """Whether a value was rounded on the way from a load at this base."""
    seen = set[tuple[str, bool]]()
    waiting = [(name, False) for name in _registers(value)]
    while waiting:
        name, rounded = waiting.pop()
        if (name, rounded) in seen:
            continue
        seen.add((name, rounded))
        for place in code.writers.get(name, ()):
            ins = code.instructions[place]
            if ins.base in ("ld", "atom") and not _PRIVATE & set(ins.parts):
                address = code.address(ins)
                if rounded and place in loads and address is not None and address[0] == base:
                    return True
                continue
            waiting += [(source, rounded or rounds(ins)) for source in read(ins)]
    return False


def _registers(operand: Operand) -> tuple[str, ...]:
    """The registers of an operand."""
    return read(Instruction("st", (operand,), 0))
