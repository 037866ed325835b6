"""Floating-point arithmetic as PTX defines it, exact in every format and rounding mode.

f32 and f64 compute in their own format; f16 and bf16 compute in f32 and are rounded once more, which is
exact for one operation (24 ≥ 2·11 + 2 bits), and their FMA in f64 rounded to odd. Directed rounding sets
the CPU's rounding mode inside small functions of its own.

What PTX leaves open follows an H200: a NaN result is the canonical one, but in f64 an operand's NaN made
quiet (0xfff8000000000000 where none is NaN); `.ftz` flushes a result that lies below the smallest normal once
it is rounded as if exponents had no end, also where rounding among subnormals would reach that number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reprodb.executors.model import layout
from reprodb.executors.model.emit import Emit, L, Mods
from reprodb.executors.model.llvm import Helpers, Value, const, type_of
from reprodb.executors.model.ptx import Pair


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: its width, the LLVM type that computes it, and its canonical NaN."""

    name: str
    bits: int
    kind: str
    fraction: int
    nan: int

    @property
    def exponent(self) -> int:
        """The bits of the exponent field; also the bits of infinity."""
        return ((1 << (self.bits - 1)) - 1) & ~((1 << self.fraction) - 1)

    @property
    def one(self) -> int:
        return {"f32": 0x3F800000, "f64": 0x3FF0000000000000, "f16": 0x3C00, "bf16": 0x3F80}[self.name]


F32 = Format("f32", 32, "float", 23, 0x7FFFFFFF)
F64 = Format("f64", 64, "double", 52, 0xFFF8000000000000)
F16 = Format("f16", 16, "float", 10, 0x7FFF)
BF16 = Format("bf16", 16, "float", 7, 0x7FFF)
FORMATS = {f.name: f for f in (F32, F64, F16, BF16)}

QUIET = 1 << 51  # the bit that makes an f64 NaN quiet
Tiny = Callable[[], Value]

# The rounding modes, as LLVM's llvm.set.rounding numbers them.
ROUNDING = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}


# --- Reading and writing operands --------------------------------------------------------------


def flush(e: Emit, value: Value, fmt: Format) -> Value:
    """Bits with subnormals made zeros of their sign."""
    code = e.code
    tiny = code.cmp("icmp eq", code.op("and", value, code.const(value, fmt.exponent)), code.const(value, 0))
    sign = code.op("and", value, code.const(value, 1 << (fmt.bits - 1)))
    return code.select(tiny, sign, value)


def widen(e: Emit, bits: Value, fmt: Format) -> Value:
    """Bits of a format as a value of the LLVM type that computes it. Always exact."""
    code = e.code
    if fmt.bits != 16:
        return code.cast("bitcast", bits, fmt.kind)
    wide = code.cast("zext", bits, "i32")
    if fmt is BF16:
        return code.cast("bitcast", code.op("shl", wide, code.const(wide, 16)), "float")
    # The exponent is rebased by a multiplication with 2^112, which is exact for subnormals too.
    magnitude = code.op("and", wide, code.const(wide, 0x7FFF))
    small = code.cast("bitcast", code.op("shl", magnitude, code.const(wide, 13)), "float")
    scale = code.cast("bitcast", code.const(wide, 0x77800000), "float")
    value = code.cast("bitcast", code.op("fmul", small, scale), "i32")
    special = code.cmp("icmp uge", magnitude, code.const(wide, 0x7C00))
    value = code.select(special, code.op("or", value, code.const(wide, 0x7F800000)), value)
    sign = code.op("shl", code.op("and", wide, code.const(wide, 0x8000)), code.const(wide, 16))
    return code.cast("bitcast", code.op("or", value, sign), "float")


def operand(e: Emit, index: int, fmt: Format, *, ftz: bool) -> Value:
    bits = e.src(index, fmt.bits)
    return widen(e, flush(e, bits, fmt) if ftz else bits, fmt)


def canonical(e: Emit, value: Value, fmt: Format, *sources: Value) -> Value:
    """A computed f32 or f64 value as bits, its NaN as the hardware has it. `sources` are its operands."""
    code = e.code
    bits = code.cast("bitcast", value, f"i{fmt.bits}")
    nan = code.cmp("fcmp uno", value, value)
    payload = code.const(bits, fmt.nan)
    if fmt is F64:
        for source in sources:
            given = code.cast("bitcast", source, "i64")
            quiet = code.op("or", given, code.const(given, QUIET))
            payload = code.select(code.cmp("fcmp uno", source, source), quiet, payload)
    return code.select(nan, payload, bits)


def _note_nans(e: Emit, *sources: Value) -> None:
    """Notes f64 operands that are different NaNs: ptxas puts operands in an order of its own.

    A division's order is fixed. Hardly any operand is a NaN, so what finds out stands behind a branch.
    """
    code = e.code
    pairs = [(x, y) for n, x in enumerate(sources) for y in sources[n + 1 :]]
    either = [code.cmp("fcmp uno", x, y) for x, y in pairs]
    any_nan = either[0] if len(either) == 1 else code.op("or", either[0], either[1])
    look, on = code.fresh("nans"), code.fresh("on")
    code.branch(_some(e, any_nan), look, on)
    code.label(look)
    clash = const("i1", 0, sources[0].lanes)
    for x, y in pairs:
        both = code.op("and", code.cmp("fcmp uno", x, x), code.cmp("fcmp uno", y, y))
        p, q = (code.cast("bitcast", v, "i64") for v in (x, y))
        quiet = code.op("or", code.op("xor", p, q), code.const(p, QUIET))
        unlike = code.cmp("icmp ne", quiet, code.const(p, QUIET))
        clash = code.op("or", clash, code.op("and", both, unlike))
    place = code.at(L, layout.L_NANS)
    code.store(code.select(_some(e, clash), e.number(), code.load("i32", place)), place)
    code.jump(on)
    code.label(on)


def _some(e: Emit, where: Value) -> Value:
    """Whether a condition holds in a lane that runs the instruction."""
    if where.lanes == 1:
        return where
    return e.code.cmp("icmp ne", e.code.op("and", e.code.bits(where), e.mask()), const("i32", 0))


def saturate(e: Emit, bits: Value, fmt: Format) -> Value:
    """Clamped to [+0, 1]; a NaN becomes +0."""
    code = e.code
    value = widen(e, bits, fmt)
    zero, one = (widen(e, code.const(bits, b), fmt) for b in (0, fmt.one))
    bits = code.select(code.cmp("fcmp ogt", value, zero), bits, code.const(bits, 0))
    return code.select(code.cmp("fcmp ogt", value, one), code.const(bits, fmt.one), bits)


def relu(e: Emit, bits: Value, fmt: Format) -> Value:
    """Negative values become +0, NaN the canonical one."""
    code = e.code
    value = widen(e, bits, fmt)
    zero = widen(e, code.const(bits, 0), fmt)
    return code.select(code.cmp("fcmp ole", value, zero), code.const(bits, 0), bits)


def result(e: Emit, value: Value, fmt: Format, m: Mods, *sources: Value, tiny: Tiny | None = None) -> Value:
    """The bits of a computed value: rounded to a 16-bit format, its NaN settled, flushed, clamped as asked.

    `tiny` tells which lanes are below the smallest normal; without it the rounded value tells, which is as
    good where rounding cannot reach the smallest normal from below.
    """
    bits = narrow(e, value, fmt, "rn") if fmt.bits == 16 else canonical(e, value, fmt, *sources)
    if m.get("ftz"):
        if fmt.bits == 16:
            bits = _flush_where(e, bits, fmt, _tiny_half(e, value, fmt))
        elif tiny is not None:
            bits = flush_edge(e, bits, tiny)
        bits = flush(e, bits, fmt)
    if m.get("sat"):
        bits = saturate(e, bits, fmt)
    if m.get("relu"):
        bits = relu(e, bits, fmt)
    return bits


def _flush_where(e: Emit, bits: Value, fmt: Format, where: Value) -> Value:
    sign = e.code.op("and", bits, e.code.const(bits, 1 << (fmt.bits - 1)))
    return e.code.select(where, sign, bits)


def flush_edge(e: Emit, bits: Value, tiny: Tiny) -> Value:
    """Flushes lanes that hold the smallest normal f32 although they are below it, as `tiny` tells.

    Hardly any value is the smallest normal, so what finds out stands behind a branch.
    """
    code = e.code
    magnitude = code.op("and", bits, code.const(bits, 0x7FFFFFFF))
    edge = code.cmp("icmp eq", magnitude, code.const(bits, 0x00800000))
    some = edge if edge.lanes == 1 else code.cmp("icmp ne", code.bits(edge), const("i32", 0))
    before, look, on = code.fresh("before"), code.fresh("look"), code.fresh("on")
    code.jump(before)
    code.label(before)
    code.branch(some, look, on)
    code.label(look)
    flushed = _flush_where(e, bits, F32, code.op("and", edge, tiny()))
    looked = code.fresh("looked")
    code.jump(looked)
    code.label(looked)
    code.jump(on)
    code.label(on)
    return code.define(
        f"phi {bits.type} [ {bits.text}, %{before} ], [ {flushed.text}, %{looked} ]", bits.kind, bits.lanes
    )


# Rounding at 2^64 times the size has all its bits, wherever the smallest normals are concerned.
_SCALE = 0x43F0000000000000  # 2^64, as f64
_SCALED = 0x20800000  # 2^-62, the smallest normal 2^-126 at that size, as f32


def _is_tiny(e: Emit, scaled: Value) -> Value:
    code = e.code
    bound = code.cast("bitcast", const("i32", _SCALED, scaled.lanes), "float")
    return code.cmp("fcmp olt", code.intrinsic("fabs", scaled), bound)


def tiny_double(e: Emit, value: Value, mode: str) -> Value:
    """Whether an f64 that stands for an exact value is below 2^-126 once it is rounded to 24 bits."""
    code = e.code
    scale = code.cast("bitcast", const("i64", _SCALE, value.lanes), "double")
    return _is_tiny(e, directed(e, "fptrunc", mode, code.op("fmul", value, scale)))


def _tiny_half(e: Emit, value: Value, fmt: Format) -> Value:
    """The same of an f32 that stands for an exact value on its way to f16: 2^-14, looked at 2^20 larger."""
    code = e.code
    scale = code.cast("bitcast", const("i32", 0x49800000, value.lanes), "float")
    bits = narrow(e, code.op("fmul", value, scale), fmt, "rn")
    return code.cmp("icmp ult", code.op("and", bits, code.const(bits, 0x7FFF)), code.const(bits, 0x5400))


def _double(e: Emit, value: Value) -> Value:
    return e.code.cast("fpext", value, "double")


def _tiny_product(e: Emit, mode: str, a: Value, b: Value) -> Tiny:
    return lambda: tiny_double(e, e.code.op("fmul", _double(e, a), _double(e, b)), mode)


def _tiny_quotient(e: Emit, mode: str, a: Value, b: Value) -> Tiny:
    """Where the quotient is near 2^-126, a is at most 4, and 2^64 times as much is no trouble."""

    def look() -> Value:
        code = e.code
        scale = code.cast("bitcast", const("i32", 0x5F800000, a.lanes), "float")
        return _is_tiny(e, binary_value(e, "fdiv", mode, code.op("fmul", a, scale), b))

    return look


# --- Rounding to a narrower format -------------------------------------------------------------


def narrow(e: Emit, value: Value, fmt: Format, mode: str) -> Value:
    """An f32 value rounded to a 16-bit format, by integer arithmetic on its bits, in any mode.

    Modes: rn, rz, rp, rm, and rna (nearest, ties away from zero). Overflow goes to infinity, or to the
    largest number where the mode rounds toward zero there.
    """
    code, lanes = e.code, value.lanes
    bits = code.cast("bitcast", value, "i32")

    def c(number: int) -> Value:
        return const("i32", number, lanes)

    sign = code.op("lshr", bits, c(31))
    magnitude = code.op("and", bits, c(0x7FFFFFFF))
    drop = 23 - fmt.fraction
    if fmt is F16:
        # Below 2^-14 the fraction loses one bit more for each power of two.
        exponent = code.op("lshr", magnitude, c(23))
        below = code.intrinsic("smax", code.op("sub", c(113), exponent), c(0))
        by = code.intrinsic("umin", code.op("add", below, c(drop)), c(31))
        fraction = code.op("or", code.op("and", magnitude, c(0x7FFFFF)), c(0x800000))
        # 2^-14 and up keep their exponent field, rebased; smaller ones have none.
        rebased = code.op("sub", magnitude, c(112 << 23))
        normal = code.cmp("icmp eq", below, c(0))
        whole = code.select(normal, rebased, fraction)
        tiny = code.cmp("icmp ult", magnitude, c(0x800000))  # f32 subnormals: nothing but sticky bits
        whole = code.select(tiny, code.op("and", magnitude, c(0x7FFFFF)), whole)
    else:
        by, whole = c(drop), magnitude
    kept = code.op("lshr", whole, by)
    lost = code.op("sub", whole, code.op("shl", kept, by))
    inexact = code.cmp("icmp ne", lost, c(0))
    half = code.op("shl", c(1), code.op("sub", by, c(1)))
    if mode in ("rn", "rna"):
        up = code.cmp("icmp ugt", lost, half)
        tie = code.cmp("icmp eq", lost, half)
        odd = code.cast("trunc", kept, "i1") if mode == "rn" else const("i1", 1, lanes)
        up = code.op("or", up, code.op("and", tie, odd))
    elif mode == "rz":
        up = const("i1", 0, lanes)
    else:
        negative = code.cast("trunc", sign, "i1")
        up = code.op("and", inexact, code.inv(negative) if mode == "rp" else negative)
    rounded = code.op("add", kept, code.cast("zext", up, "i32"))
    # Infinity stays, and what grew beyond the largest number becomes infinity or stays the largest.
    infinity = fmt.exponent
    over = code.cmp("icmp uge", rounded, c(infinity))
    if mode in ("rn", "rna"):
        limit = c(infinity)
    elif mode == "rz":
        limit = c(infinity - 1)
    else:
        negative = code.cast("trunc", sign, "i1")
        toward = code.inv(negative) if mode == "rp" else negative
        limit = code.select(toward, c(infinity), c(infinity - 1))
    rounded = code.select(over, limit, rounded)
    infinite = code.cmp("icmp eq", magnitude, c(0x7F800000))
    rounded = code.select(infinite, c(infinity), rounded)
    signed = code.op("or", rounded, code.op("shl", sign, c(15)))
    nan = code.cmp("icmp ugt", magnitude, c(0x7F800000))
    return code.cast("trunc", code.select(nan, c(fmt.nan), signed), "i16")


def double_to_odd_float(e: Emit, value: Value) -> Value:
    """An f64 rounded to odd in f32: cut, with the last bit set where something was lost.

    Rounding that once more to a format of at most 22 bits gives what rounding the f64 once would.
    """
    code = e.code
    short = directed(e, "fptrunc", "rz", value)
    back = code.cast("fpext", short, "double")
    lost = code.cmp("fcmp one", back, value)
    bits = code.cast("bitcast", short, "i32")
    return code.cast("bitcast", code.op("or", bits, code.cast("zext", lost, "i32")), "float")


# --- Operations in a rounding mode -------------------------------------------------------------


def directed(e: Emit, name: str, mode: str, *values: Value) -> Value:
    """`fadd`, `fmul`, `fdiv`, `sqrt`, `fma`, `fptrunc` in any rounding mode, correctly rounded."""
    first = values[0]
    kind = "float" if name == "fptrunc" else first.kind
    helper = _directed_helper(e.code.helpers, name, mode, first, len(values), kind)
    return e.code.call(helper, kind, first.lanes, *values)


def _directed_helper(helpers: Helpers, name: str, mode: str, first: Value, count: int, kind: str) -> str:
    """A function that computes under the rounding mode set in the CPU, which it puts back to nearest."""
    helper = f"{name}.{mode}.{first.kind}.{first.lanes}"
    if helpers.known(helper):
        return helper
    type_in, type_out = type_of(first.kind, first.lanes), type_of(kind, first.lanes)

    def suffix(k: str) -> str:
        short = "f32" if k == "float" else "f64"
        return short if first.lanes == 1 else f"v{first.lanes}{short}"

    overload = suffix(kind) + ("." + suffix(first.kind) if name == "fptrunc" else "")
    full = f"llvm.experimental.constrained.{name}.{overload}"
    helpers.declare("declare void @llvm.set.rounding(i32)")
    helpers.declare(f"declare {type_out} @{full}({', '.join([type_in] * count)}, metadata, metadata)")
    parameters = ", ".join(f"{type_in} %a{i}" for i in range(count))
    lines = [
        f"define internal {type_out} @{helper}({parameters}) noinline strictfp {{",
        f"  call void @llvm.set.rounding(i32 {ROUNDING[mode]}) strictfp",
        f'  %r = call {type_out} @{full}({parameters}, metadata !"round.dynamic", '
        'metadata !"fpexcept.strict") strictfp',
        "  call void @llvm.set.rounding(i32 1) strictfp",
        f"  ret {type_out} %r",
        "}",
    ]
    return helpers.function(helper, "\n".join(lines))


def binary_value(e: Emit, name: str, mode: str, a: Value, b: Value) -> Value:
    return e.code.op(name, a, b) if mode == "rn" else directed(e, name, mode, a, b)


def fma_value(e: Emit, mode: str, a: Value, b: Value, c: Value) -> Value:
    """a·b + c with one rounding. Without FMA hardware f32 goes through f64, rounded to odd."""
    if a.kind == "double" or e.code.helpers.fma:
        return e.code.intrinsic("fma", a, b, c) if mode == "rn" else directed(e, "fma", mode, a, b, c)
    code = e.code
    wide = [_double(e, v) for v in (a, b, c)]
    odd = odd_sum(e, *wide)
    if mode == "rn":
        return code.cast("fptrunc", odd, "float")
    # Only the mode itself knows the sign of an exact zero.
    zero = code.cmp("fcmp oeq", odd, code.op("fsub", odd, odd))
    plain = directed(e, "fadd", mode, code.op("fmul", wide[0], wide[1]), wide[2])
    return directed(e, "fptrunc", mode, code.select(zero, plain, odd))


def odd_sum(e: Emit, a: Value, b: Value, c: Value) -> Value:
    """a·b + c in f64, rounded to odd, where a·b is exact (both came from f32 or narrower).

    The error of the sum is exact (TwoSum). Where there is one and the sum's last bit is even, the sum is
    the neighbour on the error's side of it, which is odd.
    """
    code = e.code
    product = code.op("fmul", a, b)
    total = code.op("fadd", product, c)
    shadow = code.op("fsub", total, product)
    error = code.op(
        "fadd",
        code.op("fsub", product, code.op("fsub", total, shadow)),
        code.op("fsub", c, shadow),
    )
    bits = code.cast("bitcast", total, "i64")
    zero = code.cast("bitcast", code.const(bits, 0), "double")
    inexact = code.cmp("fcmp one", error, zero)  # false for the NaN that infinities leave
    even = code.inv(code.cast("trunc", bits, "i1"))
    away = code.op(
        "xor", code.cmp("fcmp ogt", error, zero), code.cmp("fcmp olt", total, zero)
    )  # the error has the sum's sign: away from zero is up in the bits
    step = code.select(away, code.const(bits, 1), code.const(bits, -1))
    moved = code.op("add", bits, step)
    use = code.op("and", inexact, even)
    return code.cast("bitcast", code.select(use, moved, bits), "double")


# --- Instructions ------------------------------------------------------------------------------


def mode_of(m: Mods) -> str:
    return m.get("rnd") or "rn"


def binary(name: str) -> object:
    """`add`, `sub`, `mul`, `div` of one format."""

    def emit(e: Emit, m: Mods) -> None:
        fmt, ftz = FORMATS[m["type"]], bool(m.get("ftz"))
        a, b = operand(e, 1, fmt, ftz=ftz), operand(e, 2, fmt, ftz=ftz)
        value = binary_value(e, name, mode_of(m), a, b)
        if fmt is F64 and name != "fdiv":
            _note_nans(e, a, b)
        tiny = {"fmul": _tiny_product, "fdiv": _tiny_quotient}.get(name)
        sources = (b, a) if name == "fdiv" else (a, b)
        e.dst(result(e, value, fmt, m, *sources, tiny=tiny and tiny(e, mode_of(m), a, b)))

    return emit


def fma(e: Emit, m: Mods) -> None:
    fmt, ftz = FORMATS[m["type"]], bool(m.get("ftz"))
    a, b, c = (operand(e, i, fmt, ftz=ftz) for i in (1, 2, 3))

    def tiny() -> Value:
        return tiny_double(e, odd_sum(e, _double(e, a), _double(e, b), _double(e, c)), mode_of(m))

    if fmt is F64:
        _note_nans(e, a, b, c)
    e.dst(result(e, _fma_in(e, fmt, mode_of(m), a, b, c), fmt, m, a, c, b, tiny=tiny))


def _fma_in(e: Emit, fmt: Format, mode: str, a: Value, b: Value, c: Value) -> Value:
    if fmt.bits != 16:
        return fma_value(e, mode, a, b, c)
    odd = odd_sum(e, *(e.code.cast("fpext", v, "double") for v in (a, b, c)))
    return double_to_odd_float(e, odd)


def sqrt(e: Emit, m: Mods) -> None:
    fmt = FORMATS[m["type"]]
    a = operand(e, 1, fmt, ftz=bool(m.get("ftz")))
    mode = mode_of(m)
    value = e.code.intrinsic("sqrt", a) if mode == "rn" else directed(e, "sqrt", mode, a)
    e.dst(result(e, value, fmt, m, a))


def rcp(e: Emit, m: Mods) -> None:
    fmt = FORMATS[m["type"]]
    a = operand(e, 1, fmt, ftz=bool(m.get("ftz")))
    one = e.code.cast("bitcast", const(f"i{fmt.bits}", fmt.one, e.lanes), fmt.kind)
    value = binary_value(e, "fdiv", mode_of(m), one, a)
    e.dst(result(e, value, fmt, m, a, tiny=_tiny_quotient(e, mode_of(m), one, a)))


def sign_change(e: Emit, m: Mods) -> None:
    """`neg` and `abs`. What they make of a NaN PTX leaves open: the canonical one, in f64 the quiet one."""
    fmt = FORMATS[m["type"]]
    code = e.code
    bits = e.src(1, fmt.bits)
    if m.get("ftz"):
        bits = flush(e, bits, fmt)
    top = 1 << (fmt.bits - 1)
    changed = (
        code.op("xor", bits, code.const(bits, top))
        if m["op"] == "neg"
        else code.op("and", bits, code.const(bits, top - 1))
    )
    nan = code.op("or", bits, code.const(bits, QUIET)) if fmt is F64 else code.const(bits, fmt.nan)
    e.dst(code.select(is_nan(e, bits, fmt), nan, changed))


def is_nan(e: Emit, bits: Value, fmt: Format) -> Value:
    magnitude = e.code.op("and", bits, e.code.const(bits, (1 << (fmt.bits - 1)) - 1))
    return e.code.cmp("icmp ugt", magnitude, e.code.const(bits, fmt.exponent))


_NO_COPY = ("NaN", "ftz", "xorsign")


def extreme(e: Emit, m: Mods) -> None:
    """`min` and `max`: -0 is below +0; a NaN loses, unless `.NaN` makes it win.

    Of one register twice ptxas makes a copy, which keeps a NaN's payload. `.xorsign.abs` compares magnitudes
    and gives the result the product of the signs.
    """
    fmt = FORMATS[m["type"]]
    code = e.code
    a, b = e.src(1, fmt.bits), e.src(2, fmt.bits)
    if e.operand(1) == e.operand(2) and fmt is not BF16 and not any(m.get(x) for x in _NO_COPY):
        e.dst(a)
        return
    if m.get("ftz"):
        a, b = flush(e, a, fmt), flush(e, b, fmt)
    top = 1 << (fmt.bits - 1)
    sign = code.op("and", code.op("xor", a, b), code.const(a, top))
    if m.get("xorsign"):
        a, b = (code.op("and", v, code.const(v, top - 1)) for v in (a, b))
    if fmt is F64:
        _note_nans(e, widen(e, a, F64), widen(e, b, F64))
    e.dst(_extreme(e, m, fmt, a, b, sign))


def _extreme(e: Emit, m: Mods, fmt: Format, a: Value, b: Value, sign: Value) -> Value:
    code = e.code
    # As integers: negative ones in reverse order, so that the bits compare as the numbers do.
    top = 1 << (fmt.bits - 1)

    def key(v: Value) -> Value:
        fill = code.op("ashr", v, code.const(v, fmt.bits - 1))
        return code.op("xor", v, code.op("and", fill, code.const(v, top - 1)))

    name = "icmp slt" if m["op"] == "min" else "icmp sgt"
    value = code.select(code.cmp(name, key(a), key(b)), a, b)
    if m.get("xorsign"):
        value = code.op("or", value, sign)
    nan_a, nan_b = is_nan(e, a, fmt), is_nan(e, b, fmt)
    canonical_nan = code.op("or", b, code.const(b, QUIET)) if fmt is F64 else code.const(a, fmt.nan)
    if m.get("NaN"):
        return code.select(code.op("or", nan_a, nan_b), canonical_nan, value)
    lone_a, lone_b = (code.op("or", v, sign) for v in (a, b)) if m.get("xorsign") else (a, b)
    value = code.select(nan_a, lone_b, code.select(nan_b, lone_a, value))
    return code.select(code.op("and", nan_a, nan_b), canonical_nan, value)


def smaller_or_larger(e: Emit, m: Mods, fmt: Format, a: Value, b: Value) -> Value:
    """`min` or `max` of two values given as bits, without the sign rules of `.xorsign.abs`."""
    return _extreme(e, m, fmt, a, b, e.code.const(a, 0))


def copysign(e: Emit, m: Mods) -> None:
    """The magnitude of b with the sign of a."""
    fmt = FORMATS[m["type"]]
    a, b = e.src(1, fmt.bits), e.src(2, fmt.bits)
    top = 1 << (fmt.bits - 1)
    sign = e.code.op("and", a, e.code.const(a, top))
    e.dst(e.code.op("or", e.code.op("and", b, e.code.const(b, top - 1)), sign))


def testp(e: Emit, m: Mods) -> None:
    fmt = FORMATS[m["type"]]
    code = e.code
    e.refuse_guard()
    a = e.src(1, fmt.bits)
    magnitude = code.op("and", a, code.const(a, (1 << (fmt.bits - 1)) - 1))

    def test(name: str, number: int) -> Value:
        return code.cmp(f"icmp {name}", magnitude, code.const(a, number))

    infinity, smallest = fmt.exponent, 1 << fmt.fraction
    match m["test"]:
        case "finite":
            truth = test("ult", infinity)
        case "infinite":
            truth = test("eq", infinity)
        case "number":
            truth = test("ule", infinity)
        case "notanumber":
            truth = test("ugt", infinity)
        case "normal":  # PTX counts zeros as normal
            regular = code.op("and", test("uge", smallest), test("ult", infinity))
            truth = code.op("or", regular, test("eq", 0))
        case _:
            truth = code.op("and", test("ult", smallest), test("ne", 0))
    e.dst(truth)


_ORDERED = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
    "num": "ord", "nan": "uno",
}  # fmt: skip


def truth(e: Emit, m: Mods, fmt: Format, a: Value, b: Value) -> Value:
    """A comparison of two values given as bits."""
    if m.get("ftz"):
        a, b = flush(e, a, fmt), flush(e, b, fmt)
    return e.code.cmp(f"fcmp {_ORDERED[m['cmp']]}", widen(e, a, fmt), widen(e, b, fmt))


def setp(e: Emit, m: Mods) -> None:
    from reprodb.executors.model.integers import store_truth

    fmt = FORMATS[m["type"]]
    store_truth(e, m, truth(e, m, fmt, e.src(1, fmt.bits), e.src(2, fmt.bits)))


# --- Two 16-bit values in one register ---------------------------------------------------------


def halves(e: Emit, bits: Value) -> tuple[Value, Value]:
    """The low and the high half of a 32-bit value."""
    code = e.code
    return (
        code.cast("trunc", bits, "i16"),
        code.cast("trunc", code.op("lshr", bits, code.const(bits, 16)), "i16"),
    )


def join(e: Emit, low: Value, high: Value) -> Value:
    code = e.code
    wide = code.op("shl", code.cast("zext", high, "i32"), const("i32", 16, high.lanes))
    return code.op("or", wide, code.cast("zext", low, "i32"))


def _packed(e: Emit, index: int, fmt: Format, m: Mods) -> tuple[Value, Value]:
    low, high = halves(e, e.src(index, 32))
    if m.get("ftz"):
        low, high = flush(e, low, fmt), flush(e, high, fmt)
    return low, high


def packed_format(m: Mods) -> Format:
    return FORMATS[m["type"].removesuffix("x2")]


def binary_x2(name: str) -> object:
    def emit(e: Emit, m: Mods) -> None:
        fmt = packed_format(m)
        pairs = zip(_packed(e, 1, fmt, m), _packed(e, 2, fmt, m), strict=True)
        low, high = (result(e, e.code.op(name, widen(e, a, fmt), widen(e, b, fmt)), fmt, m) for a, b in pairs)
        e.dst(join(e, low, high))

    return emit


def fma_x2(e: Emit, m: Mods) -> None:
    fmt = packed_format(m)
    triples = zip(*(_packed(e, i, fmt, m) for i in (1, 2, 3)), strict=True)
    low, high = (
        result(e, _fma_in(e, fmt, "rn", *(widen(e, v, fmt) for v in triple)), fmt, m) for triple in triples
    )
    e.dst(join(e, low, high))


def extreme_x2(e: Emit, m: Mods) -> None:
    fmt = packed_format(m)
    halves_of = []
    for a, b in zip(_packed(e, 1, fmt, m), _packed(e, 2, fmt, m), strict=True):
        sign = e.code.op("and", e.code.op("xor", a, b), e.code.const(a, 0x8000))
        x, y = (e.code.op("and", v, e.code.const(v, 0x7FFF)) for v in (a, b)) if m.get("xorsign") else (a, b)
        halves_of.append(_extreme(e, m, fmt, x, y, sign))
    e.dst(join(e, *halves_of))


def sign_change_x2(e: Emit, m: Mods) -> None:
    fmt = packed_format(m)
    changed = []
    for half in _packed(e, 1, fmt, m):
        other = (
            e.code.op("xor", half, e.code.const(half, 0x8000))
            if m["op"] == "neg"
            else e.code.op("and", half, e.code.const(half, 0x7FFF))
        )
        changed.append(e.code.select(is_nan(e, half, fmt), e.code.const(half, fmt.nan), other))
    e.dst(join(e, *changed))


def setp_x2(e: Emit, m: Mods) -> None:
    """Compares both halves, into two predicates `p|q`."""
    fmt = packed_format(m)
    to = e.operand(0)
    if not isinstance(to, Pair):
        raise e.refuse("has one destination")
    other = e.src(3, 1) if m.get("bool") else None
    pairs = zip(halves(e, e.src(1, 32)), halves(e, e.src(2, 32)), strict=True)
    for target, (a, b) in zip((to.first, to.second), pairs, strict=True):
        value = truth(e, m, fmt, a, b)
        e.assign(target, value if other is None else e.code.op(m["bool"], value, other))
