"""Loads and stores: state spaces, bounds, alignment, and what lies where on the host.

Every access is checked against the exact extent of the buffer, shared or local memory that it meets.
A warp whose 32 lanes read or write one after another takes one vector access; all else goes through a
helper function, which looks at the lanes' lowest and highest address first and at each lane last.
"""

from __future__ import annotations

from reprodb.executors.model import keeping, layout
from reprodb.executors.model.emit import B, Emit, L, Mods, W
from reprodb.executors.model.layout import AHEAD
from reprodb.executors.model.llvm import BITS, WARP, Value, const, type_of, vector
from reprodb.executors.model.ptx import Mem, Operand, Reg, Sink, Sym, Vec

HOST_ALIGN = 16  # what the host's allocations are aligned to at least


def find(space: str) -> Value:
    """The function that finds host addresses of a state space. Constants lie among the global variables."""
    return Value("ptr", 1, f"@find.{'global' if space == 'const' else space}")


def _stride(e: Emit, space: str) -> Value:
    """How far one lane's memory lies behind that of the lane before."""
    return const("i64", e.frame.local_bytes if space == "local" else 0)


# --- Addresses ---------------------------------------------------------------------------------


def space_of(e: Emit, m: Mods, address: Mem) -> str:
    """The state space of an access: as the opcode says, else generic."""
    return (m.get("space") or "generic").removesuffix("::cta").removesuffix("::entry").removesuffix("::func")


def address_of(e: Emit, address: Mem, space: str) -> tuple[Value, int]:
    """Base and offset of an address. The base is a scalar where the whole warp shares it."""
    match address.base:
        case Reg(name) if name in e.frame.registers:
            return e.read(name), address.offset
        case Sym(name):
            where, number = e.space_of(name), e.address_of(name)
            if where != space and not (space == "generic" and where in ("global", "const")):
                raise e.refuse(f"reaches {name}, a variable of .{where}, through .{space}")
            return const("i64", number + address.offset), 0
        case other:
            return e.value(other, 64, 1), address.offset


def _full_address(e: Emit, base: Value, offset: int) -> Value:
    """The address of every lane in 64 bits; shared and parameter addresses may be held in 32."""
    code = e.code
    if offset:
        base = code.op("add", base, code.const(base, offset))
    return code.resize(base, "i64")


def _may_be_row(e: Emit, space: str) -> bool:
    """Whether all lanes may take one vector access; what is recorded goes through the helpers alone."""
    plain = e.full and e.ins.guard is None and not e.frame.recorded
    return plain and space in ("global", "generic", "shared")


def _slots(e: Emit) -> tuple[Value, Value]:
    """The stack slots through which helpers get addresses and elements."""
    return Value("ptr", 1, "%slot.addresses"), Value("ptr", 1, "%slot.data")


def _in_a_row(e: Emit, base: Value, step: int) -> tuple[Value, Value]:
    """Lane 0's base, and whether the lanes follow each other `step` bytes apart."""
    code = e.code
    first = code.define(f"extractelement {base.typed}, i64 0", base.kind)
    want = code.op("add", code.splat(first), vector(base.kind, [i * step for i in range(WARP)]))
    differ = code.bits(code.cmp("icmp ne", want, base))
    return first, code.cmp("icmp eq", differ, const("i32", 0))


def _fast_host(e: Emit, space: str, site: Value, first: Value, step: int, align: int) -> tuple[Value, Value]:
    """The host address of a row of 32, and whether all of it may be accessed."""
    code = e.code
    end = code.op("add", first, const("i64", WARP * step))
    low = code.op("and", first, const("i64", align - 1))
    aligned = code.cmp("icmp eq", low, const("i64", 0))
    if space == "shared":
        total = code.load("i64", code.at(L, layout.L_SHARED))
        inside = code.cmp("icmp ule", end, total)  # `first` came from 32 bits or is checked below
        small = code.cmp("icmp ult", first, const("i64", 1 << 32))
        host = code.at(code.load("ptr", B), first)
        return host, code.op("and", code.op("and", aligned, inside), small)
    sites = code.load("ptr", code.at(L, layout.L_SITES))
    record = code.at(sites, layout.SITE_BYTES * int(site.text))
    inside = code.op(
        "and",
        code.cmp("icmp uge", first, code.load("i64", record)),
        code.cmp("icmp ule", end, code.load("i64", code.at(record, 8))),
    )
    delta = code.load("i64", code.at(record, 16))
    host = code.cast("inttoptr", code.op("add", first, delta), "ptr")
    return host, code.op("and", aligned, inside)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def element(m: Mods) -> tuple[str, int]:
    """LLVM kind and bytes of one element of an access."""
    bits = int("".join(c for c in m["type"].removesuffix("x2") if c.isdigit()))
    bits = 32 if m["type"].endswith("x2") else bits
    return f"i{bits}", bits // 8


# --- Instructions ------------------------------------------------------------------------------


def load(e: Emit, m: Mods) -> None:
    """`ld`: each lane's element or vector, extended to the destination register where that is wider."""
    code = e.code
    address = e.memory(1)
    space = space_of(e, m, address)
    kind, _ = element(m)
    targets = _items(e.operand(0))
    base, offset = address_of(e, address, space)
    if space == "param" and base.lanes == 1 and not base.text.startswith("%"):
        values = _load_param(e, int(base.text) + offset, kind, len(targets))
    elif base.lanes == 1 and e.ins.guard is None and not e.frame.recorded:
        values = _load_once(e, space, code.resize(base, "i64"), offset, kind, len(targets))
    else:
        values = _load_lanes(e, space, code.splat(base), offset, kind, len(targets))
    signed = m["type"].startswith("s")
    for target, value in zip(targets, values, strict=True):
        if not isinstance(target, Sink):
            e.extend(target, value if e.lanes == 1 else code.splat(value), signed=signed)


def _load_param(e: Emit, at: int, kind: str, count: int) -> list[Value]:
    size = BITS[kind] // 8
    if at < 0 or at + count * size > e.frame.param_bytes:
        raise e.refuse(f"reads beyond the {e.frame.param_bytes} bytes of parameters")
    code = e.code
    params = code.load("ptr", code.at(L, layout.L_PARAMS))
    return [code.load(kind, code.at(params, at + i * size)) for i in range(count)]


def _load_once(e: Emit, space: str, base: Value, offset: int, kind: str, count: int) -> list[Value]:
    """A load from an address that the warp shares: once for all lanes."""
    code = e.code
    size = BITS[kind] // 8
    total = const("i64", size * count)
    address = code.op("add", base, const("i64", offset)) if offset else base
    if space in ("local", "generic"):
        return _load_lanes(e, space, code.splat(address), 0, kind, count)
    site = e.site(space, size * count)
    lane = code.intrinsic("cttz", e.active, const("i1", 0))
    host = code.call(
        find(space).text[1:], "ptr", 1, W, B, L, site, lane, address, total, total, const("i1", 0)
    )
    missing = code.cmp("icmp eq", host, Value("ptr", 1, "null"))
    bad, fine = code.fresh("bad"), code.fresh("fine")
    code.branch(missing, bad, fine)
    code.label(bad)
    code.invoke("fail", W, L, const("i32", layout.E_ACCESS), site, lane, address)
    code.jump(e.fail)
    code.label(fine)
    return [code.load(kind, code.at(host, i * size)) for i in range(count)]


def _load_lanes(e: Emit, space: str, base: Value, offset: int, kind: str, count: int) -> list[Value]:
    code = e.code
    size = BITS[kind] // 8
    step = size * count
    site = e.site(space, step)
    fast = _may_be_row(e, space)
    rows: list[Value] = []
    join = code.fresh("join")
    fast_label, slow_label = code.fresh("fast"), code.fresh("slow")
    if fast:
        first, row = _in_a_row(e, base, step)
        first = code.resize(first, "i64")
        if offset:
            first = code.op("add", first, const("i64", offset))
        host, inside = _fast_host(e, space, site, first, step, step)
        code.branch(code.op("and", row, inside), fast_label, slow_label)
        code.label(fast_label)
        if space != "shared":
            fast_label = _prefetch(e, site, first, host, WARP * step)
        rows = _load_row(e, host, kind, count, min(step, HOST_ALIGN))
        code.jump(join)
        code.label(slow_label)
    addresses, data = _slots(e)
    code.store(_full_address(e, base, offset), addresses, 64)
    keeping.note(e, space, keeping.READ, step, addresses)
    finder, stride = find(space), _stride(e, space)
    code.invoke(
        f"load.{8 * size}", W, B, L, finder, stride, site, e.mask(), const("i32", count), addresses, data
    )
    e.leave_on_error()
    slow = [code.load(kind, code.at(data, i * WARP * size), WARP, min(64, WARP * size)) for i in range(count)]
    if not fast:
        return slow
    came_from = code.fresh("slow.done")
    code.jump(came_from)
    code.label(came_from)
    code.jump(join)
    code.label(join)
    return [
        code.define(f"phi {a.type} [ {a.text}, %{fast_label} ], [ {b.text}, %{came_from} ]", kind, WARP)
        for a, b in zip(rows, slow, strict=True)
    ]


def _prefetch(e: Emit, site: Value, first: Value, host: Value, nbytes: int) -> str:
    """Asks for the row that this instruction will read some iterations later; gives the label it ends in.

    A warp strides through a large array with the whole grid, which the CPU's own prefetchers do not see.
    Where its walk ends before that, the row is one of the next warp's walk, taken to lie as far from this
    one's as the warps do in the grid. A row may lie behind the buffer: to ask for it does no harm.
    """
    code = e.code
    sites = code.load("ptr", code.at(L, layout.L_SITES))
    record = code.at(sites, layout.SITE_BYTES * int(site.text))
    last_at, stride_at = code.at(record, layout.SITE_LAST), code.at(record, layout.SITE_STRIDE)
    step = code.op("sub", first, code.load("i64", last_at))
    code.store(first, last_at)
    stride = code.load("i64", stride_at)
    begun, on = code.fresh("begun"), code.fresh("on")
    code.branch(code.cmp("icmp eq", step, stride), on, begun)
    code.label(begun)
    code.invoke("begin.walk", W, B, L, site, step, first, host, const("i64", nbytes))
    code.jump(on)
    code.label(on)
    wraps = code.cmp("icmp uge", first, code.load("i64", code.at(record, layout.SITE_EDGE)))
    jump = code.select(wraps, code.load("i64", code.at(record, layout.SITE_JUMP)), const("i64", 0))
    ahead = code.at(host, code.op("add", code.op("mul", stride, const("i64", AHEAD)), jump))
    code.helpers.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for place in (*range(0, nbytes, 64), nbytes - 1):  # a row that begins within a line ends in one more
        code.line(f"call void @llvm.prefetch.p0(ptr {code.at(ahead, place).text}, i32 0, i32 3, i32 1)")
    return on


def _load_row(e: Emit, host: Value, kind: str, count: int, align: int) -> list[Value]:
    code = e.code
    if count == 1:
        return [code.load(kind, host, WARP, align)]
    wide = type_of(kind, WARP * count)
    name = code.define(f"load {wide}, ptr {host.text}, align {align}", kind, WARP * count)
    rows = []
    for i in range(count):
        pick = ", ".join(f"i32 {lane * count + i}" for lane in range(WARP))
        rows.append(
            code.define(f"shufflevector {name.typed}, {wide} poison, <32 x i32> <{pick}>", kind, WARP)
        )
    return rows


def store(e: Emit, m: Mods) -> None:
    """`st`: each lane's element or vector. Where lanes meet at one address the highest lane wins."""
    code = e.code
    address = e.memory(0)
    space = space_of(e, m, address)
    kind, size = element(m)
    sources = _items(e.operand(1))
    values = [e.value(s, BITS[kind], WARP) for s in sources]
    base, offset = address_of(e, address, space)
    base = code.splat(base)
    count, step = len(values), size * len(values)
    site = e.site(space, step, writes=True)
    join = code.fresh("join")
    if _may_be_row(e, space):
        fast_label, slow_label = code.fresh("fast"), code.fresh("slow")
        first, row = _in_a_row(e, base, step)
        first = code.resize(first, "i64")
        if offset:
            first = code.op("add", first, const("i64", offset))
        host, inside = _fast_host(e, space, site, first, step, step)
        code.branch(code.op("and", row, inside), fast_label, slow_label)
        code.label(fast_label)
        _store_row(e, values, host, min(step, HOST_ALIGN))
        code.jump(join)
        code.label(slow_label)
    addresses, data = _slots(e)
    code.store(_full_address(e, base, offset), addresses, 64)
    for i, value in enumerate(values):
        code.store(value, code.at(data, i * WARP * size), min(64, WARP * size))
    finder, stride = find(space), _stride(e, space)
    keeping.note(e, space, keeping.WRITE, step, addresses)
    keeping.keep(e, space, f"store.{8 * size}", finder, site, count, WARP * step, (addresses, data))
    code.invoke(
        f"store.{8 * size}", W, B, L, finder, stride, site, e.mask(), const("i32", count), addresses, data
    )
    e.leave_on_error()
    code.jump(join)
    code.label(join)


def _store_row(e: Emit, values: list[Value], host: Value, align: int) -> None:
    code = e.code
    if len(values) == 1:
        code.store(values[0], host, align)
        return
    kind, count = values[0].kind, len(values)

    def both(a: Value, b: Value) -> Value:
        lanes = a.lanes + b.lanes
        pick = ", ".join(f"i32 {i}" for i in range(lanes))
        return code.define(f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{pick}>", kind, lanes)

    joined = values
    while len(joined) > 1:
        joined = [both(a, b) for a, b in zip(joined[::2], joined[1::2], strict=True)]
    whole = joined[0]
    pick = ", ".join(f"i32 {i * WARP + lane}" for lane in range(WARP) for i in range(count))
    mixed = code.define(
        f"shufflevector {whole.typed}, {whole.type} poison, <{whole.lanes} x i32> <{pick}>",
        kind,
        whole.lanes,
    )
    code.store(mixed, host, align)


_WINDOWS = {"shared": layout.SHARED_WINDOW, "local": layout.LOCAL_WINDOW, "global": 0, "const": 0}


def cvta(e: Emit, m: Mods) -> None:
    """Between generic addresses and those of a state space; global and constant ones are the same."""
    code = e.code
    space = m["space"].removesuffix("::cta")
    if space not in _WINDOWS:
        raise e.refuse(f"makes .{space} addresses generic")
    value = e.src(1, 64)
    window = code.const(value, _WINDOWS[space])
    if _WINDOWS[space] == 0:
        e.dst(value)
    elif m.get("to"):
        e.dst(code.op("sub", value, window))
    else:
        e.dst(code.op("add", value, window))


def isspacep(e: Emit, m: Mods) -> None:
    """Whether a generic address lies in the window of a state space."""
    code = e.code
    value = e.src(1, 64)
    top = code.op("lshr", value, code.const(value, 32))
    space = m["space"].removesuffix("::cta").removesuffix("::cluster")
    windows = [layout.SHARED_WINDOW >> 32, layout.LOCAL_WINDOW >> 32]
    if space in ("shared", "local"):
        e.dst(code.cmp("icmp eq", top, code.const(value, windows[space == "local"])))
        return
    const_end = layout.BUFFERS_AT
    inside = [code.cmp("icmp ne", top, code.const(value, w)) for w in windows]
    outside_windows = code.op("and", *inside)
    in_constants = code.op(
        "and",
        code.cmp("icmp uge", value, code.const(value, layout.CONSTANTS_AT)),
        code.cmp("icmp ult", value, code.const(value, const_end)),
    )
    if space == "const":
        e.dst(in_constants)
    else:
        e.dst(code.op("and", outside_windows, code.inv(in_constants)))


def nothing(e: Emit, m: Mods) -> None:
    """Fences, prefetches and hints: one warp runs at a time, so memory is always in order."""
