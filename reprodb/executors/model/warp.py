"""Instructions of a whole warp: shuffles, votes, matches and reductions over the lanes of a mask."""

from __future__ import annotations

from reprodb.executors.model import layout
from reprodb.executors.model.emit import Emit, L, Mods
from reprodb.executors.model.llvm import WARP, Helpers, Value, const, vector
from reprodb.executors.model.ptx import Pair

_LANES = range(WARP)


def _pick(helpers: Helpers) -> str:
    """A function that gives each lane the value of the lane that `%from` names (0 to 31)."""
    lines = ["define internal <32 x i32> @pick(<32 x i32> %v, <32 x i32> %from) noinline {"]
    lines += ["  %m = alloca <32 x i32>, align 128", "  store <32 x i32> %v, ptr %m, align 128"]
    held = "poison"
    for lane in _LANES:
        lines += [
            f"  %f{lane} = extractelement <32 x i32> %from, i64 {lane}",
            f"  %p{lane} = getelementptr i32, ptr %m, i32 %f{lane}",
            f"  %x{lane} = load i32, ptr %p{lane}, align 4",
            f"  %r{lane} = insertelement <32 x i32> {held}, i32 %x{lane}, i64 {lane}",
        ]
        held = f"%r{lane}"
    lines += [f"  ret <32 x i32> {held}", "}"]
    return helpers.function("pick", "\n".join(lines))


def shfl(e: Emit, m: Mods) -> None:
    """`shfl.sync{.up,.down,.bfly,.idx}`: the value of another lane, and whether it was in range.

    A lane that does not take part has no defined value to give. Its reader gets 0, as on an H200, and the
    stage notes it.
    """
    code = e.code
    a, b, c = e.src(1, 32), e.src(2, 32), e.src(3, 32)
    lane = vector("i32", _LANES)
    clamp = code.op("and", c, code.const(c, 31))
    segment = code.op("and", code.op("lshr", c, code.const(c, 8)), code.const(c, 31))
    by = code.op("and", b, code.const(b, 31))
    lowest = code.op("and", lane, segment)
    highest = code.op("or", lowest, code.op("and", clamp, code.inv(segment)))
    match m["mode"]:
        case "up":
            other = code.op("sub", lane, by)
            valid = code.cmp("icmp sge", other, highest)
        case "down":
            other = code.op("add", lane, by)
            valid = code.cmp("icmp sle", other, highest)
        case "bfly":
            other = code.op("xor", lane, by)
            valid = code.cmp("icmp sle", other, highest)
        case _:
            other = code.op("or", lowest, code.op("and", by, code.inv(segment)))
            valid = code.cmp("icmp sle", other, highest)
    source = code.op("and", code.select(valid, other, lane), const("i32", 31, WARP))
    value = _exchange(e, m, a, b, c, source)
    value = _defined(e, value, source)
    to = e.operand(0)
    if isinstance(to, Pair):
        e.assign(to.first, value)
        e.assign(to.second, valid)
    else:
        e.dst(value)


def _exchange(e: Emit, m: Mods, a: Value, b: Value, c: Value, source: Value) -> Value:
    """The values of the source lanes; by one shuffle where the distance is a constant."""
    code = e.code
    distance, clamp = _constant(b), _constant(c)
    if m["mode"] != "idx" and distance is not None and clamp is not None:
        picks = [_source(m["mode"], lane, distance & 31, clamp) for lane in _LANES]
        index = ", ".join(f"i32 {p}" for p in picks)
        return code.define(f"shufflevector {a.typed}, {a.type} poison, <32 x i32> <{index}>", "i32", WARP)
    return code.call(_pick(code.helpers), "i32", WARP, a, source)


def _source(mode: str, lane: int, by: int, c: int) -> int:
    segment, clamp = c >> 8 & 31, c & 31
    highest = (lane & segment) | (clamp & ~segment & 31)
    other = {"up": lane - by, "down": lane + by, "bfly": lane ^ by}[mode]
    valid = other >= highest if mode == "up" else other <= highest
    return other & 31 if valid else lane


def _constant(value: Value) -> int | None:
    """The number that a constant of the same value in every lane is."""
    if value.text.startswith("splat (i32 "):
        return int(value.text[11:-1])
    return None


def _defined(e: Emit, value: Value, source: Value) -> Value:
    """Zero where the source lane does not take part; nothing to do where all 32 lanes do."""
    code = e.code
    if e.full and e.ins.guard is None:
        return value
    mask = e.mask()
    there = code.op("lshr", code.splat(mask), source)
    present = code.cast("trunc", there, "i1")
    lost = code.op("and", code.inv(code.bits(present)), mask)
    place = code.at(L, layout.L_UNDEFINED)
    old = code.load("i32", place)
    found = code.select(code.cmp("icmp ne", lost, const("i32", 0)), e.number(), old)
    code.store(found, place)
    return code.select(present, value, const("i32", 0, WARP))


def vote(e: Emit, m: Mods) -> None:
    """`vote.sync{.all,.any,.uni,.ballot}` over the lanes of each lane's mask."""
    code = e.code
    predicate = e.src(1, 1)
    true = code.op("and", code.bits(predicate), e.mask())
    member = code.op("and", e.value(e.operand(2), 32, WARP), code.splat(e.mask()))
    votes = code.op("and", code.splat(true), member)
    none = code.cmp("icmp eq", votes, code.const(votes, 0))
    every = code.cmp("icmp eq", votes, member)
    match m["mode"]:
        case "ballot":
            e.dst(votes)
        case "all":
            e.dst(every)
        case "any":
            e.dst(code.inv(none))
        case _:
            e.dst(code.op("or", none, every))


def activemask(e: Emit, m: Mods) -> None:
    """The lanes that run together right now: on the model all that have reached this point."""
    e.dst(e.code.splat(e.mask()))


def elect(e: Emit, m: Mods) -> None:
    """`elect.sync d|p, mask`: the lowest lane of the mask leads."""
    code = e.code
    member = code.op("and", e.value(e.operand(1), 32, WARP), code.splat(e.mask()))
    leader = code.intrinsic("cttz", member, const("i1", 0))
    to = e.operand(0)
    if not isinstance(to, Pair):
        raise e.refuse("has one destination")
    e.assign(to.first, leader)
    e.assign(to.second, code.cmp("icmp eq", leader, vector("i32", _LANES)))


def match(e: Emit, m: Mods) -> None:
    """`match.sync{.any,.all}`: the lanes of the mask that hold the same value."""
    code = e.code
    bits = 64 if m["type"] == "b64" else 32
    value = e.src(1, bits)
    member = code.op("and", e.value(e.operand(2), 32, WARP), code.splat(e.mask()))
    same = const("i32", 0, WARP)
    for lane in _LANES:
        one = code.define(f"extractelement {value.typed}, i64 {lane}", value.kind)
        equal = code.cmp("icmp eq", value, code.splat(one))
        bit = code.select(equal, const("i32", 1 << lane, WARP), const("i32", 0, WARP))
        same = code.op("or", same, bit)
    same = code.op("and", same, member)
    to = e.operand(0)
    if m["mode"] == "any":
        e.dst(same)
        return
    every = code.cmp("icmp eq", same, member)
    held = code.select(every, member, code.const(member, 0))
    if isinstance(to, Pair):
        e.assign(to.first, held)
        e.assign(to.second, every)
    else:
        e.dst(held)


def redux(e: Emit, m: Mods) -> None:
    """`redux.sync`: an integer reduction over the lanes of each lane's mask."""
    code = e.code
    value = e.src(1, 32)
    member = code.op("and", e.value(e.operand(2), 32, WARP), code.splat(e.mask()))
    operation = m["op"]
    neutral = {"add": 0, "or": 0, "xor": 0, "and": -1}.get(operation)
    signed = m["type"].startswith("s")
    if operation == "min":
        neutral = 0x7FFFFFFF if signed else -1
    elif operation == "max":
        neutral = -0x80000000 if signed else 0
    total = const("i32", neutral or 0, WARP)
    for lane in _LANES:
        one = code.splat(code.define(f"extractelement {value.typed}, i64 {lane}", "i32"))
        bit = code.op("and", member, const("i32", 1 << lane, WARP))
        inside = code.cmp("icmp ne", bit, const("i32", 0, WARP))
        part = code.select(inside, one, const("i32", neutral or 0, WARP))
        if operation in ("min", "max"):
            total = code.intrinsic(("s" if signed else "u") + operation, total, part)
        else:
            total = code.op(operation, total, part)
    e.dst(total)


def warp_barrier(e: Emit, m: Mods) -> None:
    """`bar.warp.sync`: that its lanes have met is seen to where the block begins."""
