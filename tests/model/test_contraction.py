"""Which bare multiplications and additions ptxas fuses: what it was seen to do, and how counts decide.

Each expectation was read off machine code of ptxas 12.6, 13.0 and 13.5 for sm_90.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from time import perf_counter

import numpy as np
import pytest
from numpy.typing import NDArray

from reprodb.domain import Arg, ArgKind, Buffer, FunctionCounts, Role, Stage
from reprodb.errors import UnsupportedError
from reprodb.executors.model import contraction
from reprodb.executors.model.contraction import reconcile
from reprodb.executors.model.engine import ModelExecutor, Program, run
from reprodb.executors.model.ptx import Module, parse

MUL = "mul.f32 %f4, %f0, %f1;"
STORE = "st.global.f32 [%d1], %f2;"


def module(body: str) -> Module:
    return parse(
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".func (.param .b32 r) callee(.param .b32 p) { ret; }\n"
        ".visible .entry k(.param .u64 a, .param .u64 o) {\n"
        ".reg .f32 %f<20>; .reg .f64 %g<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .pred %p<3>;\n"
        ".reg .b64 %d<4>; .param .b32 p0; .param .b32 r0; .shared .align 8 .b8 sm[64];\n"
        "ld.param.u64 %d0, [a]; ld.param.u64 %d1, [o];\n"
        "ld.global.f32 %f0, [%d0]; ld.global.f32 %f1, [%d0+4]; ld.global.f32 %f2, [%d0+8];\n"
        "ld.global.f32 %f3, [%d0+12]; ld.global.u32 %r0, [%d0+16]; setp.gt.s32 %p0, %r0, 0;\n"
        f"{body}\nret; }}\n"
    )


def chosen(body: str) -> list[tuple[str, int]]:
    """The additions of a body that the rule fuses, with the operand that goes into each."""
    function = module(body).function("k")
    assert function is not None
    fused = contraction._plan(function).fused
    return sorted((function.instructions[at].opcode, taken.operand) for at, taken in fused.items())


ADD = f"add.f32 %f2, %f4, %f2; {STORE}"
NINTH = "st.global.f32 [%d1+8], %f9;"
FUSED = {
    "one use": f"{MUL} {ADD}",
    "through a move": f"{MUL} mov.b32 %r1, %f4; mov.b32 %f5, %r1; add.f32 %f2, %f5, %f2; {STORE}",
    "through a negation": f"{MUL} neg.f32 %f5, %f4; add.f32 %f2, %f5, %f2; {STORE}",
    "factor of any sign": f"abs.f32 %f5, %f0; mul.f32 %f4, %f5, %f1; {ADD}",
    "both flushing": f"mul.ftz.f32 %f4, %f0, %f1; add.ftz.f32 %f2, %f4, %f2; {STORE}",
    "saturating sum": f"{MUL} add.sat.f32 %f2, %f4, %f2; {STORE}",
    "guarded sum": f"{MUL} @%p0 {ADD}",
    "a use that is dead": f"{MUL} mul.f32 %f6, %f4, %f3; {ADD}",
    "over a barrier": f"{MUL} bar.sync 0; {ADD}",
    "over a shuffle": f"{MUL} shfl.sync.bfly.b32 %r2, %r0, 16, 31, -1; {ADD}",
    "over a label nobody needs": f"{MUL} L: {ADD}",
    "over a jump to a block of one": f"{MUL} bra.uni L; L: {ADD}",
    "over a division of u32": f"{MUL} div.u32 %r3, %r0, %r0; {ADD}",
    "over an approximation": f"{MUL} rcp.approx.f32 %f9, %f0; {ADD}",
    "a factor that changes": f"{MUL} add.f32 %f0, %f0, %f3; {ADD} st.global.f32 [%d1+4], %f0;",
}
APART = {
    "stored too": f"{MUL} {ADD} st.global.f32 [%d1+4], %f4;",
    "compared too": f"{MUL} add.f32 %f9, %f4, %f2; setp.gt.f32 %p1, %f4, %f3; @%p1 mov.f32 %f9, %f0; {NINTH}",
    "addend of a fused one too": f"{MUL} {ADD} fma.rn.f32 %f9, %f0, %f3, %f4; {NINTH}",
    "magnitude taken": f"{MUL} abs.f32 %f5, %f4; add.f32 %f2, %f5, %f2; {STORE}",
    "chosen by a predicate": f"{MUL} selp.f32 %f5, %f4, %f3, %p0; add.f32 %f2, %f5, %f2; {STORE}",
    "added to itself": f"{MUL} add.f32 %f2, %f4, %f4; {STORE}",
    "one flushing": f"mul.ftz.f32 %f4, %f0, %f1; {ADD}",
    "rounded product": f"mul.rn.f32 %f4, %f0, %f1; {ADD}",
    "rounded sum": f"{MUL} add.rn.f32 %f2, %f4, %f2; {STORE}",
    "saturated product": f"mul.sat.f32 %f4, %f0, %f1; {ADD}",
    "guarded product": f"mov.f32 %f4, %f3; @%p0 {MUL} {ADD}",
    "used behind a branch": f"{MUL} @!%p0 bra L; add.f32 %f2, %f4, %f2; L: {STORE}",
    "also used behind one": f"{MUL} {ADD} @%p0 bra L; st.global.f32 [%d1+4], %f4; L:",
    "over a guarded return": f"{MUL} @%p0 exit; {ADD}",
    "over a division": f"{MUL} div.rn.f32 %f9, %f0, %f3; {ADD} {NINTH}",
    "over a root": f"{MUL} sqrt.rn.f32 %f9, %f0; {ADD} {NINTH}",
    "over a signed division": f"{MUL} rem.s32 %r3, %r0, 7; {ADD} st.global.u32 [%d1+8], %r3;",
    "over a fence": f"{MUL} membar.gl; {ADD}",
    "over a guarded load": f"{MUL} @%p0 ld.global.f32 %f9, [%d0+32]; {ADD} {NINTH}",
    "over a call": f"{MUL} call (r0), callee, (p0); {ADD}",
}


@pytest.mark.parametrize("name", FUSED)
def test_pairs_that_fuse(name: str) -> None:
    assert len(chosen(FUSED[name])) == 1


@pytest.mark.parametrize("name", APART)
def test_pairs_that_stay_apart(name: str) -> None:
    assert chosen(APART[name]) == []


def test_which_of_two_products_an_addition_takes() -> None:
    two = "mul.f32 %f4, %f0, %f1; mul.f32 %f5, %f2, %f3;"
    assert chosen(f"{two} sub.f32 %f2, %f4, %f5; {STORE}") == [("sub.f32", 1)]
    # The one with fewer uses: %f4 has two, and its other use keeps it from going away once it is an addend.
    more = f"{two} add.f32 %f2, %f4, %f5; sub.f32 %f9, %f0, %f4; {STORE} {NINTH}"
    assert chosen(more) == [("add.f32", 2)]
    both = f"{MUL} {ADD} sub.f32 %f9, %f3, %f4; {NINTH}"
    assert chosen(both) == [("add.f32", 1), ("sub.f32", 2)]


def counts(**sass: int) -> tuple[FunctionCounts, ...]:
    return (FunctionCounts("k", sass=tuple(sorted(sass.items()))),)


ONE = FUSED["one use"]


def opcodes(found: Module) -> list[str]:
    function = found.function("k")
    assert function is not None
    return [i.opcode for i in function.instructions if i.base in ("mul", "add", "sub", "fma")]


def test_the_counts_decide() -> None:
    fused, notes = reconcile(module(ONE), counts(FFMA=1))
    assert opcodes(fused) == ["mul.f32", "fma.rn.f32"]
    assert notes == ("contracted as the SASS shows: 1 in k",)
    apart, notes = reconcile(module(ONE), counts(FMUL=1, FADD=1))
    assert opcodes(apart) == ["mul.f32", "add.f32"]
    assert notes == ()


def test_nothing_to_fuse_needs_no_counts() -> None:
    same = module(APART["stored too"])
    assert reconcile(same, None) == (same, ())


FORBIDDING = [("-fmad=false",), ("--fmad=true", "--fmad=false"), ("-fmad", "false"), ("-G",)]


@pytest.mark.parametrize("options", FORBIDDING)
def test_flags_that_forbid_it(options: tuple[str, ...]) -> None:
    same = module(ONE)
    assert reconcile(same, None, options) == (same, ())


def test_unknown_machine_code_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"reprodb\[sass\]"):
        reconcile(module(ONE), None)
    with pytest.raises(UnsupportedError, match="fused"):
        reconcile(module(ONE), (FunctionCounts("another"),))


def test_counts_that_fit_neither_reading_are_refused_with_both() -> None:
    with pytest.raises(UnsupportedError, match=r"1 add\.f32, 1 mul\.f32, the SASS 7 FFMA"):
        reconcile(module(ONE), counts(FFMA=7))


LOOP = (
    f"{MUL} L: add.f32 %f2, %f4, %f2; mul.f32 %f4, %f2, %f1; {STORE} sub.s32 %r0, %r0, 1;"
    "setp.gt.s32 %p0, %r0, 0; @%p0 bra L;"
)


def test_products_carried_around_a_loop_are_refused_unless_nothing_is_fused() -> None:
    with pytest.raises(UnsupportedError, match="around a loop"):
        reconcile(module(LOOP), counts(FFMA=4, FMUL=4, FADD=3))
    same = module(LOOP)
    assert reconcile(same, counts(FMUL=2, FADD=1)) == (same, ())


def test_other_entries_are_not_looked_at() -> None:
    same = module(ONE)
    assert reconcile(same, None, (), ("another",)) == (same, ())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ONE, lambda a, b, c: a * b + c),
        (f"{MUL} sub.f32 %f2, %f4, %f2; {STORE}", lambda a, b, c: a * b - c),
        (f"{MUL} sub.f32 %f2, %f2, %f4; {STORE}", lambda a, b, c: c - a * b),
        (FUSED["through a negation"], lambda a, b, c: c - a * b),
        (FUSED["a factor that changes"], lambda a, b, c: a * b + c),
    ],
)
def test_fused_bits(
    executor: ModelExecutor, body: str, expected: Callable[[float, float, float], float]
) -> None:
    """The product is exact in f64, so rounding the f64 result once is the fused result here."""
    values = np.array([1.0000001, 1.0000002, -1.0000004, 3.5], np.float32)
    a, b, c = (float(v) for v in values[:3])
    wanted = np.float32(expected(a, b, c)).view(np.uint32)
    assert first_word(executor, body, values.view(np.uint32), counts(FFMA=1)) == wanted


def first_word(
    executor: ModelExecutor,
    body: str,
    words: Sequence[int] | NDArray[np.uint32],
    sass: tuple[FunctionCounts, ...],
) -> int:
    """What a body stores first, of four words as %f0 to %f3."""
    fused, _ = reconcile(module(body), sass)
    stage = Stage("k", (1, 1, 1), (1, 1, 1), (Arg(ArgKind.INPUT, "a"), Arg(ArgKind.BUFFER, "o")))
    compiled = executor._stage(body, fused, stage, str(sass))
    program = Program("k", fused, ((stage, compiled),))
    x = np.array([*words, *[0] * 12], np.uint32).view(np.float32)
    out = run(program, [Buffer("o", "float32", (4,), Role.RESULT)], {"a": x}, 4, 1, 0).raws["o"][0]
    return int.from_bytes(out[:4], "little")


TWO = "mul.f32 %f4, %f0, %f1; mul.f32 %f5, %f2, %f3;"
NEXT = "st.global.f32 [%d1+4], %f7;"
# Which product goes into which addition, as ptxas 12.4 and 13.0 alike have them.
MEETING = {
    "one each": (f"{TWO} add.f32 %f6, %f4, %f5; {STORE}", []),
    "the first of two with one use": (f"{TWO} add.f32 %f2, %f5, %f4; {STORE}", [("add.f32", 1)]),
    "two uses meet one": (
        f"{TWO} add.f32 %f7, %f4, %f0; add.f32 %f2, %f4, %f5; {STORE} {NEXT}",
        [("add.f32", 2)],
    ),
    "two uses meet two": (
        f"{TWO} add.f32 %f7, %f4, %f0; add.f32 %f8, %f5, %f0; add.f32 %f2, %f5, %f4; {STORE} {NEXT}"
        "st.global.f32 [%d1+12], %f8;",
        [("add.f32", 1), ("add.f32", 1), ("add.f32", 1)],
    ),
    "an addend is not fused further": (
        f"{TWO} add.f32 %f2, %f4, %f5; add.f32 %f7, %f4, %f0; add.f32 %f8, %f5, %f0; {STORE} {NEXT}"
        "st.global.f32 [%d1+12], %f8;",
        [("add.f32", 1), ("add.f32", 1)],
    ),
    "a product by one is none": (
        f"mul.f32 %f4, %f0, 0f3F800000; mul.f32 %f5, %f2, %f3; add.f32 %f2, %f4, %f5; {STORE}",
        [("add.f32", 2)],
    ),
    "halves": (
        "mul.f16x2 %r1, %r0, %r0; add.f16x2 %r2, %r1, %r0; st.global.u32 [%d1], %r2;",
        [("add.f16x2", 1)],
    ),
}


@pytest.mark.parametrize("name", MEETING)
def test_products_that_meet(name: str) -> None:
    body, expected = MEETING[name]
    assert chosen(body) == expected


HALF = "0f3F000000"
SCALED = {
    "at once": f"{MUL} mul.f32 %f2, %f4, {HALF}; {STORE}",
    "rounded outside": f"{MUL} mul.rn.f32 %f2, {HALF}, %f4; {STORE}",
    "a constant in a register": f"mov.f32 %f9, {HALF}; {MUL} mul.f32 %f2, %f4, %f9; {STORE}",
    "in another block": f"{MUL} @%p0 bra L; mul.f32 %f2, %f4, {HALF}; L: {STORE}",
}
UNSCALED = {
    "rounded inside": f"mul.rn.f32 %f4, %f0, %f1; mul.f32 %f2, %f4, {HALF}; {STORE}",
    "used twice": f"{MUL} mul.f32 %f2, %f4, {HALF}; {STORE} st.global.f32 [%d1+4], %f4;",
    "by sixteen": f"{MUL} mul.f32 %f2, %f4, 0f41800000; {STORE}",
    "by minus a half": f"{MUL} mul.f32 %f2, %f4, 0fBF000000; {STORE}",
    "negated between": f"{MUL} neg.f32 %f5, %f4; mul.f32 %f2, %f5, {HALF}; {STORE}",
    "a sum": f"add.f32 %f4, %f0, %f1; mul.f32 %f2, %f4, {HALF}; {STORE}",
    "fused itself": f"{MUL} mul.f32 %f5, %f4, {HALF}; add.f32 %f2, %f5, %f2; {STORE}",
}


def scalings(body: str) -> int:
    function = module(body).function("k")
    assert function is not None
    return len(contraction._plan(function).scaled)


@pytest.mark.parametrize("name", SCALED)
def test_products_that_are_scaled_before_they_are_rounded(name: str) -> None:
    assert scalings(SCALED[name]) == 1


@pytest.mark.parametrize("name", UNSCALED)
def test_products_that_are_rounded_first(name: str) -> None:
    assert scalings(UNSCALED[name]) == 0


# a, b, 2^k, flushing, bits: measured on an H200, driver 580.159.04. Rounding twice gives others in each.
MEASURED_SCALED = [
    (0x3F7FFFFF, 0x80800000, "40000000", "", 0x80FFFFFF),
    (0x807FFFFF, 0x3F000000, "40800000", "", 0x80FFFFFE),
    (0x00000001, 0x3F000000, "41000000", "", 0x00000004),
    (0x3F7FFFFF, 0x007FFFFF, "3F000000", "", 0x003FFFFF),
    (0x4B6840B0, 0xF3DF42A1, "3F000000", "", 0xFF4A8CCC),
    (0xFF7FFFFF, 0x40490FDB, "3E800000", "", 0xFF490FDA),
    (0x811B0595, 0x3FC47DBE, "3E000000", "", 0x803B7E35),
    (0x00800000, 0x3F000000, "40000000", ".ftz", 0x00800000),
    (0xA3759CB5, 0x1B8569E2, "40800000", ".ftz", 0x80800000),
    (0xB3687895, 0x0B4A3A01, "41000000", ".ftz", 0x80B7A3D2),
    (0x8113F801, 0xBF5D73BF, "3F000000", ".ftz", 0x00000000),
    (0x31F105A1, 0x8F07F453, "3E800000", ".ftz", 0x80000000),
    (0xFF7FFFFF, 0x40490FDB, "3E000000", ".ftz", 0xFEC90FDA),
    (0x7FC01234, 0x3F800000, "3F000000", "", 0x7FFFFFFF),
]


@pytest.mark.parametrize(("a", "b", "factor", "ftz", "bits"), MEASURED_SCALED)
def test_scaled_bits(executor: ModelExecutor, a: int, b: int, factor: str, ftz: str, bits: int) -> None:
    body = f"mul{ftz}.f32 %f4, %f0, %f1; mul{ftz}.f32 %f2, %f4, 0f{factor}; {STORE}"
    assert first_word(executor, body, (a, b, 0, 0), counts(FMUL=1)) == bits


# a, b, c, d and a·b - c·d of the conformance kernel `contraction`, measured on an H200, driver 580.159.04,
# under NVRTC 12.6, NVRTC 13.5, nvcc 12.4 and nvcc 13.0 alike; and with three roundings.
DIFFERENCES = [
    (0x3FC2CFE4, 0xBFB8AB81, 0xBED13A72, 0x3F81C1DD, 0xBFE4096B, 0xBFE4096C),
    (0xBED4DC92, 0x3EEF1368, 0xBE2D3D61, 0xBE2FEEEE, 0xBE648DB9, 0xBE648DB8),
    (0xBD80D816, 0xBEB3730D, 0xBDBA34AC, 0x3F7034DC, 0x3DDBE053, 0x3DDBE054),
]


@pytest.mark.parametrize(("a", "b", "c", "d", "fused", "apart"), DIFFERENCES)
def test_a_difference_of_products(
    executor: ModelExecutor, a: int, b: int, c: int, d: int, fused: int, apart: int
) -> None:
    body = f"{TWO} sub.f32 %f2, %f4, %f5; {STORE}"
    assert first_word(executor, body, (a, b, c, d), counts(FFMA=1, FMUL=1)) == fused
    assert first_word(executor, body, (a, b, c, d), counts(FADD=1, FMUL=2)) == apart


def test_long_functions_take_no_time() -> None:
    """4,000 instructions on results of each other: 0.1 s, and 26 s where every use is searched for."""
    rng = Random(1)
    body = [".reg .f32 %q<4002>; mov.f32 %q0, %f0; mov.f32 %q1, %f1;"]
    for n in range(2, 4002):
        a, b = (f"%q{rng.randrange(max(0, n - 50), n)}" for _ in range(2))
        body.append(f"{rng.choice(['mul.f32', 'add.f32'])} %q{n}, {a}, {rng.choice([b, HALF])};")
    started = perf_counter()
    chosen("\n".join([*body, "st.global.f32 [%d1], %q4001;"]))
    assert perf_counter() - started < 10
