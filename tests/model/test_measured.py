"""Where PTX leaves bits open or says little: what an H200 gave, driver 580.159.04, one operation a row.

Raw PTX assembled by ptxas 12.4 and 13.0, which agreed on every bit. The model and the slow interpreter both
have to give these.
"""

from __future__ import annotations

import numpy as np
import pytest

from reprodb.domain import Arg, ArgKind, Buffer, Role, Stage
from reprodb.executors.model.engine import ModelExecutor, run
from tests.model.reference import Launch
from tests.model.reference.compare import interpreted

Row = tuple[str, tuple[int, ...], int]

# `.ftz` judges the result rounded to its own precision as if exponents had no end.
FLUSHED: list[Row] = [
    ("mul.rn.ftz.f32", (0xA2EF6027, 0x1D08E3B5), 0x80800000),
    ("mul.rn.ftz.f32", (0xAB8F08B2, 0x146517AA), 0x80800000),
    ("mul.rn.ftz.f32", (0xAC8C5677, 0x13697E6B), 0x80000000),
    ("mul.rn.ftz.f32", (0x00800000, 0x3F7FFFFF), 0x00000000),  # 2^-126 (1 - 2^-24), a float
    ("mul.rz.ftz.f32", (0xAD26937C, 0x92C4B704), 0x00800000),
    ("mul.rm.ftz.f32", (0xA6ABF857, 0x193E8B75), 0x80000000),
    ("mul.rp.ftz.f32", (0xAE0CAEC6, 0x91E8EBD9), 0x00000000),
    ("mul.rp.ftz.f32", (0xA3E72C46, 0x9C0DBF27), 0x00800000),
    ("fma.rn.ftz.f32", (0x00800001, 0x00800001, 0x80800000), 0x80800000),
    ("fma.rn.ftz.f32", (0xA49DD254, 0x094FA079, 0x00800000), 0x00800000),
    ("fma.rn.ftz.f32", (0xA3B72EE5, 0x1C32E18C, 0x80000000), 0x80000000),
    ("fma.rm.ftz.f32", (0xA430072E, 0x063A26F2, 0x00800001), 0x00800000),
    ("fma.rp.ftz.f32", (0xA69EA745, 0x80CE89CE, 0x007FFFFF), 0x00000000),
    ("div.rn.ftz.f32", (0x3FFFFFFF, 0x7F000000), 0x00000000),
    ("div.rp.ftz.f32", (0x80800000, 0xBF800001), 0x00000000),
    ("cvt.rn.ftz.f32.f64", (0xB80FFFFFFFE00000,), 0x80800000),
    ("cvt.rn.ftz.f32.f64", (0x380FFFFFE0000000,), 0x00000000),
    ("cvt.rm.ftz.f32.f64", (0xB80FFFFFE0000000,), 0x80000000),
    ("cvt.rp.ftz.f32.f64", (0x380FFFFFE0000000,), 0x00000000),
    ("mul.rn.ftz.f16", (0x9A08, 0xA54E), 0x0400),
    ("mul.rn.ftz.f16", (0x1AB4, 0x24C5), 0x0000),
    ("fma.rn.ftz.f16", (0xA180, 0x1DD2, 0x0003), 0x8400),
]

# NaNs: canonical in f32; in f64 an operand's made quiet, and 0xfff8… where there was none.
NANS: list[Row] = [
    ("add.rn.f64", (0x7FF0000080000000, 0x8010000000000000), 0x7FF8000080000000),
    ("add.rn.f64", (0x7FEFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF), 0xFFFFFFFFFFFFFFFF),
    ("add.rn.f64", (0x7FF0000000000000, 0xFFF0000000000000), 0xFFF8000000000000),
    ("mul.rn.f64", (0x7FF8000000001234, 0x7FEFFFFFFFFFFFFF), 0x7FF8000000001234),
    ("mul.rn.f64", (0x7FF0000000000000, 0x0000000000000000), 0xFFF8000000000000),
    ("fma.rn.f64", (0xFFF0000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFF00000DEAD0001), 0xFFF80000DEAD0001),
    ("fma.rn.f64", (0x7FF0000000000000, 0x0000000000000000, 0x7FEFFFFFFFFFFFFF), 0xFFF8000000000000),
    ("div.rn.f64", (0x7FF0000000000001, 0xFFF8000000005678), 0x7FF8000000000001),
    ("div.rn.f64", (0x0000000000000000, 0x0000000000000000), 0xFFF8000000000000),
    ("sqrt.rn.f64", (0xBFF0000000000000,), 0xFFF8000000000000),
    ("sqrt.rn.f64", (0x7FF0000000000001,), 0x7FF8000000000001),
    ("rcp.rn.f64", (0x7FF0000000000001,), 0x7FF8000000000001),
    ("neg.f64", (0x7FF0000000000001,), 0x7FF8000000000001),
    ("abs.f64", (0xFFF8000000005678,), 0xFFF8000000005678),
    ("min.f64", (0x7FF8000000001234, 0x7FEFFFFFFFFFFFFF), 0x7FEFFFFFFFFFFFFF),
    ("cvt.rni.f64.f64", (0x7FF0000000000001,), 0x7FF8000000000001),
    ("cvt.rn.f32.f64", (0x7FF8000000001234,), 0x7FC00000),
    ("cvt.rn.f32.f64", (0xFFF8000000005678,), 0xFFC00000),
    ("cvt.f64.f32", (0x7F800001,), 0x7FF8000020000000),
    ("cvt.ftz.f64.f32", (0x7FC01234,), 0x7FFFFFFFE0000000),
    ("neg.f32", (0xFF812345,), 0x7FFFFFFF),
    ("abs.f32", (0xFFC00000,), 0x7FFFFFFF),
]

# Zeros are normal numbers to `testp`, as PTX says.
KINDS: list[Row] = [
    ("testp.normal.f32", (0x00000000,), 1),
    ("testp.normal.f32", (0x80000000,), 1),
    ("testp.normal.f32", (0x80000001,), 0),
    ("testp.normal.f32", (0x00800000,), 1),
    ("testp.subnormal.f32", (0x00000000,), 0),
    ("testp.subnormal.f32", (0x80000001,), 1),
    ("testp.subnormal.f32", (0x00800000,), 0),
]

_REGISTER = {"f32": "%f", "f64": "%d", "f16": "%h"}


def ptx(opcode: str, count: int) -> str:
    """An entry `k` that reads its operands from 64-bit words of `a` and writes a 64-bit word to `o`."""
    parts = opcode.split(".")
    source = parts[-1]
    target = "pred" if parts[0] == "testp" else parts[-2] if parts[0] == "cvt" else source
    lines = [
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 o) {",
        ".reg .b64 %x<4>; .reg .b32 %r<2>; .reg .f32 %f<5>; .reg .f64 %d<5>;",
        ".reg .b16 %h<5>; .reg .pred %p<2>;",
        "ld.param.u64 %x0, [a]; ld.param.u64 %x1, [o];",
    ]
    operands = [f"{_REGISTER[source]}{n}" for n in range(count)]
    load = {"f16": "b16"}.get(source, source)
    lines += [f"ld.global.{load} {o}, [%x0+{8 * n}];" for n, o in enumerate(operands)]
    result = "%p1" if target == "pred" else _REGISTER[target] + "4"
    lines.append(f"{opcode} {result}, {', '.join(operands)};")
    lines.append(
        {
            "pred": f"selp.u64 %x2, 1, 0, {result};",
            "f16": f"cvt.u64.u16 %x2, {result};",
            "f32": f"mov.b32 %r1, {result}; cvt.u64.u32 %x2, %r1;",
            "f64": f"mov.b64 %x2, {result};",
        }[target]
    )
    return "\n".join([*lines, "st.global.u64 [%x1], %x2; ret; }\n"])


def words(operands: tuple[int, ...]) -> bytes:
    return b"".join(o.to_bytes(8, "little") for o in operands).ljust(32, b"\0")


def modelled(executor: ModelExecutor, opcode: str, operands: tuple[int, ...]) -> tuple[int, tuple[str, ...]]:
    """The result and what the model notes about it."""
    stage = Stage("k", (1, 1, 1), (1, 1, 1), (Arg(ArgKind.INPUT, "a"), Arg(ArgKind.BUFFER, "o")))
    program = executor.program(opcode, ptx(opcode, len(operands)), [stage])
    inputs = {"a": np.frombuffer(words(operands), np.uint64)}
    outcome = run(program, [Buffer("o", "uint64", (1,), Role.RESULT)], inputs, 1, 1, 0)
    return int.from_bytes(outcome.raws["o"][0], "little"), outcome.notes


@pytest.mark.parametrize(("opcode", "operands", "bits"), [*FLUSHED, *NANS, *KINDS])
def test_the_model_gives_the_measured_bits(
    opcode: str, operands: tuple[int, ...], bits: int, executor: ModelExecutor
) -> None:
    found, notes = modelled(executor, opcode, operands)
    assert f"{found:#x}" == f"{bits:#x}"
    assert notes == () or opcode.startswith("div")


@pytest.mark.parametrize(("opcode", "operands", "bits"), [*FLUSHED, *NANS, *KINDS])
def test_the_interpreter_gives_the_measured_bits(opcode: str, operands: tuple[int, ...], bits: int) -> None:
    launch = Launch("k", (1, 1, 1), (1, 1, 1), ("a", "o"))
    found = interpreted(ptx(opcode, len(operands)), launch, {"a": words(operands), "o": bytes(8)})
    assert f"{int.from_bytes(found['o'], 'little'):#x}" == f"{bits:#x}"


ONE, OTHER, QUIET_ONE = 0x7FF8000000000001, 0xFFF8000000000002, 0x7FF0000000000001


@pytest.mark.parametrize("opcode", ["add.rn.f64", "sub.rn.f64", "mul.rz.f64", "max.f64"])
def test_two_different_nans_are_noted(opcode: str, executor: ModelExecutor) -> None:
    """`add d, a, b` and `add d, b, a` are one and the same SASS, so PTX cannot tell which NaN goes on."""
    (note,) = modelled(executor, opcode, (ONE, OTHER))[1]
    assert note.startswith(f"k: {opcode} at PTX line ")
    assert "two different NaNs" in note
    assert modelled(executor, opcode, (ONE, QUIET_ONE))[1] == ()
    assert modelled(executor, opcode, (ONE, 0))[1] == ()


@pytest.mark.parametrize("operands", [(ONE, OTHER, 0), (ONE, 0, OTHER), (0, ONE, OTHER)])
def test_two_different_nans_are_noted_in_an_fma(operands: tuple[int, ...], executor: ModelExecutor) -> None:
    assert "two different NaNs" in modelled(executor, "fma.rn.f64", operands)[1][0]
    assert modelled(executor, "fma.rn.f64", (ONE, QUIET_ONE, ONE))[1] == ()
