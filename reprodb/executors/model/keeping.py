"""Recording what a stage writes to global memory, and playing that again in another order, as LLVM IR.

A stage that is recorded is lowered once more, so that each access to memory says what it is about to do
(`note`, `keep`), and the scheduler calls `record` in place of the stage's own function: it runs a warp's
turn and keeps how the turn ended. For a replay it calls `replay`: that does what the warp wrote in this
turn, by the very functions that did it first, and ends as the turn ended. So the scheduler decides as it
would for the stage itself. What makes this the same bits is in `replay.py`.
"""

from __future__ import annotations

from reprodb.executors.model import layout as at
from reprodb.executors.model.emit import B, Emit, L, W
from reprodb.executors.model.llvm import Value, const
from reprodb.executors.model.scheduler import floating_point_control

_SPACES = {"global": 0, "shared": 1, "generic": 2}
READ, WRITE = at.TOUCH_READ, at.TOUCH_WRITTEN

# --- What a recorded stage calls ---------------------------------------------------------------


def note(e: Emit, space: str, how: int, nbytes: int, addresses: Value) -> None:
    """Says that each running lane is about to read or write `nbytes` at its address."""
    if e.frame.recorded and space in _SPACES:
        e.code.helpers.declare("declare void @note(ptr, ptr, ptr, i32, i64, i32, i64, ptr)")
        spaces, hows = const("i32", _SPACES[space]), const("i64", how)
        e.code.invoke("note", W, B, L, spaces, hows, e.mask(), const("i64", nbytes), addresses)


def keep(
    e: Emit, space: str, call: str, finder: Value | None, site: Value, count: int, nbytes: int,
    slots: tuple[Value, Value],
) -> None:  # fmt: skip
    """Keeps a write of the running lanes: `call` does it, `nbytes` of operands lie in the second slot."""
    if e.frame.recorded and space in ("global", "generic"):
        e.code.helpers.declare(f"declare void @keep({_KEEP})")
        function = Value("ptr", 1, f"@{call}")
        of = finder or Value("ptr", 1, "null")
        e.code.invoke(
            "keep", W, B, L, function, of, site, e.mask(), const("i32", count), const("i64", nbytes), *slots
        )


_KEEP = "ptr, ptr, ptr, ptr, ptr, i32, i32, i32, i64, ptr, ptr"

# --- The runtime's part ------------------------------------------------------------------------


def _field(name: str, base: str, offset: int, kind: str = "i64") -> str:
    """Loads a field of a record: `%name`, its address in `%name.p`."""
    return (
        f"  %{name}.p = getelementptr i8, ptr %{base}, i64 {offset}\n"
        f"  %{name} = load {kind}, ptr %{name}.p, align {4 if kind == 'i32' else 8}"
    )


def _put(text: str, base: str, offset: int, name: str) -> str:
    """Stores a field of a record: `text` is the value with its type, `name` one that nothing else has."""
    align = 4 if text.startswith("i32") else 8
    return (
        f"  %{name}.q = getelementptr i8, ptr %{base}, i64 {offset}\n"
        f"  store {text}, ptr %{name}.q, align {align}"
    )


# How many barriers of the whole block the warp `%me` has passed: `%phase`, kept at `%pp`.
_PHASE = f"""\
  %mine = shl i64 %me, 2
  %pp0 = getelementptr i8, ptr %g, i64 {at.G_PHASES}
  %pp = getelementptr i8, ptr %pp0, i64 %mine
  %phase = load i32, ptr %pp, align 4"""

# The place of the warp `%me` of block `%number` among all warps of the grid.
_HERE = """\
  %warpsw = zext i32 %warps to i64
  %row = mul i64 %number, %warpsw
  %here = add i64 %row, %me"""

_NOTE = f"""
; Lanes are about to access memory. Shared memory: whether two warps meet in one word between barriers, one of
; them writing. Global memory: which regions the stage reads and writes.
define void @note(ptr %w, ptr %b, ptr %l, i32 %space, i64 %how, i32 %mask, i64 %nbytes,
                  ptr %addrs) noinline {{
entry:
{_field("g", "l", at.L_LOG, "ptr")}
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %look
look:
  %reads = icmp eq i64 %how, {READ}
  %outside = icmp ne i32 %space, 1
  %may.skip = and i1 %reads, %outside
  br i1 %may.skip, label %quiet, label %begin
quiet:                                             ; inputs are never written
{_field("low", "g", at.G_QUIET)}
{_field("high", "g", at.G_QUIET_END)}
  %all = load <32 x i64>, ptr %addrs, align 64
  %low1 = insertelement <32 x i64> poison, i64 %low, i64 0
  %lows = shufflevector <32 x i64> %low1, <32 x i64> poison, <32 x i32> zeroinitializer
  %span = sub i64 %high, %low
  %span1 = insertelement <32 x i64> poison, i64 %span, i64 0
  %spans = shufflevector <32 x i64> %span1, <32 x i64> poison, <32 x i32> zeroinitializer
  %from = sub <32 x i64> %all, %lows
  %beyond = icmp uge <32 x i64> %from, %spans
  %bits = bitcast <32 x i1> %beyond to i32
  %loud = and i32 %bits, %mask
  %silent = icmp eq i32 %loud, 0
  br i1 %silent, label %done, label %begin
begin:
{_field("touched", "g", at.G_TOUCHED, "ptr")}
{_field("shadow", "g", at.G_SHADOW, "ptr")}
{_field("words", "g", at.G_WORDS)}
{_field("serial", "g", at.G_SERIAL)}
{_field("index", "w", at.W_INDEX, "i32")}
{_field("regions", "l", at.L_REGIONS, "ptr")}
{_field("count", "l", at.L_REGION_COUNT)}
  %me = zext i32 %index to i64
{_PHASE}
  %phasew = zext i32 %phase to i64
  %serials = shl i64 %serial, 24
  %now = or i64 %serials, %phasew                  ; the block's phase, as no other block has it
  %stamp0 = shl i64 %now, 8
  %stamp = or i64 %stamp0, %me
  %many = or i64 %stamp0, 255
  %does.read0 = and i64 %how, {READ}
  %does.read = icmp ne i64 %does.read0, 0
  %does.write0 = and i64 %how, {WRITE}
  %does.write = icmp ne i64 %does.write0, 0
  br label %loop
loop:
  %left = phi i32 [ %mask, %begin ], [ %rest, %next ]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %ap = getelementptr i64, ptr %addrs, i32 %lane
  %a = load i64, ptr %ap, align 8
  %window = lshr i64 %a, 32
  %is.shared = icmp eq i32 %space, 1
  br i1 %is.shared, label %inside, label %which
which:
  %generic = icmp eq i32 %space, 2
  %w.shared = icmp eq i64 %window, {at.SHARED_WINDOW >> 32}
  %w.local = icmp eq i64 %window, {at.LOCAL_WINDOW >> 32}
  %g.shared = and i1 %generic, %w.shared
  %g.local = and i1 %generic, %w.local
  br i1 %g.shared, label %inside, label %which2
which2:
  br i1 %g.local, label %next, label %region
region:
  %k = phi i64 [ 0, %which2 ], [ %k1, %region2 ]
  %more.regions = icmp ult i64 %k, %count
  br i1 %more.regions, label %region1, label %next ; in none: the access fails by itself
region1:
  %ro = mul i64 %k, {at.REGION_BYTES}
  %r = getelementptr i8, ptr %regions, i64 %ro
{_field("lo", "r", 0)}
{_field("hi", "r", 8)}
  %ge = icmp uge i64 %a, %lo
  %lt = icmp ult i64 %a, %hi
  %in = and i1 %ge, %lt
  br i1 %in, label %touch, label %region2
region2:
  %k1 = add i64 %k, 1
  br label %region
touch:
  %tp = getelementptr i64, ptr %touched, i64 %k
  %t0 = load i64, ptr %tp, align 8
  %t1 = or i64 %t0, %how
  store i64 %t1, ptr %tp, align 8
  br label %next
inside:
  %offset = and i64 %a, 4294967295
  %end = add i64 %offset, %nbytes
  %first = lshr i64 %offset, 2
  %end3 = add i64 %end, 3
  %last = lshr i64 %end3, 2
  br label %word
word:
  %i = phi i64 [ %first, %inside ], [ %i1, %word.done ]
  %i.in = icmp ult i64 %i, %last
  %i.there = icmp ult i64 %i, %words
  %i.on = and i1 %i.in, %i.there
  br i1 %i.on, label %word.look, label %next
word.look:
  %so = shl i64 %i, 4
  %s = getelementptr i8, ptr %shadow, i64 %so
{_field("writer", "s", 0)}
{_field("reader", "s", 8)}
  %writer.when = lshr i64 %writer, 8
  %reader.when = lshr i64 %reader, 8
  %writer.now = icmp eq i64 %writer.when, %now
  %reader.now = icmp eq i64 %reader.when, %now
  %writer.else = icmp ne i64 %writer, %stamp
  %reader.else = icmp ne i64 %reader, %stamp
  %met.writer = and i1 %writer.now, %writer.else
  %met.reader0 = and i1 %reader.now, %reader.else
  %met.reader = and i1 %met.reader0, %does.write
  %met = or i1 %met.writer, %met.reader
  %reader1 = select i1 %met.reader0, i64 %many, i64 %stamp
  %reader2 = select i1 %does.read, i64 %reader1, i64 %reader
  store i64 %reader2, ptr %reader.p, align 8
  %writer2 = select i1 %does.write, i64 %stamp, i64 %writer
  store i64 %writer2, ptr %writer.p, align 8
  br i1 %met, label %clash, label %word.done
clash:
{_field("flags", "g", at.G_FLAGS)}
  %flags1 = or i64 %flags, {at.LOG_CLASH}
  store i64 %flags1, ptr %flags.p, align 8
  br label %word.done
word.done:
  %i1 = add i64 %i, 1
  br label %word
next:
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %loop
done:
  ret void
}}
"""

_KEEPER = f"""
; Keeps a write of some lanes: the function that does it, their addresses and operands.
define void @keep(ptr %w, ptr %b, ptr %l, ptr %call, ptr %finder, i32 %site, i32 %mask, i32 %count,
                  i64 %nbytes, ptr %addrs, ptr %data) noinline {{
entry:
{_field("g", "l", at.L_LOG, "ptr")}
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %measure
measure:
  %m = bitcast i32 %mask to <32 x i1>
  %all = load <32 x i64>, ptr %addrs, align 64
  %windows = lshr <32 x i64> %all, splat (i64 32)
  %not.shared = icmp ne <32 x i64> %windows, splat (i64 {at.SHARED_WINDOW >> 32})
  %not.local = icmp ne <32 x i64> %windows, splat (i64 {at.LOCAL_WINDOW >> 32})
  %global0 = and <32 x i1> %not.shared, %not.local
  %global1 = and <32 x i1> %global0, %m
  %global2 = bitcast <32 x i1> %global1 to i32
  %nowhere = icmp eq i32 %global2, 0
  br i1 %nowhere, label %done, label %compare
compare:
  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %fp = getelementptr i64, ptr %addrs, i32 %first
  %a = load i64, ptr %fp, align 8
  %a1 = insertelement <32 x i64> poison, i64 %a, i64 0
  %as = shufflevector <32 x i64> %a1, <32 x i64> poison, <32 x i32> zeroinitializer
  %differ = icmp ne <32 x i64> %all, %as
  %matter = and <32 x i1> %differ, %m
  %odd = bitcast <32 x i1> %matter to i32
  %common = icmp eq i32 %odd, 0
  %abytes = select i1 %common, i64 0, i64 256
  %up = add i64 %nbytes, 63
  %dbytes = and i64 %up, -64
  %head = add i64 %abytes, {at.N_REST}
  %size = add i64 %head, %dbytes
{_field("place", "g", at.G_AT, "ptr")}
{_field("limit", "g", at.G_END)}
  %placei = ptrtoint ptr %place to i64
  %end = add i64 %placei, %size
  %fits = icmp ule i64 %end, %limit
  br i1 %fits, label %put, label %full
full:
{_field("flags", "g", at.G_FLAGS)}
  %flags1 = or i64 %flags, {at.LOG_FULL}
  store i64 %flags1, ptr %flags.p, align 8
  br label %done
put:
{_put("ptr %call", "place", at.N_CALL, "a.call")}
{_put("ptr %finder", "place", at.N_FINDER, "a.finder")}
{_put("i32 %site", "place", at.N_SITE, "a.site")}
{_put("i32 %mask", "place", at.N_MASK, "a.mask")}
{_put("i32 %count", "place", at.N_COUNT, "a.count")}
  %commonw = zext i1 %common to i32
{_put("i32 %commonw", "place", at.N_COMMON, "a.common")}
{_put("i64 %size", "place", at.N_BYTES, "a.bytes")}
{_put("i64 %a", "place", at.N_ADDRESS, "a.address")}
  %rest = getelementptr i8, ptr %place, i64 {at.N_REST}
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %rest, ptr align 64 %addrs, i64 %abytes, i1 false)
  %operands = getelementptr i8, ptr %place, i64 %head
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %operands, ptr align 64 %data, i64 %nbytes, i1 false)
  store i64 %end, ptr %place.p, align 8
{_field("index", "w", at.W_INDEX, "i32")}
  %me = zext i32 %index to i64
{_PHASE}
  %phasew = zext i32 %phase to i64
  %phases = shl i64 %phasew, 8
  %who = or i64 %phases, %me
{_field("last", "g", at.G_LAST)}
  %last.phase = lshr i64 %last, 8
  %same.phase = icmp eq i64 %last.phase, %phasew
  %other = icmp ne i64 %last, %who
  %two = and i1 %same.phase, %other
  store i64 %who, ptr %last.p, align 8
  br i1 %two, label %loose, label %done
loose:                                             ; two warps write in one phase: their order counts
{_put("i64 0", "g", at.G_SOLID, "a.solid")}
  br label %done
done:
  ret void
}}
"""

_RECORD = f"""
; Runs a warp's turn and keeps how it ended.
define i32 @record(ptr %w, ptr %b, ptr %l) {{
entry:
{_field("g", "l", at.L_LOG, "ptr")}
{_field("number", "b", at.B_NUMBER)}
{_field("block", "g", at.G_BLOCK)}
{_field("from", "g", at.G_AT)}
{_field("blocks", "g", at.G_BLOCKS, "ptr")}
  %bo = mul i64 %number, {at.GB_BYTES}
  %block.record = getelementptr i8, ptr %blocks, i64 %bo
  %same = icmp eq i64 %number, %block
  br i1 %same, label %go, label %fresh
fresh:
  store i64 %number, ptr %block.p, align 8
{_field("serial", "g", at.G_SERIAL)}
  %serial1 = add i64 %serial, 1
  store i64 %serial1, ptr %serial.p, align 8
{_put("i64 -1", "g", at.G_LAST, "f.last")}
{_put("i64 1", "g", at.G_SOLID, "f.solid")}
  %phases = getelementptr i8, ptr %g, i64 {at.G_PHASES}
  call void @llvm.memset.p0.i64(ptr %phases, i8 0, i64 128, i1 false)
{_put("i64 %from", "block.record", at.GB_FROM, "f.from")}
  br label %go
go:
{_field("warp", "g", at.G_WARP, "ptr")}
  %rc = call i32 %warp(ptr %w, ptr %b, ptr %l)
{_field("to", "g", at.G_AT)}
{_field("turn", "g", at.G_TURN, "ptr")}
{_field("limit", "g", at.G_TURNS_END)}
{_field("flags", "g", at.G_FLAGS)}
{_field("barrier", "w", at.W_BARRIER)}
{_field("kind", "w", at.W_KIND, "i32")}
{_field("index", "w", at.W_INDEX, "i32")}
{_field("warps", "l", at.L_WARPS, "i32")}
  %me = zext i32 %index to i64
  %turni = ptrtoint ptr %turn to i64
  %end = add i64 %turni, {at.T_BYTES}
  %fits = icmp ule i64 %end, %limit
  br i1 %fits, label %put, label %full
full:
  %flags1 = or i64 %flags, {at.LOG_FULL}
  store i64 %flags1, ptr %flags.p, align 8
  ret i32 %rc
put:
  store i64 %end, ptr %turn.p, align 8
{_put("i64 0", "turn", at.T_NEXT, "t.next")}
{_put("i64 %from", "turn", at.T_FROM, "t.from")}
{_put("i64 %to", "turn", at.T_TO, "t.to")}
{_put("i64 %barrier", "turn", at.T_BARRIER, "t.barrier")}
{_put("i32 %kind", "turn", at.T_KIND, "t.kind")}
{_put("i32 %rc", "turn", at.T_RC, "t.rc")}
  ; Behind the warp's last turn.
{_HERE}
{_field("nexts", "g", at.G_NEXT, "ptr")}
  %tail = getelementptr ptr, ptr %nexts, i64 %here
  %link = load ptr, ptr %tail, align 8
  store ptr %turn, ptr %link, align 8
  store ptr %turn, ptr %tail, align 8
  switch i32 %rc, label %loose [ i32 {at.RC_DONE}, label %ended
                                 i32 {at.RC_BARRIER}, label %waits ]
waits:                                             ; for the whole block?
  %count = lshr i64 %barrier, 32
  %no.count = icmp eq i64 %count, 0
  %stays = icmp ne i32 %kind, {at.ARRIVE}
  %everyone = and i1 %no.count, %stays
  br i1 %everyone, label %passes, label %partial
passes:
{_PHASE}
  %phase1 = add i32 %phase, 1
  store i32 %phase1, ptr %pp, align 4
  %overflow = icmp uge i32 %phase1, {1 << 24}
  br i1 %overflow, label %full, label %ended
partial:
  %reduces = icmp eq i32 %kind, {at.REDUCE}
  br i1 %reduces, label %open, label %loose
open:                                              ; what it finds may depend on who came when
  %flags2 = or i64 %flags, {at.LOG_BARRIER}
  store i64 %flags2, ptr %flags.p, align 8
  br label %loose
loose:
{_put("i64 0", "g", at.G_SOLID, "l.solid")}
  br label %ended
ended:
{_put("i64 %to", "block.record", at.GB_TO, "e.to")}
{_field("solid", "g", at.G_SOLID)}
{_put("i64 %solid", "block.record", at.GB_SOLID, "e.solid")}
  ret i32 %rc
}}
"""

_PLAY = f"""
; Does again what the entries between two addresses did.
define internal void @play(ptr %w, ptr %b, ptr %l, ptr %from, ptr %to) {{
entry:
  %spread = alloca <32 x i64>, align 64
  br label %loop
loop:
  %n = phi ptr [ %from, %entry ], [ %following, %next ]
  %over = icmp eq ptr %n, %to
  br i1 %over, label %done, label %one
one:
{_field("call", "n", at.N_CALL, "ptr")}
{_field("finder", "n", at.N_FINDER, "ptr")}
{_field("site", "n", at.N_SITE, "i32")}
{_field("mask", "n", at.N_MASK, "i32")}
{_field("count", "n", at.N_COUNT, "i32")}
{_field("common", "n", at.N_COMMON, "i32")}
{_field("bytes", "n", at.N_BYTES)}
{_field("a", "n", at.N_ADDRESS)}
  %rest = getelementptr i8, ptr %n, i64 {at.N_REST}
  %following = getelementptr i8, ptr %n, i64 %bytes
  %is.common = icmp ne i32 %common, 0
  br i1 %is.common, label %same, label %apart
same:
  %a1 = insertelement <32 x i64> poison, i64 %a, i64 0
  %as = shufflevector <32 x i64> %a1, <32 x i64> poison, <32 x i32> zeroinitializer
  store <32 x i64> %as, ptr %spread, align 64
  br label %do
apart:
  %behind = getelementptr i8, ptr %rest, i64 256
  br label %do
do:
  %addrs = phi ptr [ %spread, %same ], [ %rest, %apart ]
  %data = phi ptr [ %rest, %same ], [ %behind, %apart ]
  %atomic = icmp eq ptr %finder, null
  br i1 %atomic, label %arrives, label %stores
arrives:
  call void %call(ptr %w, ptr %b, ptr %l, i32 %site, i32 %mask, ptr %addrs, ptr %data)
  br label %next
stores:
  call void %call(ptr %w, ptr %b, ptr %l, ptr %finder, i64 0, i32 %site, i32 %mask, i32 %count, ptr %addrs,
                  ptr %data)
  br label %next
next:
  br label %loop
done:
  ret void
}}

; A warp's turn again: what it wrote, and how it ended.
define i32 @replay(ptr %w, ptr %b, ptr %l) {{
{_field("g", "l", at.L_LOG, "ptr")}
{_field("number", "b", at.B_NUMBER)}
{_field("index", "w", at.W_INDEX, "i32")}
{_field("warps", "l", at.L_WARPS, "i32")}
{_field("nexts", "g", at.G_NEXT, "ptr")}
  %me = zext i32 %index to i64
{_HERE}
  %place = getelementptr ptr, ptr %nexts, i64 %here
  %turn = load ptr, ptr %place, align 8
{_field("next", "turn", at.T_NEXT, "ptr")}
{_field("from", "turn", at.T_FROM, "ptr")}
{_field("to", "turn", at.T_TO, "ptr")}
{_field("barrier", "turn", at.T_BARRIER)}
{_field("kind", "turn", at.T_KIND, "i32")}
{_field("rc", "turn", at.T_RC, "i32")}
  store ptr %next, ptr %place, align 8
  call void @play(ptr %w, ptr %b, ptr %l, ptr %from, ptr %to)
{_put("i64 %barrier", "w", at.W_BARRIER, "w.barrier")}
{_put("i32 %kind", "w", at.W_KIND, "w.kind")}
  ret i32 %rc
}}

; As `run`. A block whose entries have one order is played as it was kept; others have their scheduler.
define i64 @play.blocks(ptr %l, ptr %b, ptr %order, i64 %first, i64 %last) {{
entry:
  %fp.saved = alloca i32, align 4
  %fp.clean = alloca i32, align 4
{floating_point_control(restore=False)}
{_field("g", "l", at.L_LOG, "ptr")}
{_field("blocks", "g", at.G_BLOCKS, "ptr")}
  %w = getelementptr i8, ptr %b, i64 {at.B_WARPS}
  br label %loop
loop:
  %k = phi i64 [ %first, %entry ], [ %k1, %next ]
  %more = icmp ult i64 %k, %last
  br i1 %more, label %block, label %done
block:
  %op = getelementptr i64, ptr %order, i64 %k
  %number = load i64, ptr %op, align 8
  %bo = mul i64 %number, {at.GB_BYTES}
  %r = getelementptr i8, ptr %blocks, i64 %bo
{_field("solid", "r", at.GB_SOLID)}
  %whole = icmp ne i64 %solid, 0
  br i1 %whole, label %at.once, label %in.turns
at.once:
{_field("from", "r", at.GB_FROM, "ptr")}
{_field("to", "r", at.GB_TO, "ptr")}
  call void @play(ptr %w, ptr %b, ptr %l, ptr %from, ptr %to)
  br label %next
in.turns:
  call void @begin(ptr %l, ptr %b, i64 %number)
  %rc = call i32 @resume(ptr %l, ptr %b, i1 true)
  %fine = icmp eq i32 %rc, {at.RC_DONE}
  br i1 %fine, label %next, label %done
next:
  %k1 = add i64 %k, 1
  br label %loop
done:
{floating_point_control(restore=True)}
  ret i64 %k
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def text() -> str:
    """The functions `note`, `keep`, `record`, `replay` and `play.blocks`."""
    return _NOTE + _KEEPER + _RECORD + _PLAY
