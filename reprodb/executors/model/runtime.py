"""The part of the machine code that every stage shares: finding host addresses, loads, stores, scheduling.

Written in LLVM IR, compiled once for a CPU and kept. Stages call these functions by name.
"""

from __future__ import annotations

from reprodb.executors.model import keeping, layout, scheduler

_FAIL = f"""
; Records the first error of a stage: what, where, which thread, which address.
define void @fail(ptr %w, ptr %l, i32 %code, i32 %site, i32 %lane, i64 %address) noinline {{
  %e = getelementptr i8, ptr %l, i64 {layout.L_ERROR}
  %old = load i32, ptr %e, align 4
  %first = icmp eq i32 %old, 0
  br i1 %first, label %record, label %done
record:
  store i32 %code, ptr %e, align 4
  %s = getelementptr i8, ptr %l, i64 {layout.L_ERROR_SITE}
  store i32 %site, ptr %s, align 4
  %n = getelementptr i8, ptr %l, i64 {layout.L_ERROR_LANE}
  store i32 %lane, ptr %n, align 4
  %ip = getelementptr i8, ptr %w, i64 {layout.W_INDEX}
  %i = load i32, ptr %ip, align 4
  %x = getelementptr i8, ptr %l, i64 {layout.L_ERROR_WARP}
  store i32 %i, ptr %x, align 4
  %a = getelementptr i8, ptr %l, i64 {layout.L_ERROR_ADDRESS}
  store i64 %address, ptr %a, align 8
  br label %done
done:
  ret void
}}
"""

_FIND = "(ptr %w, ptr %b, ptr %l, i32 %site, i32 %lane, i64 %a, i64 %size, i64 %align, i1 %write)"
_FIND_CALL = "(ptr %w, ptr %b, ptr %l, i32 %site, i32 %lane, i64 {a}, i64 %size, i64 %align, i1 %write)"

# Where %size bytes at address %a lie on the host, or null where they may not be accessed. %lane is -1 for
# the bytes that all lanes reach together.
_FIND_GLOBAL = f"""
define ptr @find.global{_FIND} noinline {{
  %low = sub i64 %align, 1
  %odd = and i64 %a, %low
  %end = add i64 %a, %size
  %even = icmp eq i64 %odd, 0
  %up = icmp uge i64 %end, %a
  %sane = and i1 %even, %up
  br i1 %sane, label %cached, label %bad
cached:                                            ; the region that this instruction met last
  %sp = getelementptr i8, ptr %l, i64 {layout.L_SITES}
  %sites = load ptr, ptr %sp, align 8
  %n = zext i32 %site to i64
  %so = mul i64 %n, {layout.SITE_BYTES}
  %s = getelementptr i8, ptr %sites, i64 %so
  %s1 = getelementptr i8, ptr %s, i64 8
  %s2 = getelementptr i8, ptr %s, i64 16
  %clo = load i64, ptr %s, align 8
  %chi = load i64, ptr %s1, align 8
  %cge = icmp uge i64 %a, %clo
  %cle = icmp ule i64 %end, %chi
  %hit = and i1 %cge, %cle
  br i1 %hit, label %good, label %search
search:
  %rp = getelementptr i8, ptr %l, i64 {layout.L_REGIONS}
  %regions = load ptr, ptr %rp, align 8
  %cp = getelementptr i8, ptr %l, i64 {layout.L_REGION_COUNT}
  %count = load i64, ptr %cp, align 8
  br label %next
next:
  %k = phi i64 [ 0, %search ], [ %k1, %other ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %look, label %bad
look:
  %ro = mul i64 %k, {layout.REGION_BYTES}
  %r = getelementptr i8, ptr %regions, i64 %ro
  %lo = load i64, ptr %r, align 8
  %r1 = getelementptr i8, ptr %r, i64 8
  %hi = load i64, ptr %r1, align 8
  %ge = icmp uge i64 %a, %lo
  %le = icmp ule i64 %end, %hi
  %in = and i1 %ge, %le
  br i1 %in, label %found, label %other
other:
  %k1 = add i64 %k, 1
  br label %next
found:
  %r2 = getelementptr i8, ptr %r, i64 16
  %delta = load i64, ptr %r2, align 8
  %r3 = getelementptr i8, ptr %r, i64 24
  %writable = load i64, ptr %r3, align 8
  %w1 = icmp ne i64 %writable, 0
  %w2 = xor i1 %write, true
  %may = or i1 %w1, %w2
  br i1 %may, label %keep, label %bad
keep:
  store i64 %lo, ptr %s, align 8
  store i64 %hi, ptr %s1, align 8
  store i64 %delta, ptr %s2, align 8
  br label %good
good:
  %d = load i64, ptr %s2, align 8
  %h = add i64 %a, %d
  %p = inttoptr i64 %h to ptr
  ret ptr %p
bad:
  ret ptr null
}}
"""


def _find_within(name: str, base: str, total: int) -> str:
    """`find` in memory of `total` bytes that begins at host address `base`."""
    return f"""
define ptr @find.{name}{_FIND} noinline {{
  %low = sub i64 %align, 1
  %odd = and i64 %a, %low
  %end = add i64 %a, %size
  %even = icmp eq i64 %odd, 0
  %up = icmp uge i64 %end, %a
{_load_field("total", total)}
  %in = icmp ule i64 %end, %total
  %x = and i1 %even, %up
  %y = and i1 %x, %in
  br i1 %y, label %good, label %bad
good:
{base}
  %p = getelementptr i8, ptr %base, i64 %a
  ret ptr %p
bad:
  ret ptr null
}}
"""


def _load_field(name: str, offset: int, kind: str = "i64") -> str:
    """A field of the launch record as `%name`."""
    return (
        f"  %{name}.at = getelementptr i8, ptr %l, i64 {offset}\n"
        f"  %{name} = load {kind}, ptr %{name}.at, align 8"
    )


_FIND_SHARED = _find_within("shared", "  %base = load ptr, ptr %b, align 8", layout.L_SHARED)
_FIND_PARAM = _find_within("param", _load_field("base", layout.L_PARAMS, "ptr"), layout.L_PARAM_BYTES)
_FIND_LOCAL = _find_within(
    "local",
    f"""  %some = icmp slt i32 %lane, 0
  %first = select i1 %some, i32 0, i32 %lane
  %n = zext i32 %first to i64
  %skip = mul i64 %n, %total
{_load_field("start", layout.L_LOCAL_AT)}
  %from = add i64 %skip, %start
  %base = getelementptr i8, ptr %w, i64 %from""",
    layout.L_LOCAL_BYTES,
)

_FIND_GENERIC = f"""
define ptr @find.generic{_FIND} noinline {{
  %window = lshr i64 %a, 32
  %offset = and i64 %a, 4294967295
  switch i64 %window, label %global [ i64 {layout.SHARED_WINDOW >> 32}, label %shared
                                      i64 {layout.LOCAL_WINDOW >> 32}, label %local ]
shared:
  %s = call ptr @find.shared{_FIND_CALL.format(a="%offset")}
  ret ptr %s
local:                                             ; each lane has its own: lanes together have no place
  %together = icmp slt i32 %lane, 0
  br i1 %together, label %nowhere, label %own
nowhere:
  ret ptr null
own:
  %t = call ptr @find.local{_FIND_CALL.format(a="%offset")}
  ret ptr %t
global:
  %g = call ptr @find.global{_FIND_CALL.format(a="%a")}
  ret ptr %g
}}
"""


_WALK = f"""
; A load's step was another than its stride: a warp has begun its walk. Learns the stride, works out where
; this walk ends and the next one begins, and asks for this one's rows in case that nobody has.
define void @begin.walk(ptr %w, ptr %b, ptr %l, i32 %site, i64 %step, i64 %first, ptr %host,
                        i64 %nbytes) noinline {{
entry:
  %sp = getelementptr i8, ptr %l, i64 {layout.L_SITES}
  %sites = load ptr, ptr %sp, align 8
  %n = zext i32 %site to i64
  %so = mul i64 %n, {layout.SITE_BYTES}
  %s = getelementptr i8, ptr %sites, i64 %so
  %stridep = getelementptr i8, ptr %s, i64 {layout.SITE_STRIDE}
  %stepp = getelementptr i8, ptr %s, i64 {layout.SITE_STEP}
  %edgep = getelementptr i8, ptr %s, i64 {layout.SITE_EDGE}
  %jumpp = getelementptr i8, ptr %s, i64 {layout.SITE_JUMP}
  %endp = getelementptr i8, ptr %s, i64 8
  %before = load i64, ptr %stepp, align 8
  %known = load i64, ptr %stridep, align 8
  %twice = icmp eq i64 %step, %before
  %stride = select i1 %twice, i64 %step, i64 %known
  store i64 %stride, ptr %stridep, align 8
  store i64 %step, ptr %stepp, align 8
  store i64 -1, ptr %edgep, align 8
  %walks = icmp sgt i64 %stride, 0
  br i1 %walks, label %plan, label %done
plan:
  %end = load i64, ptr %endp, align 8
  %room = sub i64 %end, %first
  %most0 = add i64 %room, %stride
  %most = sub i64 %most0, 1
  %rows = udiv i64 %most, %stride
  %length = mul i64 %rows, %stride
  %warps = call i64 @ahead(ptr %w, ptr %b, ptr %l)
  %apart = mul i64 %warps, %nbytes
  %jump = sub i64 %apart, %length
  store i64 %jump, ptr %jumpp, align 8
  %far = mul i64 %stride, {layout.AHEAD}
  %short = icmp ule i64 %room, %far
  %edge0 = sub i64 %end, %far
  %edge = select i1 %short, i64 %first, i64 %edge0
  store i64 %edge, ptr %edgep, align 8
  br label %loop
loop:
  %k = phi i64 [ 1, %plan ], [ %k1, %loop ]
  %distance = mul i64 %stride, %k
  %outside = icmp uge i64 %distance, %room
  %skip = select i1 %outside, i64 0, i64 %distance
  %row = getelementptr i8, ptr %host, i64 %skip
  call void @llvm.prefetch.p0(ptr %row, i32 0, i32 3, i32 1)
  %row1 = getelementptr i8, ptr %row, i64 64
  call void @llvm.prefetch.p0(ptr %row1, i32 0, i32 3, i32 1)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {layout.AHEAD}
  br i1 %more, label %loop, label %done
done:
  ret void
}}

declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""


def _accessor(bits: int, *, store: bool) -> str:
    """`load.N` and `store.N`: `count` elements of N bits for the lanes of a mask.

    Addresses are 32 × i64 at %addrs; elements are [count][32] at %data; %finder is the state space's
    `find`, %stride what one lane's memory lies behind that of the lane before (local memory). On an error
    nothing more is done.
    """
    verb = "store" if store else "load"
    name = f"{verb}.{bits}"
    size = bits // 8
    kind = f"i{bits}"
    wide = f"<32 x {kind}>"
    steps = ", ".join(f"i64 {i * size}" for i in range(32))
    call = (
        "call ptr %finder(ptr %w, ptr %b, ptr %l, i32 %site, i32 {lane}, i64 {a}, i64 {n}, i64 {align}, "
        f"i1 {'true' if store else 'false'})"
    )
    move = (
        f"  %v = load {kind}, ptr %h, align {size}\n  store {kind} %v, ptr %q, align {size}"
        if store
        else f"  %v = load {kind}, ptr %q, align {size}\n  store {kind} %v, ptr %h, align {size}"
    )
    move2 = move.replace("%v", "%v2").replace("%h", "%h2").replace("%q", "%q2")
    if bits >= 32:
        if store:
            vector_access = (
                f"  %all = load {wide}, ptr %data, align 64\n"
                f"  call void @llvm.masked.store.v32{kind}.p0({wide} %all, ptr %at, i32 {size}, <32 x i1> %m)"
            )
        else:
            vector_access = (
                f"  %all = call {wide} @llvm.masked.load.v32{kind}.p0(ptr %at, i32 {size}, <32 x i1> %m, "
                f"{wide} zeroinitializer)\n"
                f"  store {wide} %all, ptr %data, align 64"
            )
        in_a_row = f"""
  %firsta = getelementptr i64, ptr %addrs, i32 %first
  %a0 = load i64, ptr %firsta, align 8
  %firstw = zext i32 %first to i64
  %back = mul i64 %firstw, {size}
  %zero = sub i64 %a0, %back
  %i0 = insertelement <32 x i64> poison, i64 %zero, i64 0
  %i1 = shufflevector <32 x i64> %i0, <32 x i64> poison, <32 x i32> zeroinitializer
  %want = add <32 x i64> %i1, <{steps}>
  %differ = icmp ne <32 x i64> %want, %addr
  %matter = and <32 x i1> %differ, %m
  %odd = bitcast <32 x i1> %matter to i32
  %row = icmp eq i32 %odd, 0
  %single = icmp eq i32 %count, 1
  %common = icmp eq i64 %stride, 0
  %most = and i1 %row, %single
  %fast = and i1 %most, %common
  br i1 %fast, label %row.find, label %bounds
row.find:                                          ; from the first lane to the last: what most accesses are
  %after = call i32 @llvm.ctlz.i32(i32 %mask, i1 true)
  %reaching = sub i32 32, %after
  %lanes = sub i32 %reaching, %first
  %lanesw = zext i32 %lanes to i64
  %row.bytes = mul i64 %lanesw, {size}
  %rp = {call.format(lane=-1, a="%a0", n="%row.bytes", align=size)}
  %row.miss = icmp eq ptr %rp, null
  br i1 %row.miss, label %each, label %vector
vector:
  %forth = sub i64 0, %back
  %at = getelementptr i8, ptr %rp, i64 %forth
{vector_access}
  ret void"""
    else:
        in_a_row = "  br label %bounds"
    row_missed = ", [ %mask, %row.find ]" if bits >= 32 else ""
    parameters = (
        "ptr %w, ptr %b, ptr %l, ptr %finder, i64 %stride, i32 %site, i32 %mask, i32 %count, ptr %addrs, "
        "ptr %data"
    )
    return f"""
define void @{name}({parameters}) noinline {{
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %span
span:                                              ; all lanes at once, by lowest and highest address
  %m = bitcast i32 %mask to <32 x i1>
  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %countw = zext i32 %count to i64
  %total = mul i64 %countw, {size}
  %low = sub i64 %total, 1
  %addr = load <32 x i64>, ptr %addrs, align 64
{in_a_row}
bounds:
  %floor = select <32 x i1> %m, <32 x i64> %addr, <32 x i64> splat (i64 -1)
  %ceil = select <32 x i1> %m, <32 x i64> %addr, <32 x i64> zeroinitializer
  %min = call i64 @llvm.vector.reduce.umin.v32i64(<32 x i64> %floor)
  %max = call i64 @llvm.vector.reduce.umax.v32i64(<32 x i64> %ceil)
  %ones = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %ceil)
  %uneven = and i64 %ones, %low
  %even = icmp eq i64 %uneven, 0
  br i1 %even, label %extent, label %each
extent:
  %reach = sub i64 %max, %min
  %n = add i64 %reach, %total
  %p = {call.format(lane=-1, a="%min", n="%n", align=1)}
  %miss = icmp eq ptr %p, null
  br i1 %miss, label %each, label %vector.check
vector.check:
  %pi = ptrtoint ptr %p to i64
  %delta = sub i64 %pi, %min
  br label %loop
loop:                                              ; all are known to be inside: lane by lane, unchecked
  %left = phi i32 [ %mask, %vector.check ], [ %rest, %lane.done ]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %ap = getelementptr i64, ptr %addrs, i32 %lane
  %a = load i64, ptr %ap, align 8
  %lanew = zext i32 %lane to i64
  %own = mul i64 %lanew, %stride
  %ad = add i64 %a, %delta
  %ado = add i64 %ad, %own
  %host = inttoptr i64 %ado to ptr
  br label %element
element:
  %k = phi i32 [ 0, %loop ], [ %k1, %element ]
  %q = getelementptr {kind}, ptr %host, i32 %k
  %row.k = mul i32 %k, 32
  %slot = add i32 %row.k, %lane
  %h = getelementptr {kind}, ptr %data, i32 %slot
{move}
  %k1 = add i32 %k, 1
  %again = icmp ult i32 %k1, %count
  br i1 %again, label %element, label %lane.done
lane.done:
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %loop
each:                                              ; lanes apart, or one of them at fault
  %left2 = phi i32 [ %mask, %bounds ], [ %mask, %extent ]{row_missed}, [ %rest2, %lane2.done ]
  %lane2 = call i32 @llvm.cttz.i32(i32 %left2, i1 true)
  %less2 = sub i32 %left2, 1
  %rest2 = and i32 %left2, %less2
  %ap2 = getelementptr i64, ptr %addrs, i32 %lane2
  %a2 = load i64, ptr %ap2, align 8
  %host2 = {call.format(lane="%lane2", a="%a2", n="%total", align="%total")}
  %bad = icmp eq ptr %host2, null
  br i1 %bad, label %fault, label %element2
fault:
  call void @fail(ptr %w, ptr %l, i32 {layout.E_ACCESS}, i32 %site, i32 %lane2, i64 %a2)
  br label %done
element2:
  %k2 = phi i32 [ 0, %each ], [ %k3, %element2 ]
  %q2 = getelementptr {kind}, ptr %host2, i32 %k2
  %row2 = mul i32 %k2, 32
  %slot2 = add i32 %row2, %lane2
  %h2 = getelementptr {kind}, ptr %data, i32 %slot2
{move2}
  %k3 = add i32 %k2, 1
  %again2 = icmp ult i32 %k3, %count
  br i1 %again2, label %element2, label %lane2.done
lane2.done:
  %over2 = icmp eq i32 %rest2, 0
  br i1 %over2, label %done, label %each
done:
  ret void
}}
"""


SIZES = (8, 16, 32, 64)
SPACES = ("global", "shared", "local", "param", "generic")
FIND_TYPE = "ptr (ptr, ptr, ptr, i32, i32, i64, i64, i64, i1)"


def text() -> str:
    """The whole module."""
    declared = [f"declare i64 @llvm.vector.reduce.{w}.v32i64(<32 x i64>)" for w in ("umin", "umax", "or")]
    declared += [f"declare i32 @llvm.{w}.i32(i32, i1)" for w in ("cttz", "ctlz")]
    for bits in (32, 64):
        wide = f"<32 x i{bits}>"
        declared.append(f"declare void @llvm.masked.store.v32i{bits}.p0({wide}, ptr, i32, <32 x i1>)")
        declared.append(f"declare {wide} @llvm.masked.load.v32i{bits}.p0(ptr, i32, <32 x i1>, {wide})")
    accessors = [_accessor(bits, store=store) for bits in SIZES for store in (False, True)]
    parts = (_FAIL, _FIND_GLOBAL, _FIND_SHARED, _FIND_LOCAL, _FIND_PARAM, _FIND_GENERIC, _WALK, *accessors)
    return "\n".join((*parts, scheduler.text(), keeping.text(), *declared))


def declarations() -> tuple[str, ...]:
    """What a stage's module declares of it."""
    where = "ptr, ptr, ptr"
    found = [f"declare ptr @find.{space}({where}, i32, i32, i64, i64, i64, i1)" for space in SPACES]
    found += [
        f"declare void @{verb}.{bits}({where}, ptr, i64, i32, i32, i32, ptr, ptr)"
        for verb in ("load", "store")
        for bits in SIZES
    ]
    found.append("declare void @begin.walk(ptr, ptr, ptr, i32, i64, i64, ptr, i64)")
    return (*found, "declare void @fail(ptr, ptr, i32, i32, i32, i64)")
