"""`atom` and `red`: read-modify-write by one lane after another, in the order of lanes.

f32 additions in global memory flush subnormals to zeros of their sign (what `RED…FTZ` does, whatever the
flags); in shared memory they are kept. NaNs of f64 are those that an H200 leaves.
"""

from __future__ import annotations

from reprodb.executors.model import floats, keeping, layout
from reprodb.executors.model.emit import B, Emit, L, Mods, W
from reprodb.executors.model.floats import BF16, F16, F32, F64, FORMATS, Format
from reprodb.executors.model.llvm import WARP, Code, Value, const
from reprodb.executors.model.memory import address_of, find, space_of
from reprodb.executors.model.ptx import Mem, Operand, Sink, Vec


def atom(e: Emit, m: Mods) -> None:
    """`atom d, [a], b{, c}`: d is what was there before."""
    _atomic(e, m, e.operand(0), 1)


def red(e: Emit, m: Mods) -> None:
    """`red [a], b`: the same without a result."""
    _atomic(e, m, None, 0)


def _atomic(e: Emit, m: Mods, to: Operand | None, at: int) -> None:
    operand = e.memory(at)
    space = space_of(e, m, operand)
    operation, kind = m["op"], m["type"]
    bits = 32 if kind.endswith("x2") else int("".join(c for c in kind if c.isdigit()))
    values = e.operand(at + 1)
    if isinstance(values, Vec):
        for i, item in enumerate(values.items):
            part = to.items[i] if isinstance(to, Vec) else None
            _one(e, operation, kind, bits, space, operand, i * bits // 8, [item], part)
        return
    arguments: list[Operand] = [values]
    if operation == "cas":
        arguments.append(e.operand(at + 2))
    _one(e, operation, kind, bits, space, operand, 0, arguments, to)


def _one(
    e: Emit, operation: str, kind: str, bits: int, space: str, address: Mem, skip: int,
    arguments: list[Operand], to: Operand | None,
) -> None:  # fmt: skip
    code = e.code
    base, offset = address_of(e, address, space)
    if offset + skip:
        base = code.op("add", base, code.const(base, offset + skip))
    base = code.resize(code.splat(base), "i64")
    site = e.site(space, bits // 8, writes=True)
    values = [e.value(a, bits, WARP) for a in arguments]
    wanted = to is not None and not e.unread(to)
    helper = _helper(e, operation, kind, bits, space, wanted=wanted)
    slots = Value("ptr", 1, "%slot.addresses"), Value("ptr", 1, "%slot.data")
    code.store(base, slots[0], 64)
    step = WARP * bits // 8
    for i, value in enumerate(values):
        code.store(value, code.at(slots[1], i * step), min(64, step))
    keeping.note(e, space, keeping.READ | keeping.WRITE if wanted else keeping.WRITE, bits // 8, slots[0])
    keeping.keep(e, space, helper, None, site, 1, len(values) * step, slots)
    code.invoke(helper, W, B, L, site, e.mask(), *slots)
    e.leave_on_error()
    if to is not None and wanted and not isinstance(to, Sink):
        e.assign(to, code.load(f"i{bits}", code.at(slots[1], 2 * step), WARP, min(64, step)))


def _helper(e: Emit, operation: str, kind: str, bits: int, space: str, *, wanted: bool) -> str:
    """The function for one operation: operands at data[0] and data[1], old values go to data[2].

    Consecutive lanes that meet at one address keep its value in a register between them.
    """
    helpers = e.code.helpers
    name = f"atom.{space}.{operation}.{kind}" + (".old" if wanted else "")
    if helpers.known(name):
        return name
    finder = find(space).text
    helpers.declare("declare i32 @llvm.cttz.i32(i32, i1)")
    code = Code(helpers)
    inner = Emit(code, e.frame, full=True, fail="done")
    inner.ins, inner.lanes = e.ins, 1
    size = bits // 8
    word = f"i{bits}"
    old = Value(word, 1, "%old")
    step = WARP * size

    def operand(index: int) -> Value:
        return code.load(word, code.at(Value("ptr", 1, "%data"), code.define(
            f"add i64 %own, {index * step}", "i64")), 1, size)  # fmt: skip

    code.label("apply")
    code.line(f"%old = phi {word} [ %kept, %loop ], [ %taken, %read ]")
    code.line("%host = phi ptr [ %last, %loop ], [ %place, %read ]")
    code.line("%own = mul i64 %lanew, " + str(size))
    b = operand(0)
    c = operand(1) if operation == "cas" else b
    adds = operation == "add" and kind in ("f32", "f64")
    if adds and not wanted:
        new = _quick_add(inner, kind, space, old, b)
    elif adds and space == "generic":
        new = _add_anywhere(inner, kind, old, b)
    else:
        new = combine(inner, operation, kind, old, b, c, in_global=space != "shared")
    if wanted:
        code.store(
            old, code.at(Value("ptr", 1, "%data"), code.define(f"add i64 %own, {2 * step}", "i64")), size
        )
    code.line(f"%new = bitcast {new.typed} to {word}")
    code.jump("next")
    body = "\n".join(code.lines)
    reading = Code(helpers)
    inner.code = reading
    taken = Value(word, 1, "%fresh")
    if adds and not wanted and kind == "f32":
        taken = _flush_in_global(inner, space, taken)
    reading.line(f"%taken = bitcast {taken.typed} to {word}")
    meeting = _meeting(code, FORMATS[kind], finder) if adds and not wanted else "  br label %each"
    text = f"""
define internal void @{name}(ptr %w, ptr %b, ptr %l, i32 %site, i32 %mask, ptr %addrs, ptr %data) noinline {{
entry:
  %sums = alloca <32 x {word}>, align 64
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %leave, label %some
some:
{meeting}
each:
  br label %loop
loop:
  %left = phi i32 [ %mask, %each ], [ %rest, %next ]
  %last = phi ptr [ null, %each ], [ %host, %next ]
  %lasta = phi i64 [ -1, %each ], [ %a, %next ]
  %kept = phi {word} [ 0, %each ], [ %new, %next ]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %lanew = zext i32 %lane to i64
  %ap = getelementptr i64, ptr %addrs, i64 %lanew
  %a = load i64, ptr %ap, align 8
  %equal = icmp eq i64 %a, %lasta
  %begun = icmp ne ptr %last, null
  %same = and i1 %equal, %begun
  br i1 %same, label %apply, label %move
move:
  %place = call ptr {finder}(ptr %w, ptr %b, ptr %l, i32 %site, i32 %lane, i64 %a,
                             i64 {size}, i64 {size}, i1 true)
  br i1 %begun, label %flush, label %check
flush:
  store {word} %kept, ptr %last, align {size}
  br label %check
check:
  %bad = icmp eq ptr %place, null
  br i1 %bad, label %fault, label %read
fault:
  call void @fail(ptr %w, ptr %l, i32 {layout.E_ACCESS}, i32 %site, i32 %lane, i64 %a)
  br label %leave
read:
  %fresh = load {word}, ptr %place, align {size}
{chr(10).join(line.replace("%v", "%r") for line in reading.lines)}
  br label %apply
{body}
next:
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %loop
done:
  store {word} %new, ptr %host, align {size}
  br label %leave
leave:
  ret void
}}
"""
    return helpers.function(name, text)


def _meeting(code: Code, fmt: Format, finder: str) -> str:
    """32 lanes that add to one address: one sum after another, without a look at each.

    All is done again lane by lane where an operand is subnormal, or a sum on the way tiny, infinite or NaN.
    """
    word, size = f"i{fmt.bits}", fmt.bits // 8
    real = "float" if fmt is F32 else "double"
    wide, exponent, fraction = f"<32 x {word}>", fmt.exponent, (1 << fmt.fraction) - 1
    code.helpers.declare("declare i32 @llvm.cttz.i32(i32, i1)")
    lines = [
        "%whole = icmp eq i32 %mask, -1",
        "br i1 %whole, label %meet, label %each",
        "meet:",
        "%all = load <32 x i64>, ptr %addrs, align 64",
        "%one = load i64, ptr %addrs, align 64",
        "%one1 = insertelement <32 x i64> poison, i64 %one, i64 0",
        "%ones = shufflevector <32 x i64> %one1, <32 x i64> poison, <32 x i32> zeroinitializer",
        "%differ = icmp ne <32 x i64> %all, %ones",
        "%differs = bitcast <32 x i1> %differ to i32",
        "%meets = icmp eq i32 %differs, 0",
        "br i1 %meets, label %meet.find, label %each",
        "meet.find:",
        f"%there = call ptr {finder}(ptr %w, ptr %b, ptr %l, i32 %site, i32 0, i64 %one, i64 {size}, "
        f"i64 {size}, i1 true)",
        "%nowhere = icmp eq ptr %there, null",
        "br i1 %nowhere, label %each, label %meet.look",
        "meet.look:",
        f"%before = load {word}, ptr %there, align {size}",
        f"%operands = load {wide}, ptr %data, align 64",
        f"%exponents = and {wide} %operands, splat ({word} {exponent})",
        f"%fractions = and {wide} %operands, splat ({word} {fraction})",
        f"%small = icmp eq {wide} %exponents, zeroinitializer",
        f"%some.bits = icmp ne {wide} %fractions, zeroinitializer",
        "%subnormal = and <32 x i1> %small, %some.bits",
        "%subnormals = bitcast <32 x i1> %subnormal to i32",
        f"%before.e = and {word} %before, {exponent}",
        f"%before.f = and {word} %before, {fraction}",
        f"%before.small = icmp eq {word} %before.e, 0",
        f"%before.bits = icmp ne {word} %before.f, 0",
        "%before.subnormal = and i1 %before.small, %before.bits",
        "%any = icmp ne i32 %subnormals, 0",
        "%flushes = or i1 %any, %before.subnormal",
        "br i1 %flushes, label %each, label %meet.add",
        "meet.add:",
        f"%t0 = bitcast {word} %before to {real}",
    ]
    for i in range(WARP):
        lines += [
            f"%o{i}.p = getelementptr {real}, ptr %data, i64 {i}",
            f"%o{i} = load {real}, ptr %o{i}.p, align {size}",
            f"%t{i + 1} = fadd {real} %t{i}, %o{i}",
            f"%s{i}.p = getelementptr {real}, ptr %sums, i64 {i}",
            f"store {real} %t{i + 1}, ptr %s{i}.p, align {size}",
        ]
    lines += [
        f"%each.sum = load {wide}, ptr %sums, align 64",
        f"%ahead = add {wide} %each.sum, splat ({word} {1 << fmt.fraction})",
        f"%odd.bits = and {wide} %ahead, splat ({word} {exponent & ~(1 << fmt.fraction)})",
        f"%odd = icmp eq {wide} %odd.bits, zeroinitializer",
        "%odds = bitcast <32 x i1> %odd to i32",
        "%plain = icmp eq i32 %odds, 0",
        "br i1 %plain, label %meet.done, label %each",
        "meet.done:",
        f"store {real} %t{WARP}, ptr %there, align {size}",
        "ret void",
    ]
    return "\n".join(lines)


def _in_shared(e: Emit) -> Value:
    """Whether the generic address at hand lies in shared memory."""
    window = e.code.define("lshr i64 %a, 32", "i64")
    return e.code.cmp("icmp eq", window, const("i64", layout.SHARED_WINDOW >> 32))


def _flush_in_global(e: Emit, space: str, bits: Value) -> Value:
    if space == "shared":
        return bits
    flushed = floats.flush(e, bits, F32)
    return flushed if space == "global" else e.code.select(_in_shared(e), bits, flushed)


def _quick_add(e: Emit, kind: str, space: str, old: Value, b: Value) -> Value:
    """An addition whose old value nobody wants: the plain sum, unless it is zero, tiny, infinite or NaN.

    One addition after another waits for this value, so that nothing else may stand in its way. An f32 in
    global memory has been flushed when it was read, and after each addition.
    """
    code, fmt = e.code, FORMATS[kind]
    if fmt is F32:
        b = _flush_in_global(e, space, b)
    total = code.cast(
        "bitcast", code.op("fadd", floats.widen(e, old, fmt), floats.widen(e, b, fmt)), old.kind
    )
    ahead = code.op("add", total, code.const(total, 1 << fmt.fraction))
    special = code.op("and", ahead, code.const(total, fmt.exponent & ~(1 << fmt.fraction)))
    odd = code.cmp("icmp eq", special, code.const(total, 0))
    plain, settle, settled = (code.fresh(s) for s in ("plain", "settle", "settled"))
    code.jump(plain)
    code.label(plain)
    code.branch(odd, settle, settled)
    code.label(settle)
    if space == "generic":
        exact = _add_anywhere(e, kind, old, b)
    else:
        exact = combine(e, "add", kind, old, b, b, in_global=space == "global")
    done = code.fresh("done")
    code.jump(done)
    code.label(done)
    code.jump(settled)
    code.label(settled)
    return code.define(f"phi {old.type} [ {total.text}, %{plain} ], [ {exact.text}, %{done} ]", old.kind)


def _add_anywhere(e: Emit, kind: str, old: Value, b: Value) -> Value:
    """An addition through a generic address: what the memory is decides on subnormals and NaNs."""
    code, shared = e.code, _in_shared(e)
    here = combine(e, "add", kind, old, b, b, in_global=False)
    there = combine(e, "add", kind, old, b, b, in_global=True)
    return code.select(shared, here, there)


def combine(e: Emit, operation: str, kind: str, old: Value, b: Value, c: Value, *, in_global: bool) -> Value:
    """What an atomic operation makes of the old value and its operands."""
    code = e.code
    if kind in FORMATS or kind.endswith("x2"):
        return _combine_floats(e, operation, kind, old, b, in_global=in_global)
    match operation:
        case "exch":
            return b
        case "cas":
            return code.select(code.cmp("icmp eq", old, b), c, old)
        case "inc":
            wrap = code.cmp("icmp uge", old, b)
            return code.select(wrap, code.const(old, 0), code.op("add", old, code.const(old, 1)))
        case "dec":
            wrap = code.op("or", code.cmp("icmp eq", old, code.const(old, 0)), code.cmp("icmp ugt", old, b))
            return code.select(wrap, b, code.op("sub", old, code.const(old, 1)))
        case "min" | "max":
            return code.intrinsic(("s" if kind.startswith("s") else "u") + operation, old, b)
        case _:
            return code.op(operation, old, b)


def _combine_floats(e: Emit, operation: str, kind: str, old: Value, b: Value, *, in_global: bool) -> Value:
    if kind.endswith("x2"):
        fmt = F16 if kind == "f16x2" else BF16
        pairs = zip(floats.halves(e, old), floats.halves(e, b), strict=True)
        return floats.join(e, *(_float(e, operation, fmt, x, y, in_global=False) for x, y in pairs))
    return _float(e, operation, FORMATS[kind], old, b, in_global=in_global)


def _float(e: Emit, operation: str, fmt: floats.Format, old: Value, b: Value, *, in_global: bool) -> Value:
    """`add`, or a comparison by value. In global memory f32 is flushed and an f64 NaN stays as it is."""
    code = e.code
    if operation in ("min", "max"):
        return floats.smaller_or_larger(e, {"op": operation}, fmt, old, b)
    m: Mods = {"ftz": "ftz"} if in_global and fmt is F32 else {}
    if m:
        old, b = floats.flush(e, old, fmt), floats.flush(e, b, fmt)
    x, y = floats.widen(e, old, fmt), floats.widen(e, b, fmt)
    total = floats.result(e, code.op("fadd", x, y), fmt, m, y, x)
    if in_global and fmt is F64:
        total = code.select(code.cmp("fcmp uno", x, x), old, total)
        total = code.select(code.cmp("fcmp uno", y, y), b, total)
    return total
