"""Instructions that the lanes of a warp execute together: shuffles, votes, matches and reductions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

from tests.model.reference.bits import mask, signed
from tests.model.reference.errors import Refused
from tests.model.reference.parse import Ins
from tests.model.reference.thread import Thread, width_of

WARP_OPS = ("shfl", "vote", "match", "redux", "activemask")


def is_warp_op(ins: Ins) -> bool:
    return ins.op in WARP_OPS or (ins.op in ("bar", "barrier") and ins.mods[0] == "warp")


def member_mask(t: Thread, ins: Ins) -> int:
    """The lanes that the instruction names."""
    return t.read(ins.args[0] if ins.op in ("bar", "barrier") else ins.args[-1], "b32")


def execute(ins: Ins, group: Sequence[Thread]) -> None:
    """One warp instruction by all threads of the group, which are in lane order."""
    TABLE.get(ins.op, wait)(ins, group)


def wait(ins: Ins, group: Sequence[Thread]) -> None:
    """bar.warp.sync: being here together is all."""


def active(ins: Ins, group: Sequence[Thread]) -> None:
    lanes = sum(1 << t.lane for t in group)
    for t in group:
        t.write(ins.args[0], "b32", lanes)


def shuffle(ins: Ins, group: Sequence[Thread]) -> None:
    sources = {t.lane: t.read(ins.args[1], "b32") for t in group}
    results = []
    for t in group:
        b, c = t.read(ins.args[2], "b32") & 31, t.read(ins.args[3], "b32")
        clamp, segment = c & 31, c >> 8 & 31
        highest = (t.lane & segment) | (clamp & ~segment)
        lowest = t.lane & segment
        lane, inside = {
            "up": (t.lane - b, t.lane - b >= highest),
            "down": (t.lane + b, t.lane + b <= highest),
            "bfly": (t.lane ^ b, t.lane ^ b <= highest),
            "idx": (lowest | (b & ~segment), lowest | (b & ~segment) <= highest),
        }[ins.mods[1]]
        # A lane that takes no part has no value to give; PTX leaves open what arrives.
        results.append((sources.get(lane if inside else t.lane, sources[t.lane]), inside))
    for t, (bits, inside) in zip(group, results, strict=True):
        target = ins.args[0]
        if target.kind == "pair":
            t.write(target.items[1], "pred", int(inside))
            target = target.items[0]
        t.write(target, "b32", bits)


def vote(ins: Ins, group: Sequence[Thread]) -> None:
    votes = [bool(t.read(ins.args[1], "pred")) for t in group]
    word = ins.mods[1]
    if word == "ballot":
        answer, type_ = sum(1 << t.lane for t, v in zip(group, votes, strict=True) if v), "b32"
    else:
        answer, type_ = int({"all": all(votes), "any": any(votes), "uni": len(set(votes)) == 1}[word]), "pred"
    for t in group:
        t.write(ins.args[0], type_, answer)


def match(ins: Ins, group: Sequence[Thread]) -> None:
    values = [t.read(ins.args[1], ins.type) for t in group]
    everybody = sum(1 << t.lane for t in group)
    same = len(set(values)) == 1
    for t, v in zip(group, values, strict=True):
        target = ins.args[0]
        if target.kind == "pair":
            t.write(target.items[1], "pred", int(same))
            target = target.items[0]
        if ins.mods[0] == "all":
            t.write(target, "b32", everybody if same else 0)
        else:
            t.write(target, "b32", sum(1 << u.lane for u, w in zip(group, values, strict=True) if w == v))


def reduction(ins: Ins, group: Sequence[Thread]) -> None:
    type_, width = ins.type, width_of(ins.type)
    if type_ not in ("u32", "s32", "b32"):
        raise Refused(f"{ins.text!r}")
    values = [
        signed(t.read(ins.args[1], type_), width) if type_ == "s32" else t.read(ins.args[1], type_)
        for t in group
    ]
    word = ins.mods[1]
    answer = reduce(COMBINE[word], values)
    for t in group:
        t.write(ins.args[0], type_, answer & mask(width))


COMBINE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "and": operator.and_,
    "max": max,
    "min": min,
    "or": operator.or_,
    "xor": operator.xor,
}
TABLE: dict[str, Callable[[Ins, Sequence[Thread]], None]] = {
    "activemask": active,
    "match": match,
    "redux": reduction,
    "shfl": shuffle,
    "vote": vote,
}
