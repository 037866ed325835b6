"""Integer, logic, predicate and move instructions, each as PTX defines it."""

from __future__ import annotations

from reprodb.executors.model import layout
from reprodb.executors.model.emit import Emit, Mods
from reprodb.executors.model.flow import CARRY
from reprodb.executors.model.llvm import Value, const
from reprodb.executors.model.ptx import Int, Pair, Sink, Sym, Vec


def width(ptx_type: str) -> int:
    """Bits of an integer or predicate type: 32 of `s32`, 1 of `pred`."""
    return 1 if ptx_type == "pred" else int(ptx_type.lstrip("busf"))


def signed(ptx_type: str) -> bool:
    return ptx_type.startswith("s")


# --- Arithmetic --------------------------------------------------------------------------------


def plain(name: str) -> object:
    """`d = a op b` by one LLVM instruction."""

    def emit(e: Emit, m: Mods) -> None:
        bits = width(m["type"])
        e.dst(e.code.op(name, e.src(1, bits), e.src(2, bits)))

    return emit


def saturating(name: str) -> object:
    """`add.sat.s32`, `sub.sat.s32`: clamped to the range of the type."""

    def emit(e: Emit, m: Mods) -> None:
        e.dst(e.code.intrinsic(name, e.src(1, 32), e.src(2, 32)))

    return emit


def mul(e: Emit, m: Mods) -> None:
    bits = width(m["type"])
    e.dst(_product(e, m, e.src(1, bits), e.src(2, bits)))


def _product(e: Emit, m: Mods, a: Value, b: Value) -> Value:
    """The low half, the high half, or all of a product."""
    if m["part"] == "lo":
        return e.code.op("mul", a, b)
    wide = f"i{2 * a.bits}"
    extend = "sext" if signed(m["type"]) else "zext"
    product = e.code.op("mul", e.code.cast(extend, a, wide), e.code.cast(extend, b, wide))
    if m["part"] == "wide":
        return product
    return e.code.cast("trunc", e.code.op("lshr", product, e.code.const(product, a.bits)), a.kind)


def mad(e: Emit, m: Mods) -> None:
    bits = width(m["type"])
    product = _product(e, m, e.src(1, bits), e.src(2, bits))
    total = e.src(3, product.bits)
    if m.get("sat"):
        e.dst(e.code.intrinsic("sadd.sat", product, total))
    else:
        e.dst(e.code.op("add", product, total))


def mul24(e: Emit, m: Mods) -> None:
    """Products of the low 24 bits: bits 0 to 31, or 16 to 47."""
    extend = "ashr" if signed(m["type"]) else "lshr"
    a, b = (
        e.code.op(extend, e.code.op("shl", v, e.code.const(v, 8)), e.code.const(v, 8))
        for v in (e.src(1, 32), e.src(2, 32))
    )
    product = _product(e, {"type": m["type"], "part": "wide"}, a, b)
    if m["part"] == "hi":
        product = e.code.op("lshr", product, e.code.const(product, 16))
    product = e.code.cast("trunc", product, "i32")
    if m["op"] == "mad24":
        product = e.code.op("add", product, e.src(3, 32))
    e.dst(product)


def div(e: Emit, m: Mods) -> None:
    """Quotient or remainder, rounded toward zero. PTX leaves a zero divisor undefined: an error here.

    The smallest integer by -1 wraps, as the hardware does it; the remainder is 0.
    """
    code, bits, is_signed = e.code, width(m["type"]), signed(m["type"])
    a, b = e.src(1, bits), e.src(2, bits)
    zero = code.cmp("icmp eq", b, code.const(b, 0))
    divisor = e.operand(2)
    if not isinstance(divisor, Int) or divisor.value == 0:
        e.fail_where(zero, layout.E_DIVISION)
    one = code.const(b, 1)
    safe = code.select(zero, one, b)
    remainder = m["op"] == "rem"
    if is_signed:
        minus = code.cmp("icmp eq", b, code.const(b, -1))
        safe = code.select(minus, one, safe)
        if remainder:
            e.dst(code.op("srem", a, safe))
        else:
            e.dst(code.select(minus, code.neg(a), code.op("sdiv", a, safe)))
    else:
        e.dst(code.op("urem" if remainder else "udiv", a, safe))


def absolute(e: Emit, m: Mods) -> None:
    bits = width(m["type"])
    e.dst(e.code.intrinsic("abs", e.src(1, bits), const("i1", 0)))


def neg(e: Emit, m: Mods) -> None:
    e.dst(e.code.neg(e.src(1, width(m["type"]))))


def extreme(e: Emit, m: Mods) -> None:
    bits = width(m["type"])
    name = ("s" if signed(m["type"]) else "u") + m["op"]
    value = e.code.intrinsic(name, e.src(1, bits), e.src(2, bits))
    if m.get("relu"):
        value = e.code.intrinsic("smax", value, e.code.const(value, 0))
    e.dst(value)


def sad(e: Emit, m: Mods) -> None:
    """`d = c + |a - b|`."""
    bits = width(m["type"])
    a, b = e.src(1, bits), e.src(2, bits)
    less = e.code.cmp("icmp slt" if signed(m["type"]) else "icmp ult", a, b)
    apart = e.code.select(less, e.code.op("sub", b, a), e.code.op("sub", a, b))
    e.dst(e.code.op("add", e.src(3, bits), apart))


def dot4(e: Emit, m: Mods) -> None:
    """`dp4a`: c plus the products of the four bytes of a and b."""
    code = e.code
    a, b, total = e.src(1, 32), e.src(2, 32), e.src(3, 32)
    for place in range(4):
        parts = []
        for value, kind in ((a, m["atype"]), (b, m["type"])):
            byte = code.op("shl", value, code.const(value, 24 - 8 * place))
            parts.append(code.op("ashr" if signed(kind) else "lshr", byte, code.const(value, 24)))
        total = code.op("add", total, code.op("mul", *parts))
    e.dst(total)


def dot2(e: Emit, m: Mods) -> None:
    """`dp2a`: c plus the products of the two halves of a with the lower or upper two bytes of b."""
    code = e.code
    a, b, total = e.src(1, 32), e.src(2, 32), e.src(3, 32)
    for place in range(2):
        half = code.op("shl", a, code.const(a, 16 - 16 * place))
        half = code.op("ashr" if signed(m["atype"]) else "lshr", half, code.const(a, 16))
        byte = code.op("shl", b, code.const(b, 24 - 8 * (place + 2 * (m["part"] == "hi"))))
        byte = code.op("ashr" if signed(m["type"]) else "lshr", byte, code.const(b, 24))
        total = code.op("add", total, code.op("mul", half, byte))
    e.dst(total)


# --- Extended precision: the carry flag is a register of its own --------------------------------


def carry(e: Emit, m: Mods) -> None:
    """`add.cc`, `addc`, `sub.cc`, `subc`: the carry, or the borrow, goes through `%cc`."""
    code, bits = e.code, width(m["type"])
    a, b = e.src(1, bits), e.src(2, bits)
    subtract = m["op"].startswith("sub")
    wide = f"i{2 * bits}"
    x, y = code.cast("zext", a, wide), code.cast("zext", b, wide)
    total = code.op("sub" if subtract else "add", x, y)
    if m["op"].endswith("c"):
        total = code.op("sub" if subtract else "add", total, code.cast("zext", _flag(e), wide))
    _finish(e, m, total, a)


def mad_carry(e: Emit, m: Mods) -> None:
    """`mad{.hi,.lo}.cc`, `madc{.hi,.lo}{.cc}`."""
    code, bits = e.code, width(m["type"])
    part = _product(e, m, e.src(1, bits), e.src(2, bits))
    wide = f"i{2 * bits}"
    total = code.op("add", code.cast("zext", part, wide), code.cast("zext", e.src(3, bits), wide))
    if m["op"] == "madc":
        total = code.op("add", total, code.cast("zext", _flag(e), wide))
    _finish(e, m, total, part)


def _flag(e: Emit) -> Value:
    return e.code.splat(e.read(CARRY))


def _finish(e: Emit, m: Mods, total: Value, like: Value) -> None:
    if m.get("cc"):
        over = e.code.op(
            "and", e.code.op("lshr", total, e.code.const(total, like.bits)), e.code.const(total, 1)
        )
        e.write(CARRY, e.code.cast("trunc", over, "i1"))
    e.dst(e.code.cast("trunc", total, like.kind))


# --- Bits --------------------------------------------------------------------------------------


def logic(e: Emit, m: Mods) -> None:
    bits = width(m["type"])
    e.dst(e.code.op(m["op"], e.src(1, bits), e.src(2, bits)))


def complement(e: Emit, m: Mods) -> None:
    bits = width(m["type"])
    a = e.src(1, bits)
    if m["op"] == "cnot":
        zero = e.code.cmp("icmp eq", a, e.code.const(a, 0))
        e.dst(e.code.resize(zero, a.kind))
    else:
        e.dst(e.code.inv(a))


def shift(e: Emit, m: Mods) -> None:
    """Shifts by an amount that is clamped to the width, so that wide ones give 0 or the sign."""
    code, bits = e.code, width(m["type"])
    # Of a constant amount ptxas keeps as many bits as the type has: shl.b16 by 65,537 shifts by one.
    constant = isinstance(e.operand(2), Int) and bits == 16
    a, amount = e.src(1, bits), code.resize(e.src(2, 16), "i32") if constant else e.src(2, 32)
    right_signed = m["op"] == "shr" and signed(m["type"])
    most = code.const(amount, bits - 1)
    wide = code.cmp("icmp ugt", amount, most)
    by = code.resize(code.intrinsic("umin", amount, most), a.kind)
    name = "shl" if m["op"] == "shl" else ("ashr" if right_signed else "lshr")
    value = code.op(name, a, by)
    e.dst(value if right_signed else code.select(wide, code.const(a, 0), value))


def funnel(e: Emit, m: Mods) -> None:
    """`shf`: 32 bits out of a register pair (a low, b high), shifted left or right."""
    code = e.code
    low, high, amount = e.src(1, 32), e.src(2, 32), e.src(3, 32)
    if m["mode"] == "wrap":
        amount = code.op("and", amount, code.const(amount, 31))
    else:
        amount = code.intrinsic("umin", amount, code.const(amount, 32))
    pair = code.op("or", code.op("shl", code.cast("zext", high, "i64"), const("i64", 32, e.lanes)),
                   code.cast("zext", low, "i64"))  # fmt: skip
    by = code.cast("zext", amount, "i64")
    if m["dir"] == "l":
        moved = code.op("lshr", code.op("shl", pair, by), const("i64", 32, e.lanes))
    else:
        moved = code.op("lshr", pair, by)
    e.dst(code.cast("trunc", moved, "i32"))


def popc(e: Emit, m: Mods) -> None:
    e.dst(e.code.resize(e.code.intrinsic("ctpop", e.src(1, width(m["type"]))), "i32"))


def clz(e: Emit, m: Mods) -> None:
    a = e.src(1, width(m["type"]))
    e.dst(e.code.resize(e.code.intrinsic("ctlz", a, const("i1", 0)), "i32"))


def brev(e: Emit, m: Mods) -> None:
    e.dst(e.code.intrinsic("bitreverse", e.src(1, width(m["type"]))))


def bfind(e: Emit, m: Mods) -> None:
    """The position of the top bit that differs from the sign (or is set), all ones where there is none."""
    code, a = e.code, e.src(1, width(m["type"]))
    if signed(m["type"]):
        a = code.op("xor", a, code.op("ashr", a, code.const(a, a.bits - 1)))
    zeros = code.intrinsic("ctlz", a, const("i1", 0))
    place = zeros if m.get("shiftamt") else code.op("sub", code.const(a, a.bits - 1), zeros)
    none = code.cmp("icmp eq", a, code.const(a, 0))
    e.dst(code.resize(code.select(none, code.const(a, -1), place), "i32"))


def bfe(e: Emit, m: Mods) -> None:
    """A bit field; above it, or above the top of `a`, stands 0 or the field's sign.

    The sign is bit min(position + length - 1, top) of `a`. Of position and length 32-bit fields take the low
    byte, as PTX says, and 64-bit ones all, as ptxas makes shifts of them.
    """
    code, bits, lanes = e.code, width(m["type"]), e.lanes
    wide = "i64" if bits == 32 else "i128"
    a = e.src(1, bits)
    most = const("i32", bits, lanes)
    position, length = e.src(2, 32), e.src(3, 32)
    if bits == 32:
        byte = const("i32", 0xFF, lanes)
        position, length = code.op("and", position, byte), code.op("and", length, byte)
    else:
        position, length = code.intrinsic("umin", position, most), code.intrinsic("umin", length, most)
    start = code.intrinsic("umin", position, most)
    kept = _low_ones(e, code.intrinsic("umin", length, code.op("sub", most, start)), wide, a.kind)
    shifted = code.op("lshr", code.cast("zext", a, wide), code.resize(start, wide))
    value = code.op("and", code.cast("trunc", shifted, a.kind), kept)
    if signed(m["type"]):
        last = code.op("sub", code.op("add", position, length), const("i32", 1, lanes))
        last = code.intrinsic("umin", last, const("i32", bits - 1, lanes))
        negative = code.cast("trunc", code.op("lshr", a, code.resize(last, a.kind)), "i1")
        value = code.select(negative, code.op("or", value, code.inv(kept)), value)
    empty = code.cmp("icmp eq", length, const("i32", 0, lanes))
    e.dst(code.select(empty, code.const(a, 0), value))


def _low_ones(e: Emit, count: Value, wide: str, kind: str) -> Value:
    """`count` ones from the bottom, count ≤ width."""
    one = const(wide, 1, e.lanes)
    return e.code.cast(
        "trunc", e.code.op("sub", e.code.op("shl", one, e.code.resize(count, wide)), one), kind
    )


def bfi(e: Emit, m: Mods) -> None:
    """`d = b` with the low bits of `a` in a field of it."""
    code, bits = e.code, width(m["type"])
    wide = "i64" if bits == 32 else "i128"
    a, b = e.src(1, bits), e.src(2, bits)
    byte, most = const("i32", 0xFF, e.lanes), const("i32", bits, e.lanes)
    position = code.intrinsic("umin", code.op("and", e.src(3, 32), byte), most)
    length = code.intrinsic("umin", code.op("and", e.src(4, 32), byte), most)
    by = code.resize(position, wide)
    ones = code.cast("zext", _low_ones(e, length, wide, a.kind), wide)
    field = code.cast("trunc", code.op("shl", ones, by), a.kind)
    moved = code.cast("trunc", code.op("shl", code.cast("zext", a, wide), by), a.kind)
    e.dst(code.op("or", code.op("and", moved, field), code.op("and", b, code.inv(field))))


def bmsk(e: Emit, m: Mods) -> None:
    """Ones from bit `a` upwards, `b` of them; positions and counts wrap at 32 or clamp to it."""
    code, wide = e.code, "i64"
    a, b = e.src(1, 32), e.src(2, 32)
    if m["mode"] == "wrap":
        a, b = (code.op("and", v, code.const(v, 31)) for v in (a, b))
    else:
        a, b = (code.intrinsic("umin", v, code.const(v, 32)) for v in (a, b))
    ones = code.cast("zext", _low_ones(e, b, wide, "i32"), wide)
    e.dst(code.cast("trunc", code.op("shl", ones, code.resize(a, wide)), "i32"))


def szext(e: Emit, m: Mods) -> None:
    """The low `b` bits of `a`, extended with zeros or their sign."""
    code = e.code
    a, count = e.src(1, 32), e.src(2, 32)
    if m["mode"] == "wrap":
        count = code.op("and", count, code.const(count, 31))
    else:
        count = code.intrinsic("umin", count, code.const(count, 32))
    by = code.op("sub", code.const(count, 32), count)
    by = code.op("add", code.cast("zext", by, "i64"), const("i64", 32, e.lanes))
    by = code.intrinsic("umin", by, const("i64", 63, e.lanes))
    none = code.cmp("icmp eq", count, code.const(count, 0))
    wide = code.op("shl", code.cast("zext", a, "i64"), by)
    value = code.cast("trunc", code.op("ashr" if signed(m["type"]) else "lshr", wide, by), "i32")
    e.dst(code.select(none, code.const(a, 0), value))


def prmt(e: Emit, m: Mods) -> None:
    """Four bytes chosen from eight; bit 3 of a selector repeats the byte's sign instead."""
    code, lanes = e.code, e.lanes
    a, b, chosen = e.src(1, 32), e.src(2, 32), e.src(3, 32)
    pair = code.op("or", code.op("shl", code.cast("zext", b, "i64"), const("i64", 32, lanes)),
                   code.cast("zext", a, "i64"))  # fmt: skip
    total = const("i32", 0, lanes)
    for place in range(4):
        selector = _selector(e, m.get("mode") or "", chosen, place)
        by = code.op("shl", code.op("and", selector, code.const(selector, 7)), code.const(selector, 3))
        byte = code.cast("trunc", code.op("lshr", pair, code.cast("zext", by, "i64")), "i8")
        if not m.get("mode"):
            repeat = code.cmp("icmp ne", code.op("and", selector, code.const(selector, 8)),
                              code.const(selector, 0))  # fmt: skip
            byte = code.select(repeat, code.op("ashr", byte, code.const(byte, 7)), byte)
        moved = code.op("shl", code.cast("zext", byte, "i32"), const("i32", 8 * place, lanes))
        total = code.op("or", total, moved)
    e.dst(total)


def _selector(e: Emit, mode: str, chosen: Value, place: int) -> Value:
    code = e.code
    two = code.op("and", chosen, code.const(chosen, 3))
    match mode:
        case "":
            return code.op("lshr", chosen, code.const(chosen, 4 * place))
        case "f4e":
            return code.op("add", two, code.const(two, place))
        case "b4e":
            return code.op("sub", two, code.const(two, place))
        case "rc8":
            return two
        case "ecl":
            return code.intrinsic("umax", two, code.const(two, place))
        case "ecr":
            return code.intrinsic("umin", two, code.const(two, place))
        case _:  # rc16
            half = code.op("shl", code.op("and", chosen, code.const(chosen, 1)), code.const(chosen, 1))
            return code.op("add", half, code.const(half, place & 1))


def lop3(e: Emit, m: Mods) -> None:
    """Any logic of three inputs: bit 4a+2b+c of the table says the result for bits a, b, c."""
    code = e.code
    table = e.operand(4)
    if not isinstance(table, Int):
        raise e.refuse("has a table that is no constant")
    number = table.value
    terms = [e.src(1, 32), e.src(2, 32), e.src(3, 32)]
    inverses = [code.inv(t) for t in terms]
    total = code.const(terms[0], 0)
    for row in range(8):
        if number >> row & 1:
            a, b, c = (
                t if row >> (2 - i) & 1 else n for i, (t, n) in enumerate(zip(terms, inverses, strict=True))
            )
            total = code.op("or", total, code.op("and", code.op("and", a, b), c))
    if m.get("bool"):
        first = e.operand(0)
        truth = code.cmp("icmp ne", total, code.const(total, 0))
        truth = code.op(m["bool"], truth, e.src(5, 1))
        if isinstance(first, Pair):
            e.assign(first.first, total)
            e.assign(first.second, truth)
            return
        raise e.refuse("has one destination")
    e.dst(total)


# --- Moves, selections and comparisons ---------------------------------------------------------


def mov(e: Emit, m: Mods) -> None:
    """A move, or packing and unpacking: `mov.b32 {lo, hi}, r` and back. Element 0 has the lowest bits."""
    bits = width(m["type"])
    to, source = e.operand(0), e.operand(1)
    if isinstance(source, Sym) and e.space_of(source.name) == "":
        raise e.refuse(f"takes the address of {source.name}, which is no variable")
    parts = to if isinstance(to, Vec) else source
    if isinstance(parts, Vec) and len(parts.items) not in (1, 2, 4, 8):
        raise e.refuse(f"moves {bits} bits in {len(parts.items)} parts")
    if isinstance(to, Vec):
        value = e.src(1, bits)
        step = bits // len(to.items)
        for place, item in enumerate(to.items):
            if isinstance(item, Sink):
                continue
            part = e.code.op("lshr", value, e.code.const(value, place * step))
            e.assign(item, e.code.cast("trunc", part, f"i{step}"))
        return
    if isinstance(source, Vec):
        step = bits // len(source.items)
        kind = f"i{bits}"
        total = const(kind, 0, e.lanes)
        for place, item in enumerate(source.items):
            part = e.code.resize(e.value(item, step), kind)
            total = e.code.op("or", total, e.code.op("shl", part, e.code.const(part, place * step)))
        e.dst(total)
        return
    e.dst(e.src(1, bits))


def selp(e: Emit, m: Mods) -> None:
    bits = width(m["type"])
    e.dst(e.code.select(e.src(3, 1), e.src(1, bits), e.src(2, bits)))


def slct(e: Emit, m: Mods) -> None:
    """`a` where c ≥ 0, else `b`. A NaN counts as negative, -0 as 0."""
    code, bits = e.code, width(m["type"])
    c = e.src(3, 32)
    if m["ctype"] == "f32":
        value = code.cast("bitcast", c, "float")
        zero = code.cast("bitcast", code.const(c, 0), "float")
        truth = code.cmp("fcmp oge", value, zero)
        if m.get("ftz"):
            tiny = code.cmp("icmp eq", code.op("and", c, code.const(c, 0x7F800000)), code.const(c, 0))
            truth = code.op("or", truth, tiny)
    else:
        truth = code.cmp("icmp sge", c, code.const(c, 0))
    e.dst(code.select(truth, e.src(1, bits), e.src(2, bits)))


_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def integer_truth(e: Emit, m: Mods) -> Value:
    """The comparison of operands 1 and 2 (counted from the first source) of a `setp` or `set`."""
    compare, kind = m["cmp"], m["type"]
    bits = width(kind)
    if compare in ("eq", "ne"):
        name = compare
    elif compare in _UNSIGNED:
        name = _UNSIGNED[compare]
    else:
        name = ("s" if signed(kind) else "u") + compare
    return e.code.cmp(f"icmp {name}", e.src(1, bits), e.src(2, bits))


def store_truth(e: Emit, m: Mods, truth: Value) -> None:
    """The rest of `setp` and `set`: combines with a predicate and sets one or two destinations."""
    code = e.code
    other = e.src(3, 1) if m.get("bool") else None

    def combined(value: Value) -> Value:
        return value if other is None else code.op(m["bool"], value, other)

    if m["op"] == "set":
        value = combined(truth)
        if m["dtype"] == "f32":
            e.refuse_guard()
            e.dst(code.select(value, const("i32", 0x3F800000, e.lanes), const("i32", 0, e.lanes)))
        else:
            e.dst(code.cast("sext", value, "i32"))
        return
    to = e.operand(0)
    if isinstance(to, Pair):
        e.assign(to.first, combined(truth))
        e.assign(to.second, combined(code.inv(truth)))
    else:
        e.dst(combined(truth))


def setp(e: Emit, m: Mods) -> None:
    store_truth(e, m, integer_truth(e, m))


def convert(e: Emit, m: Mods) -> None:
    """`cvt` between integers, clamped under `.sat`."""
    code = e.code
    to, source = m["dtype"], m["type"]
    value = e.src(1, width(source))
    kind = f"i{width(to)}"
    if m.get("sat"):
        value = _clamp(e, value, signed(source), width(to), signed(to))
    value = code.resize(value, kind, signed=signed(source))
    e.extend(e.operand(0), value, signed=signed(to))


def _clamp(e: Emit, value: Value, source_signed: bool, bits: int, to_signed: bool) -> Value:
    code = e.code
    lowest = -(1 << (bits - 1)) if to_signed else 0
    highest = (1 << (bits - 1)) - 1 if to_signed else (1 << bits) - 1
    own_low = -(1 << (value.bits - 1)) if source_signed else 0
    own_high = (1 << (value.bits - 1)) - 1 if source_signed else (1 << value.bits) - 1
    letter = "s" if source_signed else "u"
    if lowest > own_low:
        value = code.intrinsic(f"{letter}max", value, code.const(value, lowest))
    if highest < own_high:
        value = code.intrinsic(f"{letter}min", value, code.const(value, highest))
    return value
