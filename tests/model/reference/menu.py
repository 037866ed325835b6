"""The single instructions that random programs are made of, a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.reference.programs import Writer

# Registers of each class: prefix → (how many, declared type, bytes).
CLASSES = {
    "r": (6, "b32", 4),
    "f": (6, "f32", 4),
    "d": (3, "f64", 8),
    "l": (3, "b64", 8),
    "h": (4, "b16", 2),
    "p": (3, "pred", 0),
}
MODES = ("rn", "rz", "rm", "rp")
RELATIONS_U = ("eq", "ne", "lo", "ls", "hi", "hs")
RELATIONS_S = ("eq", "ne", "lt", "le", "gt", "ge")
RELATIONS_F = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


Simple = Callable[["Writer"], None]


def op(text: str, pattern: str) -> Simple:
    """`op("add.s32", "r r r")`: destination and sources by class; words after `'` stand for themselves."""

    def write(w: Writer) -> None:
        words = pattern.split()
        target = w.pick(words[0])
        # Pairs of halves take no immediates, and fields only small ones.
        source = w.pick if text.endswith("x2") or text[:3] in ("bfe", "bfi") else w.source
        sources = [word[1:] if word.startswith("'") else source(word) for word in words[1:]]
        guard = w.guard()
        if text.startswith("testp"):
            guard = ""  # ptxas does not keep to it
        w.emit(f"{guard}{text} {', '.join((target, *sources))};")

    return write


def integers() -> list[Simple]:
    found = [
        op(text, pattern)
        for pattern, texts in {
            "r r r": "add.s32 sub.s32 mul.lo.s32 mul.hi.s32 mul.hi.u32 min.s32 min.u32 max.s32 max.u32 "
            "and.b32 or.b32 xor.b32 shl.b32 shr.u32 shr.s32 add.sat.s32 sub.sat.s32 mul24.lo.s32 "
            "mul24.lo.u32",
            "r r": "not.b32 cnot.b32 neg.s32 abs.s32 popc.b32 clz.b32 brev.b32 bfind.u32 bfind.s32 "
            "bfind.shiftamt.u32 bfind.shiftamt.s32 mov.b32",
            "r r r r": "mad.lo.s32 mad.hi.s32 mad.hi.u32 mad24.lo.s32 sad.s32 sad.u32 shf.l.wrap.b32 "
            "shf.l.clamp.b32 shf.r.wrap.b32 shf.r.clamp.b32 prmt.b32 prmt.b32.f4e prmt.b32.b4e "
            "prmt.b32.rc8 prmt.b32.ecl prmt.b32.ecr prmt.b32.rc16 bfe.u32 bfe.s32 dp4a.s32.s32 "
            "dp4a.u32.u32 dp4a.s32.u32 dp4a.u32.s32 dp2a.lo.s32.s32 dp2a.hi.u32.u32 dp2a.lo.u32.s32 "
            "slct.u32.s32",
            "r r r r r": "bfi.b32",
            "r r r p": "selp.b32",
            "l l l": "add.s64 sub.s64 mul.lo.s64 mul.hi.s64 mul.hi.u64 min.s64 min.u64 max.s64 max.u64 "
            "and.b64 or.b64 xor.b64",
            "l l r": "shl.b64 shr.u64 shr.s64",
            "l l": "not.b64 neg.s64 abs.s64 brev.b64",
            "r l": "popc.b64 clz.b64 bfind.u64 bfind.s64 cvt.u32.u64",
            "l l l l": "mad.lo.s64 mad.hi.u64",
            "l l l p": "selp.b64",
            "l r r": "mul.wide.s32 mul.wide.u32",
            "l r r l": "mad.wide.s32 mad.wide.u32",
            "l l r r": "bfe.u64 bfe.s64",
            "h h h": "add.s16 sub.s16 mul.lo.s16 mul.hi.s16 mul.hi.u16 min.s16 max.u16 and.b16 xor.b16",
            "h h r": "shl.b16 shr.u16 shr.s16",
            "h h h h": "mad.lo.s16",
            "r h h": "mul.wide.s16 mul.wide.u16",
            "h h": "not.b16 neg.s16",
            "r h": "cvt.s32.s16 cvt.u32.u16 cvt.s32.s8 cvt.u32.u8",
            "h r": "cvt.u16.u32 cvt.sat.s16.s32 cvt.sat.u16.s32 cvt.sat.s8.s32 cvt.sat.u8.u32 cvt.s8.s32",
            "l r": "cvt.s64.s32 cvt.u64.u32",
        }.items()
        for text in texts.split()
    ]
    for table in (0x00, 0x1D, 0x80, 0x96, 0xCA, 0xE8, 0xFE, 0x3C):
        found.append(op("lop3.b32", f"r r r r '{table:#x}"))
    return found


def floats() -> list[Simple]:
    found = []
    for mode in MODES:
        for ftz in ("", ".ftz"):
            found += [op(f"{name}.{mode}{ftz}.f32", "f f f") for name in ("add", "sub", "mul", "div")]
            found += [op(f"fma.{mode}{ftz}.f32", "f f f f")] * 2
            found += [op(f"{name}.{mode}{ftz}.f32", "f f") for name in ("sqrt", "rcp")]
            found += [op(f"add.{mode}{ftz}.sat.f32", "f f f"), op(f"fma.{mode}{ftz}.sat.f32", "f f f f")]
        found += [op(f"{name}.{mode}.f64", "d d d") for name in ("add", "sub", "mul", "div")]
        found += [op(f"fma.{mode}.f64", "d d d d")] * 2
        found += [op(f"{name}.{mode}.f64", "d d") for name in ("sqrt", "rcp")]
    for name in ("min", "max"):
        found += [op(f"{name}{m}.f32", "f f f") for m in ("", ".ftz", ".NaN", ".ftz.NaN")]
        found += [op(f"{name}.f64", "d d d")]
        found += [op(f"{name}{m}.{t}", "h h h") for m in ("", ".NaN") for t in ("f16", "bf16")]
        found += [op(f"{name}.ftz.f16", "h h h")]
        found += [op(f"{name}{m}.{t}", "r r r") for m in ("", ".NaN") for t in ("f16x2", "bf16x2")]
    for m in ("", ".ftz", ".sat", ".ftz.sat"):
        found += [op(f"{name}.rn{m}.f16", "h h h") for name in ("add", "sub", "mul")]
        found += [op(f"fma.rn{m}.f16", "h h h h"), op(f"fma.rn{m}.f16x2", "r r r r")]
        found += [op(f"{name}.rn{m}.f16x2", "r r r") for name in ("add", "mul")]
    found += [op("fma.rn.relu.f16", "h h h h"), op("fma.rn.relu.bf16", "h h h h")]
    found += [op(f"{name}.rn.bf16", "h h h") for name in ("add", "sub", "mul")]
    found += [op("fma.rn.bf16", "h h h h"), op("fma.rn.bf16x2", "r r r r"), op("add.rn.bf16x2", "r r r")]
    found += [op("selp.f32", "f f f p"), op("selp.f64", "d d d p"), op("slct.f32.s32", "f f f r")]
    found += [op("slct.f32.f32", "f f f f"), op("copysign.f32", "f f f"), op("mov.f32", "f f")]
    return found


def conversions() -> list[Simple]:
    found = []
    for mode in MODES:
        for ftz in ("", ".ftz"):
            found.append(op_one_nan(f"cvt.{mode}{ftz}.f32.f64", "f d"))
            for whole in ("u32", "s32"):
                found.append(op(f"cvt.{mode}i{ftz}.{whole}.f32", "r f"))
            for whole in ("u64", "s64"):
                found.append(op(f"cvt.{mode}i{ftz}.{whole}.f32", "l f"))
            for whole in ("u16", "s16"):
                found.append(op(f"cvt.{mode}i{ftz}.{whole}.f32", "h f"))
            found.append(op_one_nan(f"cvt.{mode}i{ftz}.f32.f32", "f f"))
        found += [op(f"cvt.{mode}.f32.{whole}", "f r") for whole in ("u32", "s32")]
        found += [op(f"cvt.{mode}.f32.{whole}", "f l") for whole in ("u64", "s64")]
        found += [op(f"cvt.{mode}.f64.{whole}", "d l") for whole in ("u64", "s64")]
        found += [op(f"cvt.{mode}i.{whole}.f64", "r d") for whole in ("u32", "s32")]
        found += [op(f"cvt.{mode}i.{whole}.f64", "l d") for whole in ("u64", "s64")]
        found += [op(f"cvt.{mode}i.f64.f64", "d d"), op(f"cvt.{mode}i.s32.f16", "r h")]
    for mode in ("rn", "rz"):
        found += [op(f"cvt.{mode}.f16.f32", "h f"), op(f"cvt.{mode}.bf16.f32", "h f")]
        found += [op(f"cvt.{mode}.f16x2.f32", "r f f"), op(f"cvt.{mode}.bf16x2.f32", "r f f")]
    found += [op("cvt.rm.f16.f32", "h f"), op("cvt.rp.f16.f32", "h f"), op("cvt.rn.ftz.f16.f32", "h f")]
    found += [op("cvt.rn.f16.s32", "h r"), op("cvt.rn.f16.u64", "h l")]
    found += [op_one_nan("cvt.f32.f16", "f h"), op_one_nan("cvt.f32.bf16", "f h"), op("cvt.f64.f32", "d f")]
    found += [op("cvt.ftz.f64.f32", "d f"), op("cvt.rn.f64.s32", "d r"), op("cvt.rn.f32.s16", "f h")]
    found += [op("cvt.sat.f32.f32", "f f"), op("cvt.ftz.sat.f32.f32", "f f"), op("cvt.rn.f64.u32", "d r")]
    found += [op("mov.b32", "r f"), op("mov.b32", "f r")]
    return found


def op_one_nan(text: str, pattern: str) -> Simple:
    """Where PTX leaves open which NaN comes out."""

    def write(w: Writer) -> None:
        c, *sources = pattern.split()
        target = w.pick(c)
        w.emit(f"{text} {target}, {', '.join(w.pick(s) for s in sources)};")
        w.one_nan(target, c)

    return write


def comparisons() -> list[Simple]:
    found = []
    for c, types, relations in (
        ("r", ("u32",), RELATIONS_U),
        ("r", ("s32",), RELATIONS_S),
        ("l", ("u64",), RELATIONS_U),
        ("l", ("s64",), RELATIONS_S),
        ("h", ("s16", "u16"), RELATIONS_S),
        ("f", ("f32", "ftz.f32"), RELATIONS_F),
        ("d", ("f64",), RELATIONS_F),
        ("h", ("f16", "bf16", "ftz.f16"), RELATIONS_F),
    ):
        for type_ in types:
            found.append(_setp(c, type_, relations))
    found += [op(f"{name}.pred", "p p p") for name in ("and", "or", "xor")]
    found += [op("not.pred", "p p"), op("mov.pred", "p p")]
    found += [op(f"testp.{name}.f32", "p f") for name in ("finite", "infinite", "number", "notanumber")]
    found += [_set("u32.f32", "r", "f", RELATIONS_F), _set("f32.s32", "f", "r", RELATIONS_S)]
    return found


def _setp(c: str, type_: str, relations: tuple[str, ...]) -> Simple:
    def write(w: Writer) -> None:
        relation = w.rng.choice(relations)
        a, b = w.source(c), w.source(c)
        target = w.pick("p")
        if c != "h" and w.rng.random() < 0.3:
            other = f"%p{(int(target[2:]) + 1) % CLASSES['p'][0]}"
            target = f"{target}|{other}"
        if w.rng.random() < 0.4:
            word, third = w.rng.choice(("and", "or", "xor")), w.rng.choice(("", "!")) + w.pick("p")
            w.emit(f"{w.guard()}setp.{relation}.{word}.{type_} {target}, {a}, {b}, {third};")
        else:
            w.emit(f"{w.guard()}setp.{relation}.{type_} {target}, {a}, {b};")

    return write


def _set(types: str, to: str, c: str, relations: tuple[str, ...]) -> Simple:
    def write(w: Writer) -> None:
        guard = w.guard()
        if types.startswith("f32"):
            guard = ""  # ptxas guards the comparison and not the conversion of its answer
        w.emit(f"{guard}set.{w.rng.choice(relations)}.{types} {w.pick(to)}, {w.source(c)}, {w.source(c)};")

    return write


def _carry(w: Writer) -> None:
    name = w.rng.choice(("add", "sub"))
    low, high = w.temp("r"), w.temp("r")
    a, b, c, d = (w.pick("r") for _ in range(4))
    w.emit(f"{name}.cc.u32 {low}, {a}, {b};")
    w.emit(f"{name}c.u32 {high}, {c}, {d};")
    w.emit(f"mov.b64 {w.pick('l')}, {{{low}, {high}}};")


def _divide(w: Writer) -> None:
    """Divisors that are neither 0 nor -1."""
    c, bits = w.rng.choice((("r", 32), ("l", 64)))
    t = w.temp(c)
    sign = w.rng.choice("us")
    w.emit(f"and.b{bits} {t}, {w.pick(c)}, {w.rng.choice((7, 255, 0x7FFFFFFF))};")
    w.emit(f"or.b{bits} {t}, {t}, 1;")
    w.emit(f"{w.guard()}{w.rng.choice(('div', 'rem'))}.{sign}{bits} {w.pick(c)}, {w.pick(c)}, {t};")


def _pack(w: Writer) -> None:
    kind = w.rng.randrange(4)
    if kind == 0:
        w.emit(f"mov.b32 {w.pick('r')}, {{{w.pick('h')}, {w.pick('h')}}};")
    elif kind == 1:
        w.emit(f"mov.b32 {{%h0, %h2}}, {w.pick('r')};")
    elif kind == 2:
        w.emit(f"mov.b64 {{%r1, %r4}}, {w.pick('l')};")
    else:
        t = w.temp("d")
        w.emit(f"mov.b64 {t}, {w.pick('l')};")
        w.emit(f"mov.f64 {w.pick('d')}, {t};")


def _sign(w: Writer) -> None:
    """neg and abs: what they make of a NaN is open."""
    c, type_ = w.rng.choice((("f", "f32"), ("f", "ftz.f32"), ("d", "f64")))
    target = w.pick(c)
    w.emit(f"{w.rng.choice(('neg', 'abs'))}.{type_} {target}, {w.pick(c)};")
    w.one_nan(target, c)


SIMPLE: tuple[Simple, ...] = (
    *integers(),
    *floats(),
    *conversions(),
    *(comparisons() * 2),
    *([_carry, _divide, _pack, _sign] * 4),
)
