"""`cvt` wherever a floating-point format is on either side."""

from __future__ import annotations

from reprodb.executors.model import floats
from reprodb.executors.model.emit import Emit, Mods
from reprodb.executors.model.floats import BF16, F16, F32, F64, FORMATS, Format
from reprodb.executors.model.integers import signed, width
from reprodb.executors.model.llvm import Value, const, type_of

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def float_to_float(e: Emit, m: Mods) -> None:
    to, source = FORMATS[m["dtype"]], FORMATS[m["type"]]
    code, ftz = e.code, m.get("ftz")
    if ftz and to is F16 and m.get("rnd") in ("rp", "rm"):
        raise e.refuse("flushes by PTX and does not on GPUs")
    bits = e.src(1, source.bits)
    if ftz and source is F32:
        bits = floats.flush(e, bits, F32)
        if to is F64:  # a pass through f32 arithmetic comes first, and makes a NaN canonical
            bits = floats.canonical(e, floats.widen(e, bits, F32), F32)
    value = floats.widen(e, bits, source)
    if m.get("rnd") in _INTEGRAL:
        value = code.intrinsic(_INTEGRAL[m["rnd"]], value)
    out = to_format(e, value, to, (m.get("rnd") or "rn").rstrip("i"))
    out = code.select(floats.is_nan(e, bits, source), _nan(e, bits, source, to), out)
    if ftz and source is F64 and to is F32:
        out = floats.flush_edge(e, out, lambda: floats.tiny_double(e, value, m.get("rnd") or "rn"))
    e.extend(e.operand(0), _finish(e, out, to, m), signed=False)


def _nan(e: Emit, bits: Value, source: Format, to: Format) -> Value:
    """What a conversion makes of a NaN: between f64 and others sign and upper payload stay, made quiet.

    bf16 to f32 is a shift. All else gives the canonical NaN.
    """
    code = e.code
    kind = f"i{to.bits}"
    if source is BF16 and to is F32:
        return code.op("shl", code.cast("zext", bits, "i32"), const("i32", 16, e.lanes))
    if F64 not in (source, to):
        return const(kind, to.nan, e.lanes)
    wide = code.resize(bits, "i64")
    sign = code.op("lshr", wide, code.const(wide, source.bits - 1))
    sign = code.op("shl", sign, code.const(wide, to.bits - 1))
    payload = code.op("and", wide, code.const(wide, (1 << source.fraction) - 1))
    if to.fraction > source.fraction:
        payload = code.op("shl", payload, code.const(wide, to.fraction - source.fraction))
    else:
        payload = code.op("lshr", payload, code.const(wide, source.fraction - to.fraction))
    fixed = code.op("or", payload, code.const(wide, to.exponent | 1 << (to.fraction - 1)))
    return code.resize(code.op("or", fixed, sign), kind)


def to_format(e: Emit, value: Value, to: Format, mode: str) -> Value:
    """An f32 or f64 value as bits of a format, rounded once in `mode`, a NaN canonical."""
    if to.bits == 16:
        if value.kind == "double":
            value = floats.double_to_odd_float(e, value)
        return floats.narrow(e, value, to, mode)
    if to is F32 and value.kind == "double":
        value = (
            e.code.cast("fptrunc", value, "float")
            if mode == "rn"
            else floats.directed(e, "fptrunc", mode, value)
        )
    elif to is F64:
        value = e.code.cast("fpext", value, "double")
    return floats.canonical(e, value, to)


def _finish(e: Emit, bits: Value, to: Format, m: Mods) -> Value:
    if m.get("ftz") and to is F32:
        bits = floats.flush(e, bits, F32)
    if m.get("satfinite"):
        top = 1 << (to.bits - 1)
        magnitude = e.code.op("and", bits, e.code.const(bits, top - 1))
        infinite = e.code.cmp("icmp eq", magnitude, e.code.const(bits, to.exponent))
        bits = e.code.select(infinite, e.code.op("sub", bits, e.code.const(bits, 1)), bits)
    if m.get("sat"):
        bits = floats.saturate(e, bits, to)
    if m.get("relu"):
        bits = floats.relu(e, bits, to)
    return bits


def two_to_packed(e: Emit, m: Mods) -> None:
    """`cvt.rn.f16x2.f32 d, a, b`: a in the high half, b in the low one."""
    to = floats.packed_format({"type": m["dtype"]})
    parts = []
    for index in (2, 1):
        bits = e.src(index, 32)
        if m.get("ftz"):
            bits = floats.flush(e, bits, F32)
        out = to_format(e, floats.widen(e, bits, F32), to, m.get("rnd") or "rn")
        parts.append(_finish(e, out, to, m))
    e.dst(floats.join(e, *parts))


def to_tf32(e: Emit, m: Mods) -> None:
    """`cvt.rna.tf32.f32`: ten bits of fraction, ties away from zero, the rest zeros (of a NaN too)."""
    code = e.code
    bits = e.src(1, 32)
    magnitude = code.op("and", bits, code.const(bits, 0x7FFFFFFF))
    rounded = code.op("and", code.op("add", bits, code.const(bits, 0x1000)), code.const(bits, 0xFFFFE000))
    infinite = code.cmp("icmp eq", magnitude, code.const(bits, 0x7F800000))
    nan = code.cmp("icmp ugt", magnitude, code.const(bits, 0x7F800000))
    out = code.select(infinite, bits, rounded)
    e.dst(code.select(nan, code.op("and", bits, code.const(bits, 0xFFFFE000)), out))


def float_to_int(e: Emit, m: Mods) -> None:
    """Rounds to an integer and clamps it to the range of the type.

    A NaN gives 0; the top bit alone where either side has 64 bits.
    """
    code = e.code
    source, bits = FORMATS[m["type"]], width(m["dtype"])
    a = e.src(1, source.bits)
    if m.get("ftz") and source is F32:
        a = floats.flush(e, a, F32)
    value = floats.widen(e, a, source)
    rounded = code.intrinsic(_INTEGRAL[m["rnd"]], value)
    kind = f"i{bits}"
    name = "fptosi" if signed(m["dtype"]) else "fptoui"
    out = _to_int(e, name, rounded, kind)
    if source is F64 or bits == 64:
        nan = code.cmp("fcmp uno", value, value)
        out = code.select(nan, const(kind, 1 << (bits - 1), e.lanes), out)
    e.extend(e.operand(0), out, signed=signed(m["dtype"]))


def _to_int(e: Emit, name: str, value: Value, kind: str) -> Value:
    """LLVM's saturating conversion; a NaN gives 0."""
    lanes = value.lanes
    prefix = "" if lanes == 1 else f"v{lanes}"
    source = "f32" if value.kind == "float" else "f64"
    full = f"llvm.{name}.sat.{prefix}{kind}.{prefix}{source}"
    e.code.helpers.declare(f"declare {type_of(kind, lanes)} @{full}({value.type})")
    return e.code.call(full, kind, lanes, value)


def int_to_float(e: Emit, m: Mods) -> None:
    """Any integer to any format, rounded once."""
    code = e.code
    to, source = FORMATS[m["dtype"]], m["type"]
    mode = m.get("rnd") or "rn"
    value = e.src(1, width(source))
    if mode == "rn" and to in (F32, F64):
        name = "sitofp" if signed(source) else "uitofp"
        bits = code.cast("bitcast", code.cast(name, value, to.kind), f"i{to.bits}")
    elif value.bits <= 32:
        wide = code.resize(value, "i64", signed=signed(source))
        bits = to_format(e, code.cast("sitofp", wide, "double"), to, mode)
    else:
        bits = _long_to_format(e, value, to, mode, is_signed=signed(source))
    e.extend(e.operand(0), _finish(e, bits, to, m), signed=False)


def _long_to_format(e: Emit, value: Value, to: Format, mode: str, *, is_signed: bool) -> Value:
    """64-bit integers as the exact sum of two f64, rounded once: in f64 directly, else rounded to odd."""
    code = e.code
    high = code.op("ashr" if is_signed else "lshr", value, code.const(value, 32))
    low = code.op("and", value, code.const(value, 0xFFFFFFFF))
    scale = code.cast("bitcast", code.const(value, 0x41F0000000000000), "double")  # 2^32
    top = code.op("fmul", code.cast("sitofp", high, "double"), scale)
    rest = code.cast("sitofp", low, "double")
    if to is F64:
        return floats.canonical(e, floats.binary_value(e, "fadd", mode, top, rest), to)
    one = code.cast("bitcast", code.const(value, 0x3FF0000000000000), "double")
    return to_format(e, floats.odd_sum(e, top, one, rest), to, mode)
