"""The model and the slow interpreter give the same bytes: for random programs, and for every float operation
on operands that make rounding hard."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reprodb.domain import Arg, ArgKind, Buffer, Role, Stage
from reprodb.executors.model import ModelExecutor
from reprodb.executors.model.engine import run_stages
from tests.model.reference import Launch, Order
from tests.model.reference.compare import buffers_of, differences, interpreted
from tests.model.reference.exact import FORMATS, Format
from tests.model.reference.programs import program
from tests.model.reference.triples import narrowing, triples


def by_model(
    ptx: str, launch: Launch, buffers: Mapping[str, bytes], executor: ModelExecutor, seed: int = 0
) -> dict[str, bytes]:
    """Every buffer's bytes after one repetition; each starts as a copy of an input of its size."""
    inputs = {f"start_{name}": np.frombuffer(data, np.uint8) for name, data in buffers.items()}
    declared = [
        Buffer(name, "uint8", (len(data),), Role.RESULT, init=f"copy:start_{name}")
        for name, data in buffers.items()
    ]
    args = tuple(Arg(ArgKind.BUFFER, str(name)) for name in launch.args)
    stage = Stage(launch.entry, launch.grid, launch.block, args, launch.shared)
    raws = run_stages(ptx, [stage], declared, inputs, 0, 1, seed, executor=executor)
    return {name: patterns[0] for name, patterns in raws.items()}


# --- Random programs ---------------------------------------------------------------------------


def agree_on(seed: int, statements: int) -> None:
    rng = Random(seed)
    p = program(rng, statements)
    buffers = buffers_of(p, rng)
    expected = interpreted(p.ptx, p.launch, buffers)
    got = by_model(p.ptx, p.launch, buffers, ModelExecutor(), seed)
    found = differences(got, expected)
    assert not found, "\n".join([f"seed {seed}, {statements} statements", *found[:10], p.ptx])


@given(st.integers(0, 1 << 32), st.integers(1, 14))
@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate])
def test_random_programs(seed: int, statements: int) -> None:
    agree_on(seed, statements)


@pytest.mark.parametrize(("seed", "statements"), [(613, 14), (651, 14)])
def test_a_guard_that_its_own_instruction_overwrites(seed: int, statements: int) -> None:
    """`@!%p0 setp.hs.u64 %p0|%p1, …`: both destinations follow the guard as it was before."""
    agree_on(seed, statements)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_many_random_programs(part: int) -> None:
    for seed in range(100):
        agree_on(1_000_000 * (part + 1) + seed, 4 + seed % 16)


@pytest.mark.parametrize("seed", range(3))
def test_programs_race_with_nobody(seed: int) -> None:
    """What makes agreement meaningful: another order of blocks and warps gives the same bytes."""
    rng = Random(seed)
    p = program(rng, 12)
    buffers = buffers_of(p, rng)
    x, y, z = p.launch.grid
    backwards = Order(tuple(reversed(range(x * y * z))), tuple(reversed(range(32))))
    first = interpreted(p.ptx, p.launch, buffers)
    assert first == interpreted(p.ptx, p.launch, buffers, backwards)


# --- Every float operation on hard operands ----------------------------------------------------

MODES = ("rn", "rz", "rm", "rp")
BLOCK = 64


def operations(f: Format) -> list[tuple[str, int]]:
    """The operations of a format with their numbers of operands."""
    name = f.name
    if f.width == 16:
        extra = ("", ".ftz", ".sat") if name == "f16" else ("",)
        found = [
            (f"{op}.rn{m}.{name}", n)
            for op, n in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3))
            for m in extra
        ]
        found += [(f"fma.rn.relu.{name}", 3)]
    else:
        ftz = ("", ".ftz") if name == "f32" else ("",)
        found = [
            (f"{op}.{mode}{m}.{name}", n)
            for op, n in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("div", 2), ("sqrt", 1), ("rcp", 1))
            for mode in MODES
            for m in ftz
        ]
        if name == "f32":
            found += [("add.rn.sat.f32", 2), ("mul.rn.ftz.sat.f32", 2), ("fma.rp.sat.f32", 3)]
    nan = ("", ".NaN") if name != "f64" else ("",)
    return found + [(f"{op}{m}.{name}", 2) for op in ("min", "max") for m in nan]


CONVERSIONS = {
    ("f32", "f16"): [f"cvt.{m}.f16.f32" for m in ("rn", "rz", "rm", "rp", "rn.ftz", "rn.sat", "rn.relu")],
    ("f32", "bf16"): ["cvt.rn.bf16.f32", "cvt.rz.bf16.f32", "cvt.rn.relu.bf16.f32"],
    ("f64", "f32"): [f"cvt.{m}.f32.f64" for m in (*MODES, "rn.ftz", "rp.ftz")],
    ("f64", "f16"): [f"cvt.{m}.f16.f64" for m in MODES],
}


def kernel(operations: list[tuple[str, int]], source: str, target: str, threads: int) -> str:
    """Thread i applies every operation to operands 3 i … 3 i + 2; results of operation k lie together."""
    wide, narrow = FORMATS[source].width // 8, FORMATS[target].width // 8
    register = {2: "b16", 4: "f32", 8: "f64"}
    lines = [
        ".version 8.0",
        ".target sm_90",
        ".address_size 64",
        ".visible .entry arithmetic(.param .u64 p_in, .param .u64 p_out)",
        "{",
        f"    .reg .{register[wide]} %x<3>;",
        f"    .reg .{register[narrow]} %y;",
        "    .reg .b32 %r<3>;",
        "    .reg .b64 %a<4>;",
        "    ld.param.u64 %a0, [p_in];",
        "    ld.param.u64 %a1, [p_out];",
        "    mov.u32 %r0, %ctaid.x;",
        "    mov.u32 %r1, %tid.x;",
        f"    mad.lo.s32 %r2, %r0, {BLOCK}, %r1;",
        f"    mad.wide.u32 %a2, %r2, {3 * wide}, %a0;",
        f"    mad.wide.u32 %a3, %r2, {narrow}, %a1;",
    ]
    lines += [f"    ld.global.{register[wide]} %x{k}, [%a2+{wide * k}];" for k in range(3)]
    for k, (text, count) in enumerate(operations):
        lines.append(f"    {text} %y, {', '.join(f'%x{i}' for i in range(count))};")
        lines.append(f"    st.global.{register[narrow]} [%a3+{narrow * threads * k}], %y;")
    return "\n".join([*lines, "    ret;", "}", ""])


def compare_operations(ops: list[tuple[str, int]], source: str, target: str, words: list[int]) -> None:
    wide, narrow = FORMATS[source].width // 8, FORMATS[target].width // 8
    threads = len(words) // 3 // BLOCK * BLOCK
    ptx = kernel(ops, source, target, threads)
    launch = Launch("arithmetic", (threads // BLOCK, 1, 1), (BLOCK, 1, 1), ("operands", "results"))
    operands = b"".join(word.to_bytes(wide, "little") for word in words[: 3 * threads])
    buffers = {"operands": operands, "results": bytes(narrow * threads * len(ops))}
    expected = interpreted(ptx, launch, buffers)["results"]
    got = by_model(ptx, launch, buffers, ModelExecutor())["results"]
    wrong = []
    for i in range(0, len(expected), narrow):
        if got[i : i + narrow] != expected[i : i + narrow]:
            text, thread = ops[i // narrow // threads][0], i // narrow % threads
            given = " ".join(f"{word:0{2 * wide}x}" for word in words[3 * thread : 3 * thread + 3])
            wrong.append(f"{text} of {given}: model {got[i : i + narrow][::-1].hex()}, "
                         f"exact {expected[i : i + narrow][::-1].hex()}")  # fmt: skip
    assert not wrong, f"{len(wrong)} results differ\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("name", FORMATS)
def test_arithmetic_on_hard_operands(name: str) -> None:
    f = FORMATS[name]
    rng = Random(f"{name} operands")
    words = [word for triple in triples(rng, f, 512) for word in triple]
    compare_operations(operations(f), name, name, words)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", FORMATS)
def test_arithmetic_on_many_hard_operands(name: str, seed: int) -> None:
    f = FORMATS[name]
    words = [word for triple in triples(Random(seed), f, 4096) for word in triple]
    compare_operations(operations(f), name, name, words)


@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_narrowing_at_the_middles(source: str, target: str) -> None:
    words = narrowing(Random(f"{source} {target}"), FORMATS[source], FORMATS[target], 3 * 512)
    compare_operations([(text, 1) for text in CONVERSIONS[source, target]], source, target, words)


@pytest.mark.soak
def test_every_half_widened_and_every_single_half_operation() -> None:
    """All 65,536 halves and bfloat16 numbers through the operations of one operand."""
    words = [word for bits in range(1 << 16) for word in (bits, 0, 0)]
    for name in ("f16", "bf16"):
        compare_operations([(f"add.rn.{name}", 2), (f"fma.rn.{name}", 3)], name, name, words)
