"""Whether the arrival orders of a stage may be replayed from what one repetition has recorded, and why so.

What is recorded of a warp is its *stream*: the writes that it makes to global memory, atomics among them,
each with addresses and operands, and how each of its turns ended. A replay runs the same scheduler from
the same seed and lets it play the streams in place of the warps (`keeping.py`). The scheduler sees nothing
of a warp but how its turns end; so, if every stream is the same in every order, the replay makes the same
writes by the same code in the same sequence as an execution in full, and memory ends with the same bits.

A stream is the same in every order if all that the warp reads is. Look at the first event, over all orders
and warps, that differs from the recording: up to there every warp has made a part of its recorded writes
and no others. What the event depends on was therefore

- a register or local memory, which a warp sets itself: nothing else reaches them as long as nothing is
  read that was never set (`unfit` refuses what may);
- an input, a constant or a parameter, which never change;
- global memory. The stage reads no region that it writes (TOUCH_READ and TOUCH_WRITTEN never meet), and
  before a repetition is replayed those it reads are compared with what they held when it was recorded;
- the old value of an atomic: that counts as reading the region, which the stage writes;
- shared memory. No two warps touch one word, one of them writing, without a barrier of the whole block
  between them (LOG_CLASH). So every write that a read can see is either of the same warp or lies before a
  barrier that all have passed, and comes in one order;
- the result of a barrier's reduction: one that the whole block takes part in has one, others are refused
  (LOG_BARRIER);
- the moment: clocks and the like are refused altogether.

None of them can differ, so no event does. The order of a block's warps counts only where two of them write
between the same two barriers; a block in which none do is played without its turns (G_SOLID), if no turn
of it was ended by the scheduler.

What is left out: blocks that give way to each other, since what is kept of barriers would be of several at
once; atomics in shared memory, whose sum a block goes on to use, so that its operands depend on the order
of its own warps.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprodb.executors.model import layout
from reprodb.executors.model.flow import Flow
from reprodb.executors.model.ptx import Instruction, Operand, Reg, Vec

NO_ARRIVALS = "no atomics in global memory"


def unfit(flow: Flow, registers: frozenset[str], local_bytes: int, unread: frozenset[str]) -> str:
    """Why a stage cannot be replayed as far as its code tells, empty if it may be tried.

    `registers` are the declared ones, `unread` those that nobody reads.
    """
    instructions = [i for b in flow.blocks for i in (*b.instructions, *((b.end,) if b.end else ()))]
    atomics = [i for i in instructions if i.base in ("atom", "red")]
    if not any("shared" not in _space(i) for i in atomics):
        return NO_ARRIVALS
    for ins in atomics:
        if ins.base == "atom" and any(name not in unread for name in _names(ins.operands[:1])):
            return f"{ins.opcode} at {ins.where} uses the value that it finds"
    for ins in atomics:
        if "shared" in _space(ins):
            return f"{ins.opcode} at {ins.where}: what a block adds depends on the order of its own warps"
    if local_bytes:
        return "threads keep local memory, which may be read before it is set"
    early = sorted(name for name in flow.live_in[0] if name in registers) if flow.live_in else []
    if early:
        return f"register {early[0]} may be read before it is set"
    return ""


def broken(flags: int, touched: Iterable[tuple[str, int]]) -> str:
    """Why the recording does not prove that streams are the same in every order, empty if it does.

    `flags` are those of the log; `touched` has for each region its name and what the stage did with it.
    """
    if flags & layout.LOG_FULL:
        return "its writes are too many to be kept"
    if flags & layout.LOG_CLASH:
        return "warps of a block meet in shared memory without a barrier between them"
    if flags & layout.LOG_BARRIER:
        return "a barrier of some warps reduces what they bring"
    both = layout.TOUCH_READ | layout.TOUCH_WRITTEN
    for name, how in touched:
        if how & both == both:
            return f"it reads {name}, which it writes"
    return ""


def _space(ins: Instruction) -> str:
    return next((p for p in ins.parts if p.startswith(("global", "shared"))), "generic")


def _names(operands: Iterable[Operand]) -> Iterable[str]:
    for operand in operands:
        match operand:
            case Reg(name):
                yield name
            case Vec(items):
                yield from _names(items)
