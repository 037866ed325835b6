"""The opcode table: what the model executes, written as the PTX specification writes it.

In a pattern `{.x}` may be left out, `.x` is one of a class of modifiers where CLASSES has it, and stands
for itself otherwise. What no row matches is refused. Approximate instructions have no row: PTX does not
define their bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from reprodb.executors.model import atomics, barriers, convert, floats, integers, memory, warp
from reprodb.executors.model.emit import Emit, Mods
from reprodb.executors.model.ptx import Instruction, Mem, Sym

Emitter = Callable[[Emit, Mods], None]

# Class → the name under which emitters find the modifier, and what it may be.
CLASSES: dict[str, tuple[str, str]] = {
    "int": ("type", "u16 s16 u32 s32 u64 s64"),
    "int32": ("type", "u32 s32"),
    "int3264": ("type", "u32 s32 u64 s64"),
    "sint": ("type", "s16 s32 s64"),
    "carried": ("type", "u32 s32 u64 s64"),
    "bits": ("type", "b16 b32 b64"),
    "bits3264": ("type", "b32 b64"),
    "logic": ("type", "pred b16 b32 b64"),
    "shifted": ("type", "b16 b32 b64 u16 u32 u64 s16 s32 s64"),
    "moved": ("type", "pred b16 b32 b64 u16 u32 u64 s16 s32 s64 f16 bf16 f16x2 bf16x2 f32 f64"),
    "chosen": ("type", "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"),
    "compared": ("type", "b16 b32 b64 u16 u32 u64 s16 s32 s64"),
    "float": ("type", "f32 f64"),
    "half": ("type", "f16 bf16"),
    "halves": ("type", "f16x2 bf16x2"),
    "scalar": ("type", "f16 bf16 f32 f64"),
    "ctype": ("ctype", "s32 f32"),
    "dtype": ("dtype", "u32 s32 f32"),
    "anyint": ("type", "u8 s8 u16 s16 u32 s32 u64 s64"),
    "toint": ("dtype", "u8 s8 u16 s16 u32 s32 u64 s64"),
    "tofloat": ("dtype", "f16 bf16 f32 f64"),
    "tohalves": ("dtype", "f16x2 bf16x2"),
    "rnd": ("rnd", "rn rz rm rp"),
    "integral": ("rnd", "rni rzi rmi rpi"),
    "anyrnd": ("rnd", "rn rz rm rp rni rzi rmi rpi"),
    "part": ("part", "lo hi wide"),
    "half_part": ("part", "lo hi"),
    "cmp": ("cmp", "eq ne lt le gt ge lo ls hi hs"),
    "fcmp": ("cmp", "eq ne lt le gt ge equ neu ltu leu gtu geu num nan"),
    "bool": ("bool", "and or xor"),
    "dir": ("dir", "l r"),
    "mode": ("mode", "clamp wrap"),
    "permute": ("mode", "f4e b4e rc8 ecl ecr rc16"),
    "test": ("test", "finite infinite number notanumber normal subnormal"),
    "sem": ("sem", "weak volatile relaxed acquire release acq_rel sc"),
    "scope": ("scope", "cta cluster gpu sys"),
    "space": ("space", "global shared shared::cta local const param param::entry param::func"),
    "cop": ("cop", "ca cg cs lu cv wb wt"),
    "l1": ("l1", "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"),
    "l2": ("l2", "L2::evict_normal L2::evict_first L2::evict_last"),
    "hint": ("hint", "L2::cache_hint"),
    "fetch": ("fetch", "L2::64B L2::128B L2::256B"),
    "vec": ("vec", "v2 v4 v8"),
    "stored": ("type", "b8 u8 s8 b16 u16 s16 b32 u32 s32 b64 u64 s64 f16 bf16 f16x2 bf16x2 f32 f64"),
    "window": ("space", "global shared shared::cta shared::cluster local const param"),
    "atomic": ("op", "and or xor exch add inc dec min max cas"),
    "operated": ("type", "b16 b32 b64 u32 u64 s32 s64 f32 f64 f16 bf16 f16x2 bf16x2"),
    "shuffle": ("mode", "up down bfly idx"),
    "vote": ("mode", "all any uni ballot"),
    "voted": ("type", "pred b32"),
    "match": ("mode", "any all"),
    "reduce": ("op", "add min max and or xor"),
    "reduced": ("type", "u32 s32 b32"),
    "dot_a": ("atype", "u32 s32"),
    "dot_b": ("type", "u32 s32"),
    "level": ("level", "cta gl sys"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. A `lanewise` instruction computes each lane from that lane's sources alone."""

    pattern: str
    emit: Emitter
    lanewise: bool = True


def _lane(pattern: str, emit: object) -> Row:
    return Row(pattern, cast(Emitter, emit))


def _warp(pattern: str, emit: object) -> Row:
    return Row(pattern, cast(Emitter, emit), lanewise=False)


TABLE: tuple[Row, ...] = (
    # Integer arithmetic.
    _lane("add.int", integers.plain("add")),
    _lane("sub.int", integers.plain("sub")),
    _lane("add.sat.s32", integers.saturating("sadd.sat")),
    _lane("sub.sat.s32", integers.saturating("ssub.sat")),
    _lane("mul.part.int", integers.mul),
    _lane("mad.part.int", integers.mad),
    _lane("mad.half_part.sat.int", integers.mad),
    _lane("mul24.half_part.int32", integers.mul24),
    _lane("mad24.half_part.int32", integers.mul24),
    _lane("div.int", integers.div),
    _lane("rem.int", integers.div),
    _lane("abs.sint", integers.absolute),
    _lane("neg.sint", integers.neg),
    _lane("min{.relu}.int", integers.extreme),
    _lane("max{.relu}.int", integers.extreme),
    _lane("sad.int", integers.sad),
    _lane("dp4a.dot_a.dot_b", integers.dot4),
    _lane("dp2a.half_part.dot_a.dot_b", integers.dot2),
    _lane("add.cc.carried", integers.carry),
    _lane("addc{.cc}.carried", integers.carry),
    _lane("sub.cc.carried", integers.carry),
    _lane("subc{.cc}.carried", integers.carry),
    _lane("mad.half_part.cc.carried", integers.mad_carry),
    _lane("madc.half_part{.cc}.carried", integers.mad_carry),
    # Bits.
    _lane("and.logic", integers.logic),
    _lane("or.logic", integers.logic),
    _lane("xor.logic", integers.logic),
    _lane("not.logic", integers.complement),
    _lane("cnot.bits", integers.complement),
    _lane("shl.bits", integers.shift),
    _lane("shr.shifted", integers.shift),
    _lane("shf.dir.mode.b32", integers.funnel),
    _lane("popc.bits3264", integers.popc),
    _lane("clz.bits3264", integers.clz),
    _lane("brev.bits3264", integers.brev),
    _lane("bfind{.shiftamt}.int3264", integers.bfind),
    _lane("bfe.int3264", integers.bfe),
    _lane("bfi.bits3264", integers.bfi),
    _lane("bmsk.mode.b32", integers.bmsk),
    _lane("szext.mode.int32", integers.szext),
    _lane("prmt.b32{.permute}", integers.prmt),
    _lane("lop3{.bool}.b32", integers.lop3),
    # Moves, selections, comparisons.
    _lane("mov.moved", integers.mov),
    _lane("selp.chosen", integers.selp),
    _lane("slct{.ftz}.chosen.ctype", integers.slct),
    _lane("setp.cmp{.bool}.compared", integers.setp),
    _lane("set.cmp{.bool}.dtype.compared", integers.setp),
    _lane("setp.fcmp{.bool}{.ftz}.scalar", floats.setp),
    _lane("set.fcmp{.bool}{.ftz}.dtype.scalar", floats.setp),
    _lane("setp.fcmp{.bool}{.ftz}.halves", floats.setp_x2),
    # Floating point.
    _lane("add{.rnd}{.ftz}{.sat}.float", floats.binary("fadd")),
    _lane("sub{.rnd}{.ftz}{.sat}.float", floats.binary("fsub")),
    _lane("mul{.rnd}{.ftz}{.sat}.float", floats.binary("fmul")),
    _lane("div.rnd{.ftz}.float", floats.binary("fdiv")),
    _lane("rcp.rnd{.ftz}.float", floats.rcp),
    _lane("sqrt.rnd{.ftz}.float", floats.sqrt),
    _lane("fma.rnd{.ftz}{.sat}.float", floats.fma),
    _lane("mad.rnd{.ftz}{.sat}.float", floats.fma),
    _lane("add{.rn}{.ftz}{.sat}.half", floats.binary("fadd")),
    _lane("sub{.rn}{.ftz}{.sat}.half", floats.binary("fsub")),
    _lane("mul{.rn}{.ftz}{.sat}.half", floats.binary("fmul")),
    _lane("fma.rn{.ftz}{.sat}{.relu}.half", floats.fma),
    _lane("add{.rn}{.ftz}{.sat}.halves", floats.binary_x2("fadd")),
    _lane("sub{.rn}{.ftz}{.sat}.halves", floats.binary_x2("fsub")),
    _lane("mul{.rn}{.ftz}{.sat}.halves", floats.binary_x2("fmul")),
    _lane("fma.rn{.ftz}{.sat}{.relu}.halves", floats.fma_x2),
    _lane("neg{.ftz}.scalar", floats.sign_change),
    _lane("abs{.ftz}.scalar", floats.sign_change),
    _lane("neg{.ftz}.halves", floats.sign_change_x2),
    _lane("abs{.ftz}.halves", floats.sign_change_x2),
    _lane("min{.ftz}{.NaN}{.xorsign}{.abs}.scalar", floats.extreme),
    _lane("max{.ftz}{.NaN}{.xorsign}{.abs}.scalar", floats.extreme),
    _lane("min{.ftz}{.NaN}{.xorsign}{.abs}.halves", floats.extreme_x2),
    _lane("max{.ftz}{.NaN}{.xorsign}{.abs}.halves", floats.extreme_x2),
    _lane("copysign.float", floats.copysign),
    _lane("testp.test.float", floats.testp),
    # Conversions.
    _lane("cvt{.sat}.toint.anyint", integers.convert),
    _lane("cvt.integral{.ftz}{.sat}.toint.scalar", convert.float_to_int),
    _lane("cvt.rnd{.ftz}{.sat}.tofloat.anyint", convert.int_to_float),
    _lane("cvt{.anyrnd}{.ftz}{.relu}{.satfinite}{.sat}.tofloat.scalar", convert.float_to_float),
    _lane("cvt.rnd{.ftz}{.relu}{.satfinite}.tohalves.f32", convert.two_to_packed),
    _lane("cvt.rna.tf32.f32", convert.to_tf32),
    # Memory.
    _warp("ld{.sem}{.mmio}{.scope}{.space}{.cop}{.nc}{.l1}{.l2}{.hint}{.fetch}{.unified}{.vec}.stored",
          memory.load),
    _warp("ld.space.sem{.scope}{.vec}.stored", memory.load),  # the order that ptxas takes too
    _warp("st.space.sem{.scope}{.vec}.stored", memory.store),
    _warp("ldu{.space}{.vec}.stored", memory.load),
    _warp("st{.sem}{.mmio}{.scope}{.space}{.cop}{.l1}{.l2}{.hint}{.vec}.stored", memory.store),
    _warp("atom{.sem}{.scope}{.space}.atomic{.noftz}{.hint}.operated", atomics.atom),
    _warp("atom{.sem}{.scope}{.space}.atomic{.noftz}{.hint}{.vec}.operated", atomics.atom),
    _warp("red{.sem}{.scope}{.space}.atomic{.noftz}{.hint}{.vec}.operated", atomics.red),
    _lane("cvta{.to}.window.u64", memory.cvta),
    _lane("isspacep.window", memory.isspacep),
    _warp("membar.level", memory.nothing),
    _warp("fence{.sem}.scope", memory.nothing),
    _warp("prefetch{.space}.L1", memory.nothing),
    _warp("prefetch{.space}.L2", memory.nothing),
    _warp("prefetchu.L1", memory.nothing),
    _warp("nanosleep.u32", memory.nothing),
    # The warp.
    _warp("shfl.sync.shuffle.b32", warp.shfl),
    _warp("vote.sync.vote.voted", warp.vote),
    _warp("activemask.b32", warp.activemask),
    _warp("elect.sync", warp.elect),
    _warp("match.match.sync.bits3264", warp.match),
    _warp("redux.sync.reduce.reduced", warp.redux),
    _warp("bar.warp.sync", warp.warp_barrier),
    _warp("barresult.reduce", barriers.result),
    _warp("barresult.popc", barriers.result),
    _warp("trap", barriers.trap),
)  # fmt: skip

_PIECE = re.compile(r"\{\.(\w+)\}|\.(\w+)")


@lru_cache(maxsize=1)
def _by_base() -> dict[str, tuple[tuple[re.Pattern[str], Row], ...]]:
    """The table's rows by the word that their patterns begin with, as regular expressions."""
    found: dict[str, list[tuple[re.Pattern[str], Row]]] = {}
    for row in TABLE:
        base = re.split(r"[.{]", row.pattern, maxsplit=1)[0]
        rest = row.pattern[len(base) :]
        text = _PIECE.sub(_modifier, rest)
        found.setdefault(base, []).append((re.compile(text), row))
    return {base: tuple(rows) for base, rows in found.items()}


def _modifier(piece: re.Match[str]) -> str:
    optional, required = piece.groups()
    word = optional or required
    group, choices = CLASSES.get(word, (word, word))
    alternatives = "|".join(re.escape(c) for c in choices.split())
    return rf"(?:\.(?P<{group}>{alternatives}))" + ("?" if optional else "")


@lru_cache(maxsize=4096)
def lookup(opcode: str) -> tuple[Row, tuple[tuple[str, str], ...]] | None:
    """The row that an opcode matches, and its modifiers by group; None where none does."""
    base = opcode.split(".", 1)[0]
    for pattern, row in _by_base().get(base, ()):
        match = pattern.fullmatch(opcode[len(base) :])
        if match is not None:
            mods = {"op": base} | {k: v for k, v in match.groupdict().items() if v}
            return row, tuple(mods.items())
    return None


def is_lanewise(ins: Instruction) -> bool:
    """Whether an instruction computes each lane from that lane's sources, or reads kernel parameters."""
    found = lookup(ins.opcode)
    if found is None:
        return False
    row, mods = found
    if row.lanewise:
        return True
    address = ins.operands[1] if len(ins.operands) > 1 else None
    param = ins.base == "ld" and dict(mods).get("space", "").startswith("param")
    return param and isinstance(address, Mem) and isinstance(address.base, Sym)
