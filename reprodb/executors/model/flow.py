"""Control flow of a flat body: basic blocks, live registers, and registers that a whole block shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from reprodb.errors import UnsupportedError
from reprodb.executors.model.inline import Flat
from reprodb.executors.model.ptx import Args, Instruction, Label, Mem, Not, Operand, Pair, Reg, Sym, Vec

EXIT = 0xFFFF  # the block number of threads that have returned
MOST_BLOCKS = 0x1FFF  # a warp keeps block numbers in 13 bits, beside its waiting flags

_SYNCING = ("shfl", "vote", "match", "redux", "elect")
_NO_RESULT = ("st", "red", "bra", "brx", "ret", "exit", "trap", "membar", "fence", "prefetch", "prefetchu",
              "nanosleep")  # fmt: skip
CARRY = "%cc"  # the carry flag, a register that no text declares
_ENDS = ("bra", "brx", "ret", "exit")


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block. `end` is the branch, return or barrier that ends it, None where it falls through.

    `targets` are the blocks that may follow: for a guarded branch the taken one first, then the next.
    `syncs` says that it starts with an instruction which waits for the lanes of a mask.
    """

    index: int
    instructions: tuple[Instruction, ...]
    end: Instruction | None
    targets: tuple[int, ...]
    syncs: bool = False


@dataclass(frozen=True, slots=True)
class Flow:
    """The blocks in the order of the text, and what is live on entry to each (register names)."""

    blocks: tuple[Block, ...]
    live_in: tuple[frozenset[str], ...]

    def live_at(self, target: int) -> frozenset[str]:
        return frozenset() if target == EXIT else self.live_in[target]


def is_barrier(ins: Instruction) -> bool:
    """A barrier of the thread block (`bar.warp.sync` is one of the warp)."""
    return ins.base in ("bar", "barrier") and not ins.opcode.startswith(("bar.warp", "barrier.cluster"))


def syncs_warp(ins: Instruction) -> bool:
    """Whether an instruction waits for the lanes that its mask names."""
    return (ins.base in _SYNCING and "sync" in ins.parts) or ins.opcode == "bar.warp.sync"


def analyse(flat: Flat) -> Flow:
    blocks = tuple(_blocks(flat))
    if len(blocks) >= MOST_BLOCKS:
        raise UnsupportedError(
            f"{flat.name} has {len(blocks)} basic blocks", allowed=f"up to {MOST_BLOCKS - 1}",
            remedy="unroll less, or execute this kernel on a GPU",
        )  # fmt: skip
    return Flow(blocks, _liveness(blocks, flat.registers))


def _blocks(flat: Flat) -> Iterator[Block]:
    pieces: list[list[Instruction]] = [[]]
    starts: dict[str, int] = {}
    for statement in flat.body:
        if isinstance(statement, Label):
            if pieces[-1]:
                pieces.append([])
            starts[statement.name] = len(pieces) - 1
            continue
        if syncs_warp(statement) and pieces[-1]:
            pieces.append([])
        if is_barrier(statement) and "red" in statement.parts:
            arrive, result = _split_reduction(statement)
            pieces[-1].append(arrive)
            pieces.append([result])
            continue
        pieces[-1].append(statement)
        if statement.base in _ENDS or is_barrier(statement):
            pieces.append([])
    for index, piece in enumerate(pieces):
        following = index + 1 if index + 1 < len(pieces) else EXIT
        last = piece[-1] if piece else None
        syncs = bool(piece) and syncs_warp(piece[0])
        if last is not None and (last.base in _ENDS or is_barrier(last)):
            targets = tuple(_targets(flat, last, starts, following))
            yield Block(index, tuple(piece[:-1]), last, targets, syncs)
        else:
            yield Block(index, tuple(piece), None, (following,), syncs)


def _split_reduction(ins: Instruction) -> tuple[Instruction, Instruction]:
    """`bar.red` as its arrival and, at the start of the next block, the reading of its result."""
    operation = next((p for p in ins.parts if p in ("popc", "and", "or")), None)
    if operation is None:
        raise UnsupportedError(
            f"{ins.opcode} at {ins.where} names no reduction", allowed="popc, and, or",
            remedy="execute this kernel on a GPU",
        )  # fmt: skip
    arrive = replace(ins, opcode=f"bar.red.{operation}", operands=ins.operands[1:])
    result = replace(ins, opcode=f"barresult.{operation}", operands=ins.operands[:2])
    return arrive, result


def _targets(flat: Flat, end: Instruction, starts: dict[str, int], following: int) -> Iterator[int]:
    if end.base in ("ret", "exit"):
        yield EXIT
    elif end.base == "bra":
        yield _start(starts, end, _symbol(end, 0))
    elif end.base == "brx":
        for label in flat.tables.get(_symbol(end, 1), ("",)):
            yield _start(starts, end, label)
    if is_barrier(end) or end.guard is not None:
        yield following


def _start(starts: dict[str, int], end: Instruction, label: str) -> int:
    if label not in starts:
        raise UnsupportedError(
            f"{end.opcode} at {end.where} goes to {label!r}, which is no label of the function",
            remedy="compile the kernel again",
        )
    return starts[label]


def _symbol(end: Instruction, index: int) -> str:
    operand = end.operands[index] if index < len(end.operands) else None
    if not isinstance(operand, Sym):
        where = f"{end.opcode} at {end.where}"
        raise UnsupportedError(f"{where} goes to {operand}", remedy="execute this kernel on a GPU")
    return operand.name


# --- Which registers an instruction reads and writes -------------------------------------------


def written(ins: Instruction) -> tuple[str, ...]:
    """The registers that an instruction writes: its first operand, for all but stores and control."""
    carry = (CARRY,) if "cc" in ins.parts else ()
    if not _has_result(ins):
        return carry
    return (*_registers(ins.operands[:1]), *carry)


def read(ins: Instruction) -> tuple[str, ...]:
    """The registers that an instruction reads, its guard included."""
    guard = (ins.guard.register,) if ins.guard else ()
    carry = (CARRY,) if ins.base in ("addc", "subc", "madc") else ()
    return (*guard, *carry, *_registers(ins.operands[1:] if _has_result(ins) else ins.operands))


def _has_result(ins: Instruction) -> bool:
    no_result = (
        ins.base in _NO_RESULT
        or ins.opcode == "bar.warp.sync"
        or is_barrier(ins)
        or not ins.operands
        or isinstance(ins.operands[0], Mem)
    )
    return not no_result


def _registers(operands: Iterable[Operand]) -> Iterator[str]:
    for o in operands:
        match o:
            case Reg(name):
                yield name
            case Mem(Reg(name), _, _):
                yield name
            case Vec(items) | Args(items):
                yield from _registers(items)
            case Pair(first, second):
                yield from _registers((first, second))
            case Not(Reg(name)):
                yield name
            case _:
                pass


def _liveness(blocks: tuple[Block, ...], registers: dict[str, str]) -> tuple[frozenset[str], ...]:
    """Registers live on entry to each block, backwards to a fixed point. A guarded write keeps the old."""
    number = {name: i for i, name in enumerate(registers)}
    names = list(registers)
    uses, kills = [], []
    for block in blocks:
        used = killed = 0
        for ins in (*block.instructions, *((block.end,) if block.end else ())):
            for name in read(ins):
                bit = 1 << number[name] if name in number else 0
                used |= bit & ~killed
            if ins.guard is None:
                for name in written(ins):
                    killed |= 1 << number[name] if name in number else 0
            else:
                for name in written(ins):
                    used |= (1 << number[name] if name in number else 0) & ~killed
        uses.append(used)
        kills.append(killed)
    live = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = 0
            for target in block.targets:
                out |= 0 if target == EXIT else live[target]
            new = uses[block.index] | (out & ~kills[block.index])
            if new != live[block.index]:
                live[block.index] = new
                changed = True
    return tuple(frozenset(_names(bits, names)) for bits in live)


def _names(bits: int, names: list[str]) -> Iterator[str]:
    while bits:
        low = bits & -bits
        yield names[low.bit_length() - 1]
        bits ^= low


# Special registers that are the same for every thread of a block.
BLOCK_WIDE = frozenset(
    f"%{name}{axis}"
    for name, axes in {
        "ntid": (".x", ".y", ".z"), "ctaid": (".x", ".y", ".z"), "nctaid": (".x", ".y", ".z"),
        "dynamic_smem_size": ("",), "total_smem_size": ("",), "warpid": ("",),
        "cluster_ctaid": (".x", ".y", ".z"), "cluster_nctaid": (".x", ".y", ".z"),
        "clusterid": (".x", ".y", ".z"), "nclusterid": (".x", ".y", ".z"),
        "cluster_ctarank": ("",), "cluster_nctarank": ("",), "is_explicit_cluster": ("",),
    }.items()
    for axis in axes
)  # fmt: skip


def shared_by_warp(flow: Flow, registers: dict[str, str], lanewise: frozenset[int]) -> frozenset[str]:
    """Registers with one and the same value in every thread of a warp, wherever they have one.

    Written once, without a guard, by an instruction that computes a lane from that lane's sources alone
    (`lanewise` holds the ids of such instructions), all of which are shared themselves: launch
    parameters, block indices, constants and what is computed from them. Such a value is kept once.
    """
    writes: dict[str, int] = {}
    order: list[Instruction] = []
    for block in flow.blocks:
        for ins in (*block.instructions, *((block.end,) if block.end else ())):
            order.append(ins)
            for name in written(ins):
                writes[name] = writes.get(name, 0) + 1
    known: set[str] = set()
    changed = True
    while changed:
        changed = False
        for ins in order:
            names = [n for n in written(ins) if n not in known]
            if not names or ins.guard is not None or id(ins) not in lanewise:
                continue
            if any(writes[n] > 1 or n not in registers for n in names):
                continue
            if all(n in known or n in BLOCK_WIDE for n in read(ins)):
                known.update(names)
                changed = True
    return frozenset(known)
