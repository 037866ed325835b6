"""Stages, blocks, warps and barriers: each thread runs until it must wait for others, then the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.model.reference import instructions, warp
from tests.model.reference.errors import Refused, Stuck, Trap
from tests.model.reference.memory import UNSET, Memory
from tests.model.reference.parse import Function, Ins, Module, Variable, parse
from tests.model.reference.thread import Block, Dim3, Thread

STEPS = 1_000_000  # of one thread


@dataclass(frozen=True)
class Launch:
    """One stage. An argument is a buffer's name or the bytes of a scalar; `shared` is dynamic, in bytes."""

    entry: str
    grid: Dim3
    block: Dim3
    args: tuple[str | bytes, ...]
    shared: int = 0


@dataclass(frozen=True)
class Order:
    """The order in which blocks, and the warps of a block, get their turns; the natural one by default."""

    blocks: tuple[int, ...] | None = None
    warps: tuple[int, ...] | None = None


@dataclass
class Barrier:
    """Who has arrived at one of a block's sixteen barriers since it last opened."""

    arrived: list[Thread] = field(default_factory=list)
    waiting: list[tuple[Thread, Ins]] = field(default_factory=list)
    votes: list[bool] = field(default_factory=list)
    count: int = 0  # threads that it waits for; 0: all that live


def run(
    ptx: str, stages: Sequence[Launch], buffers: Mapping[str, bytearray], order: Order | None = None
) -> None:
    """Run the stages one after another on the buffers, in place; global variables live through all of them.

    Raises Refused, Trap or Stuck.
    """
    module = parse(ptx)
    memory = Memory()
    addresses = {}
    for name, data in buffers.items():
        addresses[f"buffer {name}"] = memory.place(name, data).address
    for variable in module.variables:
        if variable.space in ("global", "const"):
            piece = memory.place(variable.name, bytearray(variable.data), variable.space == "const")
            addresses[variable.name] = piece.address
    for stage in stages:
        _stage(module, memory, addresses, stage, order or Order())


def _stage(module: Module, memory: Memory, addresses: dict[str, int], stage: Launch, order: Order) -> None:
    function = module.functions[stage.entry]
    if len(function.params) != len(stage.args):
        raise Refused(f"{stage.entry} takes {len(function.params)} arguments, not {len(stage.args)}")
    params = {}
    for parameter, arg in zip(function.params, stage.args, strict=True):
        data = addresses[f"buffer {arg}"].to_bytes(8, "little") if isinstance(arg, str) else arg
        if len(data) != parameter.size:
            raise Refused(f"{parameter.name} has {parameter.size} bytes, not {len(data)}")
        params[parameter.name] = bytearray(data)
    offsets, size = _shared(module, stage.shared)
    x, y, z = stage.grid
    for linear in order.blocks if order.blocks is not None else range(x * y * z):
        index = (linear % x, linear // x % y, linear // (x * y))
        shared = bytearray([UNSET]) * size
        block = Block(module, memory, {**addresses, **offsets}, shared, stage.grid, stage.block, index)
        _block(block, function, params, order)


def _shared(module: Module, dynamic: int) -> tuple[dict[str, int], int]:
    """Offsets of all shared variables, the static ones first, and the bytes in all."""
    variables: list[Variable] = [v for v in module.variables if v.space == "shared"]
    for function in module.functions.values():
        variables += [v for v in function.variables if v.space == "shared"]
    offsets, at = {}, 0
    for variable in sorted(variables, key=lambda v: v.extern):
        at = -(-at // variable.align) * variable.align
        offsets[variable.name] = at
        at += 0 if variable.extern else variable.size
    return offsets, at + dynamic


def _block(block: Block, function: Function, params: dict[str, bytearray], order: Order) -> None:
    x, y, z = block.shape
    threads = [Thread(block, i, function, params) for i in range(x * y * z)]
    warps = [threads[i : i + 32] for i in range(0, len(threads), 32)]
    barriers: dict[int, Barrier] = {}
    turns = order.warps if order.warps is not None else tuple(range(len(warps)))
    turns = (*(w for w in turns if w < len(warps)), *(w for w in range(len(warps)) if w not in turns))
    while not all(t.done for t in threads):
        moved = False
        for w in turns:
            moved |= _warp(warps[w], barriers)
        moved |= _open(barriers, warps)
        if not moved:
            where = {t.waiting.text for t in threads if t.waiting is not None}
            raise Stuck(f"block {block.index} waits for ever at {sorted(where)}")


def _warp(threads: list[Thread], barriers: dict[int, Barrier]) -> bool:
    """Run every lane until it waits or ends, and warp instructions as their lanes come together."""
    moved = False
    while True:
        ran = [_advance(t) for t in threads if not t.done and t.waiting is None]
        arrived = [_arrive(t, barriers) for t in threads]
        together = _together(threads)
        if not (any(ran) or any(arrived) or together):
            return moved
        moved = True


def _advance(t: Thread) -> bool:
    while not t.done:
        if t.frame.at >= len(t.frame.function.code):
            t.leave()  # the end of a function without a ret
            continue
        ins = t.frame.function.code[t.frame.at]
        t.steps += 1
        if t.steps > STEPS:
            raise Stuck(f"more than {STEPS} steps, at {ins.text!r}")
        if ins.guard and bool(t.register(ins.guard)) == ins.unless:
            t.frame.at += 1
        elif warp.is_warp_op(ins) or ins.op in ("bar", "barrier"):
            t.waiting, t.arrived = ins, False
            return True
        elif ins.op in instructions.TABLE:
            t.frame.at += 1
            instructions.TABLE[ins.op](t, ins)
        else:
            raise Refused(f"the interpreter does not know {ins.text!r}")
    return True


def _together(threads: list[Thread]) -> bool:
    """Execute one warp instruction for which every living lane that it names has arrived."""
    for t in threads:
        ins = t.waiting
        if ins is None or not warp.is_warp_op(ins):
            continue
        if ins.op == "activemask":
            group = [u for u in threads if u.waiting is ins]
        else:
            lanes = warp.member_mask(t, ins)
            if not lanes >> t.lane & 1:
                raise Trap(f"lane {t.lane} executes {ins.text!r} and is not in its mask {lanes:#x}")
            group = [u for u in threads if lanes >> u.lane & 1 and not u.done]
            if any(u.waiting is not ins or warp.member_mask(u, ins) != lanes for u in group):
                continue
        warp.execute(ins, group)
        for u in group:
            u.waiting = None
            u.frame.at += 1
        return True
    return False


# --- Barriers ----------------------------------------------------------------------------------


def _parts(ins: Ins) -> tuple[str, list[int]]:
    """sync, arrive or red, and where among the operands the barrier and the count stand."""
    word = next(m for m in ins.mods if m in ("sync", "arrive", "red"))
    first = 1 if word == "red" else 0
    last = len(ins.args) - (1 if word == "red" else 0)
    return word, list(range(first, last))


def _arrive(t: Thread, barriers: dict[int, Barrier]) -> bool:
    """Note the arrival of a thread that has come to a barrier; true where it can go on at once."""
    ins = t.waiting
    if ins is None or t.arrived or warp.is_warp_op(ins):
        return False
    word, where = _parts(ins)
    barrier = barriers.setdefault(t.read(ins.args[where[0]], "u32"), Barrier())
    count = t.read(ins.args[where[1]], "u32") if len(where) > 1 else 0
    if barrier.arrived and count != barrier.count:
        raise Trap(f"{ins.text!r}: threads expect {count} and {barrier.count} at one barrier")
    barrier.count = count
    barrier.arrived.append(t)
    t.arrived = True
    if word == "red":
        barrier.votes.append(bool(t.read(ins.args[-1], "pred")))
    if word == "arrive":
        t.waiting = None
        t.frame.at += 1
        return True
    barrier.waiting.append((t, ins))
    return False


def _open(barriers: dict[int, Barrier], warps: list[list[Thread]]) -> bool:
    """Open the barriers at which all have arrived."""
    living = sum(not t.done for w in warps for t in w)
    opened = False
    for barrier in barriers.values():
        if not barrier.arrived:
            continue
        if barrier.count:
            # Barriers count warps: what a warp lacks of 32 living lanes comes with its others.
            present = {t.warp for t in barrier.arrived}
            missing = sum(32 - sum(not t.done for t in warps[w]) for w in present)
            complete = len(barrier.arrived) + missing >= barrier.count
        else:
            complete = len(barrier.arrived) >= living
        if complete:
            _release(barrier)
            opened = True
    return opened


def _release(barrier: Barrier) -> None:
    votes = barrier.votes
    for t, ins in barrier.waiting:
        if "red" in ins.mods:
            word = next(m for m in ins.mods if m in ("popc", "and", "or"))
            answer = {"popc": sum(votes), "and": int(all(votes)), "or": int(any(votes))}[word]
            t.write(ins.args[0], ins.type, answer)
        t.waiting = None
        t.frame.at += 1
    barrier.arrived, barrier.waiting, barrier.votes = [], [], []
