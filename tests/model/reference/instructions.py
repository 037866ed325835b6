"""What each instruction does to the one thread that executes it; one explicit table at the end."""

from __future__ import annotations

from collections.abc import Callable

from tests.model.reference import bits, floats
from tests.model.reference.bits import mask, signed
from tests.model.reference.errors import Refused, Trap
from tests.model.reference.exact import FORMATS
from tests.model.reference.memory import LOCAL, SHARED, WINDOW
from tests.model.reference.parse import BYTES, Ins, Operand
from tests.model.reference.thread import Thread, width_of

SPACES = ("global", "shared", "local", "const", "param")


def value(t: Thread, operand: Operand, type_: str) -> int:
    """An integer operand as the number that its type means."""
    raw = t.read(operand, type_)
    return signed(raw, width_of(type_)) if type_[0] == "s" else raw


def refuse(ins: Ins) -> Refused:
    return Refused(f"the interpreter does not know {ins.text!r}")


# --- Arithmetic --------------------------------------------------------------------------------


def add_sub(t: Thread, ins: Ins) -> None:
    """add, sub, addc, subc: floats, integers with saturation, and the carry chain."""
    if floats.is_float(ins.type):
        return float_op(t, ins)
    type_, width = ins.type, width_of(ins.type)
    a, b = value(t, ins.args[1], type_), value(t, ins.args[2], type_)
    minus = ins.op.startswith("sub")
    total = a - b if minus else a + b
    if ins.op.endswith("c"):
        total += -t.frame.carry if minus else t.frame.carry
    if "cc" in ins.mods:
        ua, ub, carry = a & mask(width), b & mask(width), t.frame.carry if ins.op.endswith("c") else 0
        t.frame.carry = int(ua < ub + carry) if minus else int(ua + ub + carry > mask(width))
    if "sat" in ins.mods:
        total = max(-(1 << width - 1), min((1 << width - 1) - 1, total))
    return t.write(ins.args[0], type_, total)


def product(t: Thread, ins: Ins) -> None:
    """mul, mad, madc of integers: lo, hi, wide, and floats."""
    if floats.is_float(ins.type):
        return float_op(t, ins)
    type_, width = ins.type, width_of(ins.type)
    if ins.op.endswith("24"):
        narrow = [
            signed(t.read(x, type_), 24) if type_ == "s32" else t.read(x, type_) & mask(24)
            for x in ins.args[1:3]
        ]
        full = narrow[0] * narrow[1]
        total = (full >> 16 if "hi" in ins.mods else full) & mask(32)
    else:
        full = value(t, ins.args[1], type_) * value(t, ins.args[2], type_)
        total = full >> width if "hi" in ins.mods else full
    result = f"{type_[0]}{2 * width}" if "wide" in ins.mods else type_
    if ins.op.startswith("mad"):
        total &= mask(width_of(result))
        addend = t.read(ins.args[3], result)
        carry = t.frame.carry if ins.op == "madc" else 0
        if "cc" in ins.mods:
            t.frame.carry = int(total + addend + carry > mask(width))
        total = total + addend + carry
        if "sat" in ins.mods:
            raise refuse(ins)
    return t.write(ins.args[0], result, total)


def divide(t: Thread, ins: Ins) -> None:
    if floats.is_float(ins.type):
        return float_op(t, ins)
    a, b = value(t, ins.args[1], ins.type), value(t, ins.args[2], ins.type)
    return t.write(ins.args[0], ins.type, bits.quotient(a, b) if ins.op == "div" else bits.remainder(a, b))


def float_op(t: Thread, ins: Ins) -> None:
    args = tuple(t.read(a, ins.type) for a in ins.args[1:])
    t.write(ins.args[0], ins.type, floats.arithmetic(ins.op, ins.mods, args))


def approximate(t: Thread, ins: Ins) -> None:
    raise Refused(f"{ins.text!r}: PTX does not pin its bits")


def min_max(t: Thread, ins: Ins) -> None:
    type_ = ins.type
    if floats.is_float(type_):
        args = tuple(t.read(a, type_) for a in ins.args[1:])
        if ins.args[1] == ins.args[2] and ins.mods in (("f16",), ("f32",), ("f64",)):
            return t.write(ins.args[0], type_, args[0])  # ptxas makes a copy of it
        return t.write(ins.args[0], type_, floats.extremum(ins.op, ins.mods, args))
    if "relu" in ins.mods or type_.endswith("x2"):
        raise refuse(ins)
    pick = min if ins.op == "min" else max
    return t.write(ins.args[0], type_, pick(value(t, ins.args[1], type_), value(t, ins.args[2], type_)))


def neg_abs(t: Thread, ins: Ins) -> None:
    if floats.is_float(ins.type):
        return t.write(
            ins.args[0], ins.type, floats.sign_only(ins.op, ins.mods, t.read(ins.args[1], ins.type))
        )
    a = value(t, ins.args[1], ins.type)
    return t.write(ins.args[0], ins.type, -a if ins.op == "neg" else abs(a))


def copy_sign(t: Thread, ins: Ins) -> None:
    f = FORMATS[ins.type]
    a, b = t.read(ins.args[1], ins.type), t.read(ins.args[2], ins.type)
    t.write(ins.args[0], ins.type, (a & f.sign) | (b & ~f.sign))


def test_property(t: Thread, ins: Ins) -> None:
    t.write(ins.args[0], "pred", int(floats.test_property(ins.mods, t.read(ins.args[1], ins.type))))


def absolute_difference(t: Thread, ins: Ins) -> None:
    a, b, c = (value(t, x, ins.type) for x in ins.args[1:])
    t.write(ins.args[0], ins.type, abs(a - b) + c)


# --- Bits --------------------------------------------------------------------------------------


def logic(t: Thread, ins: Ins) -> None:
    a = t.read(ins.args[1], ins.type)
    if ins.op == "not":
        return t.write(ins.args[0], ins.type, ~a & mask(width_of(ins.type)))
    if ins.op == "cnot":
        return t.write(ins.args[0], ins.type, int(a == 0))
    b = t.read(ins.args[2], ins.type)
    return t.write(ins.args[0], ins.type, {"and": a & b, "or": a | b, "xor": a ^ b}[ins.op])


def shift(t: Thread, ins: Ins) -> None:
    n, width = t.read(ins.args[2], "u32"), width_of(ins.type)
    if ins.args[2].kind == "imm" and width == 16:
        n &= 0xFFFF  # ptxas cuts constants to the type's width
    if ins.op == "shl":
        return t.write(ins.args[0], ins.type, bits.shift_left(t.read(ins.args[1], ins.type), n, width))
    return t.write(ins.args[0], ins.type, bits.shift_right(value(t, ins.args[1], ins.type), n))


def funnel(t: Thread, ins: Ins) -> None:
    a, b, c = (t.read(x, "u32") for x in ins.args[1:])
    t.write(ins.args[0], "b32", bits.funnel(a, b, c, ins.mods[0] == "l", ins.mods[1] == "clamp"))


def bit_field(t: Thread, ins: Ins) -> None:
    width = width_of(ins.type)
    if ins.op == "bfe":
        a, position, length = (
            t.read(ins.args[1], ins.type),
            t.read(ins.args[2], "u32"),
            t.read(ins.args[3], "u32"),
        )
        return t.write(ins.args[0], ins.type, bits.extract(a, position, length, width, ins.type[0] == "s"))
    a, b = t.read(ins.args[1], ins.type), t.read(ins.args[2], ins.type)
    position, length = t.read(ins.args[3], "u32"), t.read(ins.args[4], "u32")
    return t.write(ins.args[0], ins.type, bits.insert(a, b, position, length, width))


def count(t: Thread, ins: Ins) -> None:
    a, width = t.read(ins.args[1], ins.type), width_of(ins.type)
    if ins.op == "brev":
        return t.write(ins.args[0], ins.type, bits.reverse(a, width))
    if ins.op == "bfind":
        top = bits.find_top(a, width, ins.type[0] == "s", "shiftamt" in ins.mods)
        return t.write(ins.args[0], "u32", top)
    return t.write(ins.args[0], "u32", a.bit_count() if ins.op == "popc" else width - a.bit_length())


def lop3(t: Thread, ins: Ins) -> None:
    target = ins.args[0]
    a, b, c = (t.read(x, "b32") for x in ins.args[1:4])
    result = bits.lop3(a, b, c, t.read(ins.args[4], "u32"))
    if target.kind == "pair":  # lop3.or.b32 d|p, a, b, c, table, q
        q, some = t.read(ins.args[5], "pred"), int(result != 0)
        t.write(target.items[1], "pred", some | q if ins.mods[0] == "or" else some & q)
        target = target.items[0]
    t.write(target, "b32", result)


def permute(t: Thread, ins: Ins) -> None:
    a, b, c = (t.read(x, "b32") for x in ins.args[1:])
    t.write(ins.args[0], "b32", bits.permute(a, b, c, ins.mods[1] if len(ins.mods) > 1 else ""))


def dot(t: Thread, ins: Ins) -> None:
    a, b = t.read(ins.args[1], "u32"), t.read(ins.args[2], "u32")
    a_signed, b_signed = ins.mods[-2] == "s32", ins.mods[-1] == "s32"
    c = value(t, ins.args[3], "s32" if a_signed or b_signed else "u32")
    if ins.op == "dp4a":
        total = bits.dot_bytes(a, b, c, a_signed=a_signed, b_signed=b_signed)
    else:
        total = bits.dot_halves(a, b, c, a_signed=a_signed, b_signed=b_signed, high=ins.mods[0] == "hi")
    t.write(ins.args[0], "u32", total)


# --- Comparing and choosing --------------------------------------------------------------------


def related(t: Thread, ins: Ins, first: int) -> bool:
    """The comparison of setp and set: operands `first` and the next, of the last type."""
    type_, relation = ins.type, ins.mods[0]
    a, b = t.read(ins.args[first], type_), t.read(ins.args[first + 1], type_)
    if type_ in FORMATS:
        return floats.compare(relation, ins.mods, a, b)
    return bits.compare(relation, a, b, width_of(type_), type_[0] == "s")


def combined(t: Thread, ins: Ins, holds: bool) -> bool:
    """With `.and`, `.or`, `.xor`: the comparison and a further predicate, the last operand."""
    word = next((m for m in ins.mods[1:] if m in ("and", "or", "xor")), "")
    if not word:
        return holds
    c = bool(t.read(ins.args[-1], "pred"))
    return {"and": holds and c, "or": holds or c, "xor": holds != c}[word]


def set_predicate(t: Thread, ins: Ins) -> None:
    target = ins.args[0]
    if floats.halves(ins.type):
        element = floats.halves(ins.type)
        a, b = t.read(ins.args[1], ins.type), t.read(ins.args[2], ins.type)
        mods = (*ins.mods[:-1], element)
        low = floats.compare(ins.mods[0], mods, a & 0xFFFF, b & 0xFFFF)
        high = floats.compare(ins.mods[0], mods, a >> 16, b >> 16)
        t.write(target.items[0], "pred", int(combined(t, ins, low)))
        return t.write(target.items[1], "pred", int(combined(t, ins, high)))
    holds = related(t, ins, 1)
    first, second = target.items if target.kind == "pair" else (target, None)
    p, q = combined(t, ins, holds), combined(t, ins, not holds)
    t.write(first, "pred", int(p))
    if second is not None:
        t.write(second, "pred", int(q))
    return None


def set_value(t: Thread, ins: Ins) -> None:
    if floats.halves(ins.type):
        raise refuse(ins)
    t.write(ins.args[0], ins.mods[-2], floats.one_if(combined(t, ins, related(t, ins, 1)), ins.mods[-2]))


def select(t: Thread, ins: Ins) -> None:
    chosen = ins.args[1] if t.read(ins.args[3], "pred") else ins.args[2]
    t.write(ins.args[0], ins.type, t.read(chosen, ins.type))


def select_by_sign(t: Thread, ins: Ins) -> None:
    type_, kind = ins.mods[-2], ins.mods[-1]
    c = t.read(ins.args[3], kind)
    first = floats.compare("ge", ins.mods, c, 0) if kind == "f32" else signed(c, 32) >= 0
    t.write(ins.args[0], type_, t.read(ins.args[1] if first else ins.args[2], type_))


# --- Moving ------------------------------------------------------------------------------------


def move(t: Thread, ins: Ins) -> None:
    t.write(ins.args[0], ins.type, t.read(ins.args[1], ins.type))


def convert(t: Thread, ins: Ins) -> None:
    if ins.mods[0] == "pack":
        raise refuse(ins)
    args = tuple(t.read(a, ins.type) for a in ins.args[1:])
    target = ins.mods[-2]
    t.write(ins.args[0], target, floats.convert(ins.mods, args))


def convert_address(t: Thread, ins: Ins) -> None:
    window = {"shared": SHARED, "local": LOCAL}.get(next(m for m in ins.mods if m in SPACES), 0)
    a = t.read(ins.args[1], ins.type)
    t.write(ins.args[0], ins.type, a - window if "to" in ins.mods else a + window)


def is_space(t: Thread, ins: Ins) -> None:
    a = t.read(ins.args[1], "b64")
    shared, local = SHARED <= a < SHARED + WINDOW, LOCAL <= a < LOCAL + WINDOW
    answer = {"shared": shared, "local": local, "global": not shared and not local}
    if ins.mods[0] not in answer:
        raise refuse(ins)
    t.write(ins.args[0], "pred", int(answer[ins.mods[0]]))


def space_of(ins: Ins) -> str:
    return next((m.split("::")[0] for m in ins.mods if m.split("::")[0] in SPACES), "generic")


def vector_of(ins: Ins) -> int:
    return next((int(m[1:]) for m in ins.mods if m in ("v2", "v4", "v8")), 1)


def load(t: Thread, ins: Ins) -> None:
    size, elements = BYTES[ins.type], vector_of(ins)
    data, at = t.bytes_at(space_of(ins), ins.args[1], size * elements)
    targets = ins.args[0].items if elements > 1 else (ins.args[0],)
    values = [int.from_bytes(data[at + size * i : at + size * (i + 1)], "little") for i in range(elements)]
    for target, bits_ in zip(targets, values, strict=True):
        t.write(target, ins.type, bits_)


def store(t: Thread, ins: Ins) -> None:
    size, elements = BYTES[ins.type], vector_of(ins)
    data, at = t.bytes_at(space_of(ins), ins.args[0], size * elements)
    sources = ins.args[1].items if elements > 1 else (ins.args[1],)
    for i, source in enumerate(sources):
        data[at + size * i : at + size * (i + 1)] = t.read(source, ins.type).to_bytes(size, "little")


ATOMIC = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")


def atomic(t: Thread, ins: Ins) -> None:
    """atom and red: read, combine, write back; atom returns what was there before."""
    returns = ins.op == "atom"
    args = ins.args[1:] if returns else ins.args
    type_, size, op = ins.type, BYTES[ins.type], next(m for m in ins.mods if m in ATOMIC)
    if vector_of(ins) > 1:
        raise refuse(ins)
    space = space_of(ins)
    data, at = t.bytes_at(space, args[0], size)
    old = int.from_bytes(data[at : at + size], "little")
    b = t.read(args[1], type_)
    if op == "add" and type_ in FORMATS:
        new = floats.atomic_sum(FORMATS[type_], old, b, in_global=t.is_global(space, args[0]))
    elif op == "add" and floats.is_float(type_):
        new = floats.arithmetic("add", (type_,), (old, b))
    elif op == "cas":
        new = t.read(args[2], type_) if old == b else old
    elif op == "inc":
        new = 0 if old >= b else old + 1
    elif op == "dec":
        new = b if old == 0 or old > b else old - 1
    elif op in ("min", "max"):
        width = width_of(type_)
        pick = min if op == "min" else max
        new = pick(old, b, key=lambda v: signed(v, width) if type_[0] == "s" else v)
    else:
        new = {"add": old + b, "and": old & b, "or": old | b, "xor": old ^ b, "exch": b}[op]
    data[at : at + size] = (new & mask(8 * size)).to_bytes(size, "little")
    if returns:
        t.write(ins.args[0], type_, old)


# --- Going elsewhere ---------------------------------------------------------------------------


def branch(t: Thread, ins: Ins) -> None:
    t.frame.at = t.frame.function.labels[ins.args[0].text]


def branch_by_table(t: Thread, ins: Ins) -> None:
    table = t.frame.function.tables[ins.args[1].text]
    index = t.read(ins.args[0], "u32")
    if index >= len(table):
        raise Trap(f"branch {index} of a table of {len(table)}")
    t.frame.at = t.frame.function.labels[table[index]]


def call(t: Thread, ins: Ins) -> None:
    """call (result), function, (arguments): parameters are copied, by position, both ways."""
    args = list(ins.args)
    results = args.pop(0).items if args[0].kind == "vec" else ()
    target, given = args[0], args[1].items if len(args) > 1 else ()
    if target.kind != "sym" or target.text not in t.block.module.functions:
        raise refuse(ins)
    function = t.block.module.functions[target.text]
    caller = t.frame
    params = {p.name: bytearray(caller.params[a.text]) for p, a in zip(function.params, given, strict=True)}
    t.enter(function, params)
    t.frame.params.update(
        {r.name: caller.params[a.text] for r, a in zip(function.results, results, strict=True)}
    )


def leave(t: Thread, ins: Ins) -> None:
    t.leave()


def end(t: Thread, ins: Ins) -> None:
    t.frames.clear()
    t.done = True


def trap(t: Thread, ins: Ins) -> None:
    raise Trap("trap")


def nothing(t: Thread, ins: Ins) -> None:
    """Fences and hints: this interpreter's memory is in order already."""


TABLE: dict[str, Callable[[Thread, Ins], None]] = {
    "abs": neg_abs, "add": add_sub, "addc": add_sub, "and": logic, "applypriority": nothing, "atom": atomic,
    "bfe": bit_field, "bfi": bit_field, "bfind": count, "bra": branch, "brev": count, "brx": branch_by_table,
    "call": call, "clz": count, "cnot": logic, "copysign": copy_sign, "cos": approximate, "cvt": convert,
    "cvta": convert_address, "discard": nothing, "div": divide, "dp2a": dot, "dp4a": dot, "ex2": approximate,
    "exit": end, "fence": nothing, "fma": float_op, "isspacep": is_space, "ld": load, "ldu": load,
    "lg2": approximate, "lop3": lop3, "mad": product, "mad24": product, "madc": product, "max": min_max,
    "membar": nothing, "min": min_max, "mov": move, "mul": product, "mul24": product, "nanosleep": nothing,
    "neg": neg_abs, "not": logic, "or": logic, "popc": count, "prefetch": nothing, "prefetchu": nothing,
    "prmt": permute, "rcp": float_op, "red": atomic, "rem": divide, "ret": leave, "rsqrt": approximate,
    "sad": absolute_difference, "selp": select, "set": set_value, "setp": set_predicate, "shf": funnel,
    "shl": shift, "shr": shift, "sin": approximate, "slct": select_by_sign, "sqrt": float_op, "st": store,
    "sub": add_sub, "subc": add_sub, "tanh": approximate, "testp": test_property, "trap": trap, "xor": logic,
}  # fmt: skip
