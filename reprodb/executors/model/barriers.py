"""Barriers of the thread block, seen from one warp, and `trap`."""

from __future__ import annotations

from dataclasses import dataclass

from reprodb.executors.model import layout
from reprodb.executors.model.emit import B, Emit, L, Mods, W
from reprodb.executors.model.llvm import Value, const
from reprodb.executors.model.ptx import Instruction, Int, Operand


@dataclass(frozen=True, slots=True)
class Barrier:
    """A barrier instruction taken to pieces. `count` is None for all threads of the block."""

    kind: int  # SYNC, ARRIVE or REDUCE
    number: Operand
    count: Operand | None
    predicate: Operand | None


def read(ins: Instruction) -> Barrier | None:
    """`bar`, `bar.cta` and `barrier{.cta}`, aligned or not; None for other forms."""
    parts = [p for p in ins.parts[1:] if p not in ("cta", "aligned")]
    operands = ins.operands
    match parts:
        case ["sync"] if len(operands) in (1, 2):
            return Barrier(layout.SYNC, operands[0], operands[1] if len(operands) > 1 else None, None)
        case ["arrive"] if len(operands) == 2:
            return Barrier(layout.ARRIVE, operands[0], operands[1], None)
        case ["red", "popc" | "and" | "or", *_] if len(operands) in (2, 3):
            return Barrier(
                layout.REDUCE, operands[0], operands[1] if len(operands) > 2 else None, operands[-1]
            )
    return None


def announce(e: Emit) -> None:
    """Writes into the warp's record at which barrier the running lanes arrive.

    Lanes of one warp that wait at different barriers are an error, as are barrier numbers above 15 and
    counts that are no multiple of 32.
    """
    code = e.code
    barrier = read(e.ins)
    if barrier is None:
        raise e.refuse("is a barrier that the model does not know")
    number = _uniform(e, barrier.number)
    count = _uniform(e, barrier.count) if barrier.count is not None else const("i32", 0)
    bad = code.cmp("icmp ugt", number, const("i32", 15))
    uneven = code.cmp("icmp ne", code.op("and", count, const("i32", 31)), const("i32", 0))
    bad = code.op("or", bad, uneven)
    if not e.full:
        pc = code.load("i16", W, 32, 64)
        waiting = code.cmp("icmp uge", pc, const("i16", layout.PC_PARKED, 32))
        alive = code.cmp("icmp ne", pc, const("i16", layout.PC_DONE, 32))
        parked = code.cmp("icmp ne", code.bits(code.op("and", waiting, alive)), const("i32", 0))
        other = code.cmp("icmp ne", code.load("i32", code.at(W, layout.W_BARRIER)), number)
        bad = code.op("or", bad, code.op("and", parked, other))
    wrong, fine = code.fresh("wrong"), code.fresh("fine")
    code.branch(bad, wrong, fine)
    code.label(wrong)
    lane = code.intrinsic("cttz", e.mask(), const("i1", 0))
    code.invoke("fail", W, L, const("i32", layout.E_BARRIER), e.site(), lane, const("i64", 0))
    code.jump(e.fail)
    code.label(fine)
    code.store(number, code.at(W, layout.W_BARRIER))
    code.store(code.op("lshr", count, const("i32", 5)), code.at(W, layout.W_COUNT))
    code.store(const("i32", barrier.kind), code.at(W, layout.W_KIND))
    if barrier.predicate is not None:
        mask = e.mask()
        true = code.op("and", code.bits(e.value(barrier.predicate, 1, 32)), mask)
        for bits, place in ((true, layout.W_TRUE), (mask, layout.W_THREADS)):
            at = code.at(W, place)
            code.store(code.op("add", code.load("i32", at), code.intrinsic("ctpop", bits)), at)


def _uniform(e: Emit, operand: Operand) -> Value:
    """An operand that the running lanes share: the first running lane's."""
    if isinstance(operand, Int):
        return const("i32", operand.value)
    value = e.value(operand, 32)
    if value.lanes == 1:
        return value
    lane = e.code.intrinsic("cttz", e.mask(), const("i1", 0))
    lane = e.code.op("and", lane, const("i32", 31))
    return e.code.define(f"extractelement {value.typed}, {lane.typed}", "i32")


def result(e: Emit, m: Mods) -> None:
    """What `bar.red` gives, read once the barrier has completed."""
    code = e.code
    number = code.op("and", _uniform(e, e.operand(1)), const("i32", 15))
    offset = code.op("mul", code.cast("zext", number, "i64"), const("i64", layout.BARRIER_BYTES))
    record = code.at(code.at(B, layout.B_BARRIERS), offset)
    true = code.load("i32", code.at(record, layout.BAR_LAST_TRUE))
    threads = code.load("i32", code.at(record, layout.BAR_LAST_THREADS))
    if e.ins.opcode == "barresult.popc":
        e.dst(code.splat(true))
    elif m["op"] == "and":
        e.dst(code.splat(code.cmp("icmp eq", true, threads)))
    else:
        e.dst(code.splat(code.cmp("icmp ne", true, const("i32", 0))))


def trap(e: Emit, m: Mods) -> None:
    e.fail_where(e.guard(), layout.E_TRAP)
