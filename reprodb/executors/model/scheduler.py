"""Who runs when: blocks in a seeded order, warps of a block in a new order between barriers.

The loops over blocks and warps are LLVM IR, compiled once for all stages. A block whose warps only spin gives
way: `run` returns, and the engine keeps the block's record, goes on with others and comes back to it.
"""

from __future__ import annotations

import platform

import numpy as np
from numpy.typing import NDArray

from reprodb.executors.model import layout

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """A 64-bit finaliser (splitmix64): neighbouring seeds give unrelated numbers."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def block_order(blocks: int, seed: int, repetition: int, stage: int) -> NDArray[np.int64]:
    """The order of a grid's blocks in one repetition of a stage: a seeded permutation."""
    if blocks == 1:
        return np.zeros(1, np.int64)
    rng = np.random.Generator(np.random.PCG64(warp_seed(seed, repetition, stage)))
    return rng.permutation(blocks)


def warp_seed(seed: int, repetition: int, stage: int) -> int:
    """What the order of warps in one repetition of a stage starts from."""
    return mix(mix(mix(seed & _MASK) ^ repetition) ^ stage)


def floating_point_control(*, restore: bool) -> str:
    """IR that sets the default floating-point environment (a library may have left flush-to-zero on)."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        if restore:
            return "  call void @llvm.x86.sse.ldmxcsr(ptr %fp.saved)"
        return (
            "  call void @llvm.x86.sse.stmxcsr(ptr %fp.saved)\n"
            "  store i32 8064, ptr %fp.clean, align 4\n"  # 0x1F80: nearest, subnormals kept, no traps
            "  call void @llvm.x86.sse.ldmxcsr(ptr %fp.clean)"
        )
    return ""


def declarations() -> str:
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"
    return ""


def text() -> str:
    """The functions `run(l, b, order, first, last)` and `again(l, b)`, in LLVM IR.

    `run` returns the index in `order` of the block that gave way or failed, `last` where all are done;
    `again` goes on with the block in `b` and returns an RC code.
    """
    at = layout
    return f"""
; Puts the warps of a block in a new order, by the block's own random state (a 64-bit congruential generator,
; of which the upper half is used).
define internal void @shuffle(ptr %b, i32 %n) {{
entry:
  %order = getelementptr i8, ptr %b, i64 {at.B_ORDER}
  %p = getelementptr i8, ptr %b, i64 {at.B_RANDOM}
  %many = icmp ugt i32 %n, 1
  br i1 %many, label %begin, label %done
begin:
  %x0 = load i64, ptr %p, align 8
  br label %loop
loop:
  %i = phi i32 [ %n, %begin ], [ %i1, %loop ]
  %x = phi i64 [ %x0, %begin ], [ %x1, %loop ]
  %m = mul i64 %x, 6364136223846793005
  %x1 = add i64 %m, 1442695040888963407
  %top = lshr i64 %x1, 32
  %wide = zext i32 %i to i64
  %scaled = mul i64 %top, %wide
  %below = lshr i64 %scaled, 32
  %i1 = sub i32 %i, 1
  %pi = getelementptr i32, ptr %order, i32 %i1
  %pj = getelementptr i32, ptr %order, i64 %below
  %vi = load i32, ptr %pi, align 4
  %vj = load i32, ptr %pj, align 4
  store i32 %vj, ptr %pi, align 4
  store i32 %vi, ptr %pj, align 4
  %more = icmp ugt i32 %i1, 1
  br i1 %more, label %loop, label %end
end:
  store i64 %x1, ptr %p, align 8
  br label %done
done:
  ret void
}}

define internal ptr @warp.record(ptr %l, ptr %b, i32 %i) {{
  %wide = zext i32 %i to i64
  %bytesp = getelementptr i8, ptr %l, i64 {at.L_WARP_BYTES}
  %bytes = load i64, ptr %bytesp, align 8
  %skip = mul i64 %wide, %bytes
  %from = add i64 %skip, {at.B_WARPS}
  %w = getelementptr i8, ptr %b, i64 %from
  ret ptr %w
}}

; Takes the parked flag off a warp's lanes, where they are told apart.
define internal void @unpark(ptr %w) {{
  %wp = getelementptr i8, ptr %w, i64 {at.W_WHOLE}
  %whole = load i32, ptr %wp, align 4
  %apart = icmp eq i32 %whole, {at.NOT_WHOLE}
  br i1 %apart, label %lanes, label %done
lanes:
  %pc = load <32 x i16>, ptr %w, align 64
  %gone = icmp eq <32 x i16> %pc, splat (i16 {at.PC_DONE})
  %on = and <32 x i16> %pc, splat (i16 {0xFFFF & ~at.PC_PARKED})
  %new = select <32 x i1> %gone, <32 x i16> %pc, <32 x i16> %on
  store <32 x i16> %new, ptr %w, align 64
  br label %done
done:
  ret void
}}

; Lets the warps go that wait at a barrier which is complete.
define internal void @complete(ptr %l, ptr %b, i32 %id, i32 %warps) {{
entry:
  %idw = zext i32 %id to i64
  %o = mul i64 %idw, {at.BARRIER_BYTES}
  %o1 = add i64 %o, {at.B_BARRIERS}
  %bar = getelementptr i8, ptr %b, i64 %o1
  store i32 0, ptr %bar, align 4
  %tp = getelementptr i8, ptr %bar, i64 {at.BAR_TRUE}
  %t = load i32, ptr %tp, align 4
  store i32 0, ptr %tp, align 4
  %lt = getelementptr i8, ptr %bar, i64 {at.BAR_LAST_TRUE}
  store i32 %t, ptr %lt, align 4
  %np = getelementptr i8, ptr %bar, i64 {at.BAR_THREADS}
  %n = load i32, ptr %np, align 4
  store i32 0, ptr %np, align 4
  %ln = getelementptr i8, ptr %bar, i64 {at.BAR_LAST_THREADS}
  store i32 %n, ptr %ln, align 4
  %status = getelementptr i8, ptr %b, i64 {at.B_STATUS}
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %sp = getelementptr i32, ptr %status, i32 %i
  %s = load i32, ptr %sp, align 4
  %parked = icmp eq i32 %s, {at.PARKED}
  br i1 %parked, label %look, label %next
look:
  %w = call ptr @warp.record(ptr %l, ptr %b, i32 %i)
  %wp = getelementptr i8, ptr %w, i64 {at.W_BARRIER}
  %at = load i32, ptr %wp, align 4
  %here = icmp eq i32 %at, %id
  br i1 %here, label %free, label %next
free:
  call void @unpark(ptr %w)
  store i32 {at.READY}, ptr %sp, align 4
  br label %next
next:
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %warps
  br i1 %more, label %loop, label %done
done:
  ret void
}}

; A warp has arrived at a barrier. Returns an error code, 0 if none.
define internal i32 @arrive(ptr %l, ptr %b, ptr %w, i32 %i, i32 %warps) {{
  %idp = getelementptr i8, ptr %w, i64 {at.W_BARRIER}
  %id = load i32, ptr %idp, align 4
  %cp = getelementptr i8, ptr %w, i64 {at.W_COUNT}
  %count = load i32, ptr %cp, align 4
  %kp = getelementptr i8, ptr %w, i64 {at.W_KIND}
  %kind = load i32, ptr %kp, align 4
  %idw = zext i32 %id to i64
  %o = mul i64 %idw, {at.BARRIER_BYTES}
  %o1 = add i64 %o, {at.B_BARRIERS}
  %bar = getelementptr i8, ptr %b, i64 %o1
  %old = load i32, ptr %bar, align 4
  %ep = getelementptr i8, ptr %bar, i64 {at.BAR_EXPECTED}
  %first = icmp eq i32 %old, 0
  br i1 %first, label %open, label %check
open:
  store i32 %count, ptr %ep, align 4
  br label %join
check:
  %expected0 = load i32, ptr %ep, align 4
  %agree = icmp eq i32 %expected0, %count
  br i1 %agree, label %join, label %wrong
wrong:
  ret i32 {at.E_BARRIER}
join:
  %arrived = add i32 %old, 1
  store i32 %arrived, ptr %bar, align 4
  %wt = getelementptr i8, ptr %w, i64 {at.W_TRUE}
  %wn = getelementptr i8, ptr %w, i64 {at.W_THREADS}
  %bt = getelementptr i8, ptr %bar, i64 {at.BAR_TRUE}
  %bn = getelementptr i8, ptr %bar, i64 {at.BAR_THREADS}
  %t0 = load i32, ptr %wt, align 4
  %t1 = load i32, ptr %bt, align 4
  %t2 = add i32 %t0, %t1
  store i32 %t2, ptr %bt, align 4
  store i32 0, ptr %wt, align 4
  %n0 = load i32, ptr %wn, align 4
  %n1 = load i32, ptr %bn, align 4
  %n2 = add i32 %n0, %n1
  store i32 %n2, ptr %bn, align 4
  store i32 0, ptr %wn, align 4
  %passes = icmp eq i32 %kind, {at.ARRIVE}
  br i1 %passes, label %pass, label %park
pass:
  call void @unpark(ptr %w)
  br label %count.up
park:
  %status = getelementptr i8, ptr %b, i64 {at.B_STATUS}
  %sp = getelementptr i32, ptr %status, i32 %i
  store i32 {at.PARKED}, ptr %sp, align 4
  br label %count.up
count.up:
  %lp = getelementptr i8, ptr %b, i64 {at.B_LIVE}
  %live = load i32, ptr %lp, align 4
  %everyone = icmp eq i32 %count, 0
  %needed = select i1 %everyone, i32 %live, i32 %count
  %full = icmp uge i32 %arrived, %needed
  br i1 %full, label %release, label %done
release:
  call void @complete(ptr %l, ptr %b, i32 %id, i32 %warps)
  br label %done
done:
  ret i32 0
}}

; A warp has returned: barriers that wait for every living warp may be complete now.
define internal void @depart(ptr %l, ptr %b, i32 %i, i32 %warps) {{
entry:
  %status = getelementptr i8, ptr %b, i64 {at.B_STATUS}
  %sp = getelementptr i32, ptr %status, i32 %i
  store i32 {at.DONE}, ptr %sp, align 4
  %lp = getelementptr i8, ptr %b, i64 {at.B_LIVE}
  %l0 = load i32, ptr %lp, align 4
  %live = sub i32 %l0, 1
  store i32 %live, ptr %lp, align 4
  %none = icmp eq i32 %live, 0
  br i1 %none, label %done, label %loop
loop:
  %id = phi i32 [ 0, %entry ], [ %id1, %next ]
  %idw = zext i32 %id to i64
  %o = mul i64 %idw, {at.BARRIER_BYTES}
  %o1 = add i64 %o, {at.B_BARRIERS}
  %bar = getelementptr i8, ptr %b, i64 %o1
  %arrived = load i32, ptr %bar, align 4
  %ep = getelementptr i8, ptr %bar, i64 {at.BAR_EXPECTED}
  %expected = load i32, ptr %ep, align 4
  %some = icmp ne i32 %arrived, 0
  %everyone = icmp eq i32 %expected, 0
  %reached = icmp uge i32 %arrived, %live
  %x = and i1 %some, %everyone
  %y = and i1 %x, %reached
  br i1 %y, label %release, label %next
release:
  call void @complete(ptr %l, ptr %b, i32 %id, i32 %warps)
  br label %next
next:
  %id1 = add i32 %id, 1
  %more = icmp ult i32 %id1, 16
  br i1 %more, label %loop, label %done
done:
  ret void
}}

; Begins a block: poisoned shared memory, all warps at their first instruction.
define internal void @begin(ptr %l, ptr %b, i64 %number) {{
entry:
  %sm = load ptr, ptr %b, align 8
  %shp = getelementptr i8, ptr %l, i64 {at.L_SHARED}
  %bytes = load i64, ptr %shp, align 8
  call void @llvm.memset.p0.i64(ptr %sm, i8 {at.POISON}, i64 %bytes, i1 false)
  %gxp = getelementptr i8, ptr %l, i64 {at.L_NCTAID}
  %gyp = getelementptr i8, ptr %l, i64 {at.L_NCTAID + 4}
  %gx = load i32, ptr %gxp, align 4
  %gy = load i32, ptr %gyp, align 4
  %n = trunc i64 %number to i32
  %x = urem i32 %n, %gx
  %yz = udiv i32 %n, %gx
  %y = urem i32 %yz, %gy
  %z = udiv i32 %yz, %gy
  %xp = getelementptr i8, ptr %b, i64 {at.B_CTAID}
  %yp = getelementptr i8, ptr %b, i64 {at.B_CTAID + 4}
  %zp = getelementptr i8, ptr %b, i64 {at.B_CTAID + 8}
  store i32 %x, ptr %xp, align 4
  store i32 %y, ptr %yp, align 4
  store i32 %z, ptr %zp, align 4
  %seedp = getelementptr i8, ptr %l, i64 {at.L_SEED}
  %seed = load i64, ptr %seedp, align 8
  %g = mul i64 %number, {_GOLDEN - (1 << 64)}
  %s1 = add i64 %seed, %g
  %rp = getelementptr i8, ptr %b, i64 {at.B_RANDOM}
  store i64 %s1, ptr %rp, align 8
  %wp = getelementptr i8, ptr %l, i64 {at.L_WARPS}
  %warps = load i32, ptr %wp, align 4
  %lp = getelementptr i8, ptr %b, i64 {at.B_LIVE}
  store i32 %warps, ptr %lp, align 4
  %stp = getelementptr i8, ptr %b, i64 {at.B_STALLED}
  store i32 0, ptr %stp, align 4
  %np = getelementptr i8, ptr %b, i64 {at.B_NUMBER}
  store i64 %number, ptr %np, align 8
  %bars = getelementptr i8, ptr %b, i64 {at.B_BARRIERS}
  call void @llvm.memset.p0.i64(ptr %bars, i8 0, i64 {16 * at.BARRIER_BYTES}, i1 false)
  %order = getelementptr i8, ptr %b, i64 {at.B_ORDER}
  %status = getelementptr i8, ptr %b, i64 {at.B_STATUS}
  %tidsp = getelementptr i8, ptr %l, i64 {at.L_TIDS}
  %tids = load ptr, ptr %tidsp, align 8
  %lastp = getelementptr i8, ptr %l, i64 {at.L_LAST_LANES}
  %lastlanes = load i32, ptr %lastp, align 4
  %last = sub i32 %warps, 1
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %op = getelementptr i32, ptr %order, i32 %i
  store i32 %i, ptr %op, align 4
  %sp = getelementptr i32, ptr %status, i32 %i
  store i32 {at.READY}, ptr %sp, align 4
  %w = call ptr @warp.record(ptr %l, ptr %b, i32 %i)
  %islast = icmp eq i32 %i, %last
  %lanes = select i1 %islast, i32 %lastlanes, i32 -1
  %there = bitcast i32 %lanes to <32 x i1>
  %pc = select <32 x i1> %there, <32 x i16> zeroinitializer, <32 x i16> splat (i16 {at.PC_DONE})
  store <32 x i16> %pc, ptr %w, align 64
  %every = icmp eq i32 %lanes, -1
  %whole = select i1 %every, i32 0, i32 {at.NOT_WHOLE}
  %wholep = getelementptr i8, ptr %w, i64 {at.W_WHOLE}
  store i32 %whole, ptr %wholep, align 4
  %ip = getelementptr i8, ptr %w, i64 {at.W_INDEX}
  store i32 %i, ptr %ip, align 4
  %tp = getelementptr i8, ptr %w, i64 {at.W_TRUE}
  store i64 0, ptr %tp, align 4
  %iw = zext i32 %i to i64
  %to = mul i64 %iw, 384
  %t = getelementptr i8, ptr %tids, i64 %to
  %wtp = getelementptr i8, ptr %w, i64 {at.W_TIDS}
  store ptr %t, ptr %wtp, align 8
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %warps
  br i1 %more, label %loop, label %done
done:
  ret void
}}

; Gives every warp that can run its turn, in a new order each round, until the block is done or gives way.
; A `fresh` block begins with rounds that keep no account of barriers, as long as all its warps do the same:
; wait at barrier 0, or return. At the first that does not, what the round has skipped is made up for.
define internal i32 @resume(ptr %l, ptr %b, i1 %fresh) {{
entry:
  %wsp = getelementptr i8, ptr %l, i64 {at.L_WARPS}
  %warps = load i32, ptr %wsp, align 4
  %qp = getelementptr i8, ptr %l, i64 {at.L_QUANTUM}
  %quantum = load i64, ptr %qp, align 8
  %slp = getelementptr i8, ptr %l, i64 {at.L_STALLS}
  %limit = load i64, ptr %slp, align 8
  %livep = getelementptr i8, ptr %b, i64 {at.B_LIVE}
  %status = getelementptr i8, ptr %b, i64 {at.B_STATUS}
  %order = getelementptr i8, ptr %b, i64 {at.B_ORDER}
  %stepsp = getelementptr i8, ptr %l, i64 {at.L_STEPS}
  %warpp = getelementptr i8, ptr %l, i64 {at.L_WARP}
  %warp = load ptr, ptr %warpp, align 8
  %bytesp = getelementptr i8, ptr %l, i64 {at.L_WARP_BYTES}
  %bytes = load i64, ptr %bytesp, align 8
  %warps.at = getelementptr i8, ptr %b, i64 {at.B_WARPS}
  %turnp = getelementptr i8, ptr %b, i64 {at.B_TURN}
  br i1 %fresh, label %brisk, label %round
brisk:
  call void @shuffle(ptr %b, i32 %warps)
  br label %step
step:
  %q = phi i32 [ 0, %brisk ], [ %q1, %alike ]
  %before = phi i32 [ {at.RC_ERROR}, %brisk ], [ %qrc, %alike ]
  %qop = getelementptr i32, ptr %order, i32 %q
  %qi = load i32, ptr %qop, align 4
  %qiw = zext i32 %qi to i64
  %qskip = mul i64 %qiw, %bytes
  %qw = getelementptr i8, ptr %warps.at, i64 %qskip
  %qfp = getelementptr i8, ptr %qw, i64 {at.W_FUEL}
  store i64 %quantum, ptr %qfp, align 8
  store i32 %q, ptr %turnp, align 4
  %qrc = call i32 %warp(ptr %qw, ptr %b, ptr %l)
  %start = icmp eq i32 %q, 0
  %agrees = icmp eq i32 %qrc, %before
  %goes = or i1 %start, %agrees
  br i1 %goes, label %known, label %make.up
known:
  switch i32 %qrc, label %make.up [ i32 {at.RC_DONE}, label %alike
                                    i32 {at.RC_BARRIER}, label %waits ]
waits:                                             ; at barrier 0 of the whole block, and at no reduction?
  %qap = getelementptr i8, ptr %qw, i64 {at.W_BARRIER}
  %which = load i64, ptr %qap, align 8               ; the barrier's number and its count
  %qkp = getelementptr i8, ptr %qw, i64 {at.W_KIND}
  %qkind = load i32, ptr %qkp, align 4
  %qkindw = zext i32 %qkind to i64
  %special = or i64 %which, %qkindw
  %simple = icmp eq i64 %special, 0                  ; SYNC is 0
  br i1 %simple, label %passes, label %make.up
passes:
  %qwp = getelementptr i8, ptr %qw, i64 {at.W_WHOLE}
  %qwhole = load i32, ptr %qwp, align 4
  %apart = icmp eq i32 %qwhole, {at.NOT_WHOLE}
  br i1 %apart, label %unparks, label %alike
unparks:
  call void @unpark(ptr %qw)
  br label %alike
alike:
  %q1 = add i32 %q, 1
  %qmore = icmp ult i32 %q1, %warps
  br i1 %qmore, label %step, label %brisk.end
brisk.end:
  %returned.all = icmp eq i32 %qrc, {at.RC_DONE}
  br i1 %returned.all, label %done, label %brisk
make.up:                                           ; the turns before this one, all of which ended alike
  %m = phi i32 [ 0, %step ], [ 0, %known ], [ 0, %waits ], [ %m1, %made ]
  %some = icmp ne i32 %q, 0
  %m.more = icmp ult i32 %m, %q
  br i1 %m.more, label %make, label %handle
make:
  %mop = getelementptr i32, ptr %order, i32 %m
  %mi = load i32, ptr %mop, align 4
  %mw = call ptr @warp.record(ptr %l, ptr %b, i32 %mi)
  %m1 = add i32 %m, 1
  %gone = icmp eq i32 %before, {at.RC_DONE}
  br i1 %gone, label %make.depart, label %make.arrive
make.depart:
  call void @depart(ptr %l, ptr %b, i32 %mi, i32 %warps)
  br label %made
make.arrive:
  %mark = call i32 @arrive(ptr %l, ptr %b, ptr %mw, i32 %mi, i32 %warps)
  br label %made
made:
  br label %make.up
round:
  %stalls = phi i64 [ 0, %entry ], [ %stalls1, %round.done ]
  call void @shuffle(ptr %b, i32 %warps)
  br label %turn
turn:
  %ko = phi i32 [ 0, %round ], [ %k1, %turn.done ]
  %rano = phi i1 [ false, %round ], [ %ran1, %turn.done ]
  %movedo = phi i1 [ false, %round ], [ %moved1, %turn.done ]
  %stallso = phi i64 [ %stalls, %round ], [ %stalls.then, %turn.done ]
  %op = getelementptr i32, ptr %order, i32 %ko
  %io = load i32, ptr %op, align 4
  %sp = getelementptr i32, ptr %status, i32 %io
  %s = load i32, ptr %sp, align 4
  %ready = icmp eq i32 %s, {at.READY}
  br i1 %ready, label %go, label %turn.skip
turn.skip:
  br label %turn.done
go:
  %wo = call ptr @warp.record(ptr %l, ptr %b, i32 %io)
  %fp = getelementptr i8, ptr %wo, i64 {at.W_FUEL}
  store i64 %quantum, ptr %fp, align 8
  store i32 %ko, ptr %turnp, align 4
  %rco = call i32 %warp(ptr %wo, ptr %b, ptr %l)
  br label %handle
handle:
  %k = phi i32 [ %ko, %go ], [ %q, %make.up ]
  %i = phi i32 [ %io, %go ], [ %qi, %make.up ]
  %w = phi ptr [ %wo, %go ], [ %qw, %make.up ]
  %rc = phi i32 [ %rco, %go ], [ %qrc, %make.up ]
  %ran = phi i1 [ %rano, %go ], [ true, %make.up ]
  %moved = phi i1 [ %movedo, %go ], [ %some, %make.up ]
  %stalls.now = phi i64 [ %stallso, %go ], [ 0, %make.up ]
  switch i32 %rc, label %failed [ i32 {at.RC_DONE}, label %returned
                                  i32 {at.RC_BARRIER}, label %barrier
                                  i32 {at.RC_QUANTUM}, label %spent ]
returned:
  call void @depart(ptr %l, ptr %b, i32 %i, i32 %warps)
  br label %turn.done
barrier:
  %e = call i32 @arrive(ptr %l, ptr %b, ptr %w, i32 %i, i32 %warps)
  %bad = icmp ne i32 %e, 0
  br i1 %bad, label %misuse, label %turn.done
misuse:
  call void @fail(ptr %w, ptr %l, i32 %e, i32 -2, i32 0, i64 0)
  ret i32 {at.RC_ERROR}
spent:
  %left = load i64, ptr %stepsp, align 8
  %left1 = sub i64 %left, %quantum
  store i64 %left1, ptr %stepsp, align 8
  %broke = icmp slt i64 %left1, 0
  br i1 %broke, label %exhausted, label %turn.done
exhausted:
  call void @fail(ptr %w, ptr %l, i32 {at.E_STEPS}, i32 -2, i32 0, i64 0)
  ret i32 {at.RC_ERROR}
failed:
  ret i32 {at.RC_ERROR}
turn.done:
  %kd = phi i32 [ %ko, %turn.skip ], [ %k, %returned ], [ %k, %barrier ], [ %k, %spent ]
  %id = phi i32 [ %io, %turn.skip ], [ %i, %returned ], [ %i, %barrier ], [ %i, %spent ]
  %ran1 = phi i1 [ %rano, %turn.skip ], [ true, %returned ], [ true, %barrier ], [ true, %spent ]
  %moved1 = phi i1 [ %movedo, %turn.skip ], [ true, %returned ], [ true, %barrier ], [ %moved, %spent ]
  %stalls.then = phi i64 [ %stallso, %turn.skip ], [ 0, %returned ], [ 0, %barrier ], [ %stalls.now, %spent ]
  %k1 = add i32 %kd, 1
  %more = icmp ult i32 %k1, %warps
  br i1 %more, label %turn, label %round.end
round.end:
  %live = load i32, ptr %livep, align 4
  %over = icmp eq i32 %live, 0
  br i1 %over, label %done, label %alive
done:
  ret i32 {at.RC_DONE}
alive:
  br i1 %ran1, label %round.done, label %deadlock
deadlock:                                          ; everyone left waits at a barrier that cannot fill
  %w0 = call ptr @warp.record(ptr %l, ptr %b, i32 %id)
  call void @fail(ptr %w0, ptr %l, i32 {at.E_BLOCK_DEADLOCK}, i32 -2, i32 0, i64 0)
  ret i32 {at.RC_ERROR}
round.done:
  %plus = add i64 %stalls.then, 1
  %stalls1 = select i1 %moved1, i64 0, i64 %plus
  %stuck = icmp uge i64 %stalls1, %limit
  br i1 %stuck, label %yield, label %round
yield:
  ret i32 {at.RC_QUANTUM}
}}

define i64 @run(ptr %l, ptr %b, ptr %order, i64 %first, i64 %last) {{
entry:
  %fp.saved = alloca i32, align 4
  %fp.clean = alloca i32, align 4
{floating_point_control(restore=False)}
  br label %loop
loop:
  %k = phi i64 [ %first, %entry ], [ %k1, %next ]
  %more = icmp ult i64 %k, %last
  br i1 %more, label %block, label %done
block:
  %op = getelementptr i64, ptr %order, i64 %k
  %number = load i64, ptr %op, align 8
  %k1 = add i64 %k, 1
  %another = icmp ult i64 %k1, %last
  %k2 = select i1 %another, i64 %k1, i64 %k
  %ap = getelementptr i64, ptr %order, i64 %k2
  %following = load i64, ptr %ap, align 8
  %far = sub i64 %following, %number
  %afterp = getelementptr i8, ptr %b, i64 {at.B_AFTER}
  store i64 %far, ptr %afterp, align 8
  call void @begin(ptr %l, ptr %b, i64 %number)
  %rc = call i32 @resume(ptr %l, ptr %b, i1 true)
  %fine = icmp eq i32 %rc, {at.RC_DONE}
  br i1 %fine, label %next, label %done
next:
  br label %loop
done:
{floating_point_control(restore=True)}
  ret i64 %k
}}

; How many warps of the grid lie between the one whose turn it is and the one that comes next, as far as that
; is known: of the next block its first warp.
define i64 @ahead(ptr %w, ptr %b, ptr %l) noinline {{
entry:
  %ip = getelementptr i8, ptr %w, i64 {at.W_INDEX}
  %i = load i32, ptr %ip, align 4
  %iw = zext i32 %i to i64
  %wsp = getelementptr i8, ptr %l, i64 {at.L_WARPS}
  %warps = load i32, ptr %wsp, align 4
  %turnp = getelementptr i8, ptr %b, i64 {at.B_TURN}
  %q = load i32, ptr %turnp, align 4
  %q1 = add i32 %q, 1
  %inside = icmp ult i32 %q1, %warps
  br i1 %inside, label %own, label %other
own:
  %order = getelementptr i8, ptr %b, i64 {at.B_ORDER}
  %op = getelementptr i32, ptr %order, i32 %q1
  %next = load i32, ptr %op, align 4
  %nextw = zext i32 %next to i64
  %d = sub i64 %nextw, %iw
  ret i64 %d
other:
  %ap = getelementptr i8, ptr %b, i64 {at.B_AFTER}
  %blocks = load i64, ptr %ap, align 8
  %warpsw = zext i32 %warps to i64
  %far = mul i64 %blocks, %warpsw
  %d2 = sub i64 %far, %iw
  ret i64 %d2
}}

; Goes on with a block that gave way.
define i32 @again(ptr %l, ptr %b) {{
  %fp.saved = alloca i32, align 4
  %fp.clean = alloca i32, align 4
{floating_point_control(restore=False)}
  %rc = call i32 @resume(ptr %l, ptr %b, i1 false)
{floating_point_control(restore=True)}
  ret i32 %rc
}}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{declarations()}
"""
