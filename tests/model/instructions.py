"""Single instructions as kernels, and the operands to try them on.

Each entry loads up to three 64-bit words a thread, takes the registers that the instruction needs from
them, runs it once, and stores what it gives, widened with zeros. The same PTX ran on an H200
(`h200_instructions.json`) and runs on the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

COUNT = 8192  # words an operand


@dataclass(frozen=True, slots=True)
class Case:
    """An opcode, the type of its result (`pred`, `b16`, `b32`, `b64`) and of its register operands.

    `formats` says of what kind of values each operand is drawn; `tail` is text after the register operands.
    """

    opcode: str
    result: str
    operands: tuple[str, ...]
    formats: tuple[str, ...]
    tail: str = ""

    @property
    def name(self) -> str:
        return (
            (self.opcode + self.tail).replace(", ", "_").replace(".", "_").replace("::", "_").replace("|", "")
        )


def _same(opcode: str, kind: str, count: int, fmt: str, tail: str = "") -> Case:
    return Case(opcode, kind, (kind,) * count, (fmt,) * count, tail)


_BITS = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}


def _bits(kind: str) -> str:
    if kind in _BITS:
        return _BITS[kind]
    return "b16" if kind[1:] == "8" else "b" + kind[1:]


def _arithmetic() -> list[Case]:
    found = []
    for mode in ("rn", "rz", "rp", "rm"):
        for op in ("add", "sub", "mul", "div"):
            found.append(_same(f"{op}.{mode}.f32", "b32", 2, "f32"))
            found.append(_same(f"{op}.{mode}.ftz.f32", "b32", 2, "f32"))
            found.append(_same(f"{op}.{mode}.f64", "b64", 2, "f64"))
        for kind in ("f32", "f64"):
            found.append(_same(f"fma.{mode}.{kind}", _bits(kind), 3, kind))
            found.append(_same(f"sqrt.{mode}.{kind}", _bits(kind), 1, kind))
            found.append(_same(f"rcp.{mode}.{kind}", _bits(kind), 1, kind))
        found.append(_same(f"fma.{mode}.ftz.f32", "b32", 3, "f32"))
        found.append(_same(f"fma.{mode}.sat.f32", "b32", 3, "f32"))
        found.append(_same(f"sqrt.{mode}.ftz.f32", "b32", 1, "f32"))
        found.append(_same(f"rcp.{mode}.ftz.f32", "b32", 1, "f32"))
    for op in ("add", "sub", "mul"):
        found.append(_same(f"{op}.sat.f32", "b32", 2, "f32"))
        found.append(_same(f"{op}.ftz.sat.f32", "b32", 2, "f32"))
    for fmt in ("f16", "bf16", "f16x2", "bf16x2"):
        for op in ("add", "sub", "mul"):
            found.append(_same(f"{op}.rn.{fmt}", _bits(fmt), 2, fmt))
        found.append(_same(f"fma.rn.{fmt}", _bits(fmt), 3, fmt))
        found.append(_same(f"fma.rn.relu.{fmt}", _bits(fmt), 3, fmt))
        for op in ("min", "max"):
            found.append(_same(f"{op}.{fmt}", _bits(fmt), 2, fmt))
            found.append(_same(f"{op}.NaN.{fmt}", _bits(fmt), 2, fmt))
    for fmt in ("f16", "f16x2"):
        for op in ("add", "sub", "mul"):
            found.append(_same(f"{op}.rn.ftz.{fmt}", _bits(fmt), 2, fmt))
            found.append(_same(f"{op}.rn.sat.{fmt}", _bits(fmt), 2, fmt))
        found.append(_same(f"fma.rn.ftz.{fmt}", _bits(fmt), 3, fmt))
        found.append(_same(f"fma.rn.sat.{fmt}", _bits(fmt), 3, fmt))
    for op in ("min", "max"):
        found.append(_same(f"{op}.f32", "b32", 2, "f32"))
        found.append(_same(f"{op}.ftz.f32", "b32", 2, "f32"))
        found.append(_same(f"{op}.NaN.f32", "b32", 2, "f32"))
        found.append(_same(f"{op}.xorsign.abs.f32", "b32", 2, "f32"))
        found.append(_same(f"{op}.NaN.xorsign.abs.f32", "b32", 2, "f32"))
        found.append(_same(f"{op}.f64", "b64", 2, "f64"))
    for op in ("neg", "abs"):
        for fmt in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
            found.append(_same(f"{op}.{fmt}", _bits(fmt), 1, fmt))
        found.append(_same(f"{op}.ftz.f32", "b32", 1, "f32"))
    found += [_same(f"copysign.{k}", _bits(k), 2, k) for k in ("f32", "f64")]
    for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        found += [Case(f"testp.{test}.{k}", "pred", (_bits(k),), (k,)) for k in ("f32", "f64")]
    for cmp in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        for fmt in ("f32", "f64", "f16", "bf16"):
            found.append(Case(f"setp.{cmp}.{fmt}", "pred", (_bits(fmt),) * 2, (fmt,) * 2))
        found.append(Case(f"setp.{cmp}.ftz.f32", "pred", ("b32",) * 2, ("f32",) * 2))
    found.append(Case("set.lt.u32.f32", "b32", ("b32",) * 2, ("f32",) * 2))
    found.append(Case("set.ge.f32.f32", "b32", ("b32",) * 2, ("f32",) * 2))
    found.append(Case("slct.b32.f32", "b32", ("b32",) * 3, ("u32", "u32", "f32")))
    found.append(Case("slct.ftz.b32.f32", "b32", ("b32",) * 3, ("u32", "u32", "f32")))
    return found


def _integers() -> list[Case]:
    found = []
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = _bits(kind)
        for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
            found.append(_same(f"{op}.{kind}", bits, 2, kind))
        found.append(_same(f"mad.lo.{kind}", bits, 3, kind))
        found.append(_same(f"mad.hi.{kind}", bits, 3, kind))
        found.append(_same(f"sad.{kind}", bits, 3, kind))
        found += [_same(f"{op}.{kind}", bits, 2, kind + "+") for op in ("div", "rem")]
        if kind[0] == "s":
            found += [_same(f"{op}.{kind}", bits, 1, kind) for op in ("abs", "neg")]
        for cmp in ("eq", "ne", "lt", "le", "gt", "ge"):
            found.append(Case(f"setp.{cmp}.{kind}", "pred", (bits,) * 2, (kind,) * 2))
        if kind[0] == "u":
            for cmp in ("lo", "ls", "hi", "hs"):
                found.append(Case(f"setp.{cmp}.{kind}", "pred", (bits,) * 2, (kind,) * 2))
        found.append(Case(f"shr.{kind}", bits, (bits, "b32"), (kind, "shift")))
        if bits != "b16":
            found.append(Case(f"bfind.{kind}", "b32", (bits,), (kind,)))
            found.append(Case(f"bfind.shiftamt.{kind}", "b32", (bits,), (kind,)))
            found.append(Case(f"bfe.{kind}", bits, (bits, "b32", "b32"), (kind, "field", "field")))
    for kind in ("u16", "s16", "u32", "s32"):
        wide = "b32" if kind[1:] == "16" else "b64"
        found.append(Case(f"mul.wide.{kind}", wide, (_bits(kind),) * 2, (kind,) * 2))
        found.append(Case(f"mad.wide.{kind}", wide, (_bits(kind),) * 2 + (wide,), (kind, kind, "u64")))
    found += [_same(f"{op}.sat.s32", "b32", 2, "s32") for op in ("add", "sub")]
    found.append(_same("mad.hi.sat.s32", "b32", 3, "s32"))
    for op in ("mul24.lo", "mul24.hi"):
        found += [_same(f"{op}.{k}", "b32", 2, k) for k in ("u32", "s32")]
    found += [_same(f"mad24.lo.{k}", "b32", 3, k) for k in ("u32", "s32")]
    for bits in ("b16", "b32", "b64"):
        fmt = "u" + bits[1:]
        found += [_same(f"{op}.{bits}", bits, 2, fmt) for op in ("and", "or", "xor")]
        found += [_same(f"{op}.{bits}", bits, 1, fmt) for op in ("not", "cnot")]
        found.append(Case(f"shl.{bits}", bits, (bits, "b32"), (fmt, "shift")))
    for bits in ("b32", "b64"):
        fmt = "u" + bits[1:]
        found += [Case(f"{op}.{bits}", "b32", (bits,), (fmt,)) for op in ("popc", "clz")]
        found.append(_same(f"brev.{bits}", bits, 1, fmt))
        found.append(Case(f"bfi.{bits}", bits, (bits, bits, "b32", "b32"), (fmt, fmt, "field", "field")))
    for mode in ("clamp", "wrap"):
        found += [Case(f"shf.{d}.{mode}.b32", "b32", ("b32",) * 3, ("u32", "u32", "shift")) for d in "lr"]
        found.append(Case(f"bmsk.{mode}.b32", "b32", ("b32",) * 2, ("shift", "shift")))
        found += [Case(f"szext.{mode}.{k}", "b32", ("b32",) * 2, (k, "shift")) for k in ("u32", "s32")]
    found.append(_same("prmt.b32", "b32", 3, "u32"))
    found += [_same(f"prmt.b32.{m}", "b32", 3, "u32") for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")]
    found += [_same("lop3.b32", "b32", 3, "u32", f", {t}") for t in (0x96, 0xE8, 0x1B, 0xFE)]
    for a in ("u32", "s32"):
        found += [_same(f"dp4a.{a}.{b}", "b32", 3, "u32") for b in ("u32", "s32")]
    found.append(Case("slct.b32.s32", "b32", ("b32",) * 3, ("u32", "u32", "s32")))
    found.append(_same("min.relu.s32", "b32", 2, "s32"))
    found.append(_same("max.relu.s32", "b32", 2, "s32"))
    return found


def _conversions() -> list[Case]:
    found = []
    integers = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    for to in integers:
        for source in integers:
            if to != source:
                found.append(Case(f"cvt.{to}.{source}", _wide(to), (_wide(source),), (source,)))
                if not _holds(to, source):
                    found.append(Case(f"cvt.sat.{to}.{source}", _wide(to), (_wide(source),), (source,)))
    for fmt in ("f16", "bf16", "f32", "f64"):
        for kind in integers:
            if fmt == "bf16" and kind.endswith("8"):
                continue
            for mode in ("rn", "rz", "rp", "rm"):
                found.append(Case(f"cvt.{mode}.{fmt}.{kind}", _bits(fmt), (_wide(kind),), (kind,)))
                found.append(Case(f"cvt.{mode}i.{kind}.{fmt}", _wide(kind), (_bits(fmt),), (fmt,)))
    for mode in ("rn", "rz", "rp", "rm"):
        found.append(Case(f"cvt.{mode}.f32.f64", "b32", ("b64",), ("f64",)))
        found.append(Case(f"cvt.{mode}.ftz.f32.f64", "b32", ("b64",), ("f64",)))
        found.append(Case(f"cvt.{mode}.f16.f32", "b16", ("b32",), ("f32",)))
        if mode in ("rn", "rz"):  # an H200 does not flush in the other modes, against PTX
            found.append(Case(f"cvt.{mode}.ftz.f16.f32", "b16", ("b32",), ("f32",)))
        found.append(Case(f"cvt.{mode}.f16.f64", "b16", ("b64",), ("f64",)))
        found.append(Case(f"cvt.{mode}.bf16.f32", "b16", ("b32",), ("f32",)))
        for fmt in ("f16", "f32", "f64"):
            found.append(Case(f"cvt.{mode}i.{fmt}.{fmt}", _bits(fmt), (_bits(fmt),), (fmt,)))
        found.append(Case(f"cvt.{mode}i.ftz.f32.f32", "b32", ("b32",), ("f32",)))
        found.append(Case(f"cvt.{mode}i.ftz.s32.f32", "b32", ("b32",), ("f32",)))
    for to, source in (("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "f32")):
        found.append(Case(f"cvt.{to}.{source}", _bits(to), (_bits(source),), (source,)))
    found.append(Case("cvt.ftz.f32.f16", "b32", ("b16",), ("f16",)))
    found.append(Case("cvt.ftz.f64.f32", "b64", ("b32",), ("f32",)))
    found.append(Case("cvt.sat.f32.f32", "b32", ("b32",), ("f32",)))
    found.append(Case("cvt.ftz.sat.f32.f32", "b32", ("b32",), ("f32",)))
    found.append(Case("cvt.rn.sat.f32.f64", "b32", ("b64",), ("f64",)))
    found.append(Case("cvt.rn.relu.f16.f32", "b16", ("b32",), ("f32",)))
    found.append(Case("cvt.rn.relu.bf16.f32", "b16", ("b32",), ("f32",)))
    found.append(Case("cvt.rna.tf32.f32", "b32", ("b32",), ("f32",)))
    for to in ("f16x2", "bf16x2"):
        for mode in ("rn", "rz"):
            found.append(Case(f"cvt.{mode}.{to}.f32", "b32", ("b32",) * 2, ("f32",) * 2))
            found.append(Case(f"cvt.{mode}.relu.{to}.f32", "b32", ("b32",) * 2, ("f32",) * 2))
    return found


def _holds(to: str, source: str) -> bool:
    """Whether an integer type has every value of another; PTX allows no `.sat` there."""
    if to[0] == source[0]:
        return int(to[1:]) >= int(source[1:])
    return to[0] == "s" and int(to[1:]) > int(source[1:])


def _wide(kind: str) -> str:
    """The register that holds an integer type; 8 bits are held in 16."""
    return "b16" if kind[1:] == "8" else "b" + kind[1:]


def _atomics() -> list[Case]:
    """Operand a is what the cell holds, b and c are the operands; the result is what it holds then.

    The state space is that of the cell; `generic.shared` is reached through a generic address.
    """
    found = []
    for space in ("global", "shared", "generic.global", "generic.shared"):
        for kind in ("f32", "f64"):
            found.append(_same(f"atom.{space}.add.{kind}", _bits(kind), 2, kind))
        for kind in ("f16x2", "bf16x2", "f16", "bf16"):
            found.append(_same(f"atom.{space}.add.noftz.{kind}", _bits(kind), 2, kind))
    for space in ("global", "shared"):
        for kind in ("u32", "s32", "u64", "s64"):
            found += [_same(f"atom.{space}.{op}.{kind}", _bits(kind), 2, kind) for op in ("min", "max")]
        found += [_same(f"atom.{space}.add.{k}", _bits(k), 2, k) for k in ("u32", "s32", "u64")]
        found += [_same(f"atom.{space}.{op}.u32", "b32", 2, "u32") for op in ("inc", "dec")]
        for bits in ("b32", "b64"):
            fmt = "u" + bits[1:]
            found += [_same(f"atom.{space}.{op}.{bits}", bits, 2, fmt) for op in ("and", "or", "xor", "exch")]
            found.append(_same(f"atom.{space}.cas.{bits}", bits, 3, fmt))
        found.append(_same(f"atom.{space}.cas.b16", "b16", 3, "u16"))
    return found


CASES: tuple[Case, ...] = (*_arithmetic(), *_integers(), *_conversions(), *_atomics())

# --- PTX ---------------------------------------------------------------------------------------

GROUP = 16  # cases an entry, so that compiling them all stays quick
_PREFIX = {"pred": "%p", "b16": "%h", "b32": "%w", "b64": "%d"}


@dataclass(frozen=True, slots=True)
class Group:
    """Cases with the same operands, run by one entry; result i goes to words i·COUNT and up."""

    name: str
    cases: tuple[Case, ...]


def groups(cases: tuple[Case, ...] = CASES) -> tuple[Group, ...]:
    by_operands: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Case]] = {}
    for case in cases:
        by_operands.setdefault((case.operands, case.formats), []).append(case)
    found: list[Group] = []
    for members in by_operands.values():
        for start in range(0, len(members), GROUP):
            found.append(Group(f"group{len(found)}", tuple(members[start : start + GROUP])))
    return tuple(found)


def ptx(wanted: tuple[Group, ...], target: str = "sm_90") -> str:
    """A module with one entry a group: `(a, b, c, d, out)` pointers, a thread a word."""
    return f".version 8.3\n.target {target}\n.address_size 64\n" + "\n".join(map(_entry, wanted))


def _entry(group: Group) -> str:
    lines = [
        f".visible .entry {group.name}("
        ".param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 o)",
        "{",
        ".reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %w<8>; .reg .b64 %d<8>; .reg .b64 %x<8>;",
        ".reg .b32 %t<4>; .shared .align 8 .b64 cells[256];",
        "mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x; mad.lo.u32 %t3, %t0, %t1, %t2;",
        "mul.wide.u32 %x0, %t3, 8; ld.param.u64 %x5, [o]; add.u64 %x5, %x5, %x0;",
    ]
    registers = []
    for i, (kind, name) in enumerate(zip(group.cases[0].operands, "abcd", strict=False)):
        register = f"{_PREFIX[kind]}{i}"
        lines.append(
            f"ld.param.u64 %x1, [{name}]; add.u64 %x1, %x1, %x0; ld.global.{kind} {register}, [%x1];"
        )
        registers.append(register)
    for number, case in enumerate(group.cases):
        lines += _body(case, registers, number * COUNT * 8)
    return "\n".join((*lines, "ret;", "}"))


def _body(case: Case, registers: list[str], at: int) -> list[str]:
    result = {"pred": "%p0", "b16": "%h7", "b32": "%w7", "b64": "%d7"}[case.result]
    lines = []
    if case.opcode.startswith("atom."):
        lines += _atomic(case, registers, result, at)
    else:
        lines.append(f"{case.opcode} {result}, {', '.join(registers)}{case.tail};")
    if case.result == "pred":
        lines.append("selp.u64 %d7, 1, 0, %p0;")
    elif case.result != "b64":
        lines.append(f"cvt.u64.u{case.result[1:]} %d7, {result};")
    return [*lines, f"st.global.u64 [%x5+{at}], %d7;"]


def _atomic(case: Case, registers: list[str], result: str, at: int) -> list[str]:
    """A cell of its own for each thread, in the output or in shared memory."""
    shared = ".shared" in case.opcode
    bits = case.result
    if shared:
        lines = ["mul.wide.u32 %x3, %t2, 8; mov.u64 %x2, cells; add.u64 %x2, %x2, %x3;"]
    else:
        lines = [f"add.u64 %x2, %x5, {at};"]
    space = "shared" if shared else "global"
    lines.append(f"st.{space}.{bits} [%x2], {registers[0]};")
    opcode = case.opcode
    address = "%x2"
    if ".generic." in opcode:
        opcode = opcode.replace(".generic.shared", "").replace(".generic.global", "")
        lines.append(f"cvta.{space}.u64 %x4, %x2;")
        address = "%x4"
    lines.append(f"{opcode} {result}, [{address}], {', '.join(registers[1:])};")
    lines.append(f"ld.{space}.{bits} {result}, [%x2];")
    return lines


# --- Operands ----------------------------------------------------------------------------------

_FLOATS = {"f16": (10, 16), "bf16": (7, 16), "f32": (23, 32), "f64": (52, 64)}


# Around the borders of narrower formats and of integers: f32 in f64, f16 in f64 and f32, 2^31, 2^63.
_BORDERS = {
    "f64": [
        0x380FFFFFFFFFFFFF, 0x3810000000000000, 0x380FFFFFE0000000, 0x380FFFFFF0000000, 0x380FFFFFEFFFFFFF,
        0x36A0000000000000, 0x3690000000000000, 0x3690000000000001, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000,
        0x47EFFFFFEFFFFFFF, 0x3F0FFFFFFFFFFFFF, 0x3F10000000000000, 0x3E60000000000001, 0x40EFFC0000000000,
        0x40EFFDFFFFFFFFFF, 0x40EFFE0000000000, 0x41DFFFFFFFC00000, 0x41DFFFFFFFE00000, 0x41E0000000000000,
        0xC1E0000000000000, 0xC1E0000000200000, 0x43E0000000000000, 0xC3E0000000000000, 0x43F0000000000000,
    ],
    "f32": [
        0x387FFFFF, 0x38800000, 0x387FE000, 0x387FF000, 0x33000000, 0x33000001, 0x477FE000, 0x477FEFFF,
        0x477FF000, 0x7F7F8000, 0x7F7F7FFF, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x5F000000,
        0xDF000000, 0x4B000000, 0x4B000001, 0x3EFFFFFF, 0x3F000000,
    ],
}  # fmt: skip


def _special(fraction: int, width: int) -> list[int]:
    """Zeros, the smallest, odd and largest subnormals and normals, ones, infinities, NaNs; both signs."""
    one = ((1 << (width - 2 - fraction)) - 1) << fraction
    infinity = ((1 << (width - 1 - fraction)) - 1) << fraction
    low = 1 << fraction
    positive = [0, 1, 2, 3, low // 2, low - 1, low, low + 1, one - 1, one, one + 1, one + low, one + low // 2,
                one - low, infinity - low, infinity - 1, infinity, infinity + 1, infinity + low // 2,
                infinity + low - 1]  # fmt: skip
    return positive + [v | 1 << (width - 1) for v in positive]


def operand(fmt: str, seed: int, index: int) -> Words:
    """Values of a format for operand `index`: specials against specials, random bits, near exponents."""
    rng = np.random.Generator(np.random.PCG64([seed, index]))
    if fmt in ("shift", "field"):  # a field's position and length count to 255
        return rng.integers(0, 300 if fmt == "shift" else 70, COUNT).astype(np.uint64)
    if fmt.endswith("x2"):
        half = fmt[:-2]
        return operand(half, seed, index) | operand(half, seed + 1, index) << np.uint64(16)
    words: Words = rng.integers(0, 1 << 64, COUNT, dtype=np.uint64)
    if fmt in _FLOATS:
        fraction, width = _FLOATS[fmt]
        mask = np.uint64((1 << width) - 1)
        words &= mask
        _near_exponents(words, rng, fraction, width)
        special = np.array(_special(fraction, width) + _BORDERS.get(fmt, []), np.uint64)
    else:
        nonzero = fmt.endswith("+")
        width = int(fmt.rstrip("+")[1:])
        words &= np.uint64((1 << width) - 1)
        top = 1 << (width - 1)
        special = np.array(
            [0, 1, 2, 3, 7, top - 2, top - 1, top, top + 1, 2 * top - 3, 2 * top - 1], np.uint64
        )
        small = slice(COUNT // 2, 3 * COUNT // 4)
        words[small] >>= rng.integers(0, width, COUNT // 4).astype(np.uint64)
        if nonzero and index:
            words[words == 0] = np.uint64(3)
            special = special[1:]
    count = len(special)
    grid = np.arange(min(COUNT // 2, count**2))
    if index == 2:
        words[: len(grid)] = special[(grid * 7 + grid // count) % count]
    else:
        words[: len(grid)] = special[(grid // count**index) % count]
    return words


def _near_exponents(words: Words, rng: np.random.Generator, fraction: int, width: int) -> None:
    """The second half gets exponents near 1, and a part of it near the smallest."""
    bias = (1 << (width - 2 - fraction)) - 1
    keep = np.uint64(((1 << fraction) - 1) | (1 << (width - 1)))
    for part, centre in (
        (slice(COUNT // 2, 7 * COUNT // 8), bias),
        (slice(7 * COUNT // 8, COUNT), 2),
    ):
        size = part.stop - part.start
        spread = rng.integers(-2, 3, size) + centre
        words[part] = (words[part] & keep) | (spread.astype(np.uint64) << np.uint64(fraction))


def operands(group: Group) -> dict[str, Words]:
    """The input arrays `a` to `d` of a group; those it does not read are zeros."""
    formats = group.cases[0].formats
    seed = sum(map(ord, "".join(formats)))
    arrays: dict[str, Any] = {name: np.zeros(COUNT, np.uint64) for name in "abcd"}
    for i, (fmt, name) in enumerate(zip(formats, "abcd", strict=False)):
        arrays[name] = operand(fmt, seed, i)
    return arrays
