"""Where ptxas makes something else of PTX than PTX says: the model follows the machine code, or refuses.

Found by random programs on an H200 (driver 580.159.04) and read in the SASS of ptxas 12.4 and 13.0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reprodb.domain import Arg, ArgKind, Buffer, Role, Stage
from reprodb.errors import UnsupportedError
from reprodb.executors.model.engine import ModelExecutor, run
from tests.model.on_gpu import assemble, launch
from tests.model.reference import Launch
from tests.model.reference.compare import interpreted

# What one thread does between loading a, b and c (64 bits each) and storing %out.
MEASURED: list[tuple[str, tuple[int, int, int], int]] = [
    # A 64-bit field's position and length are shift amounts, not bytes.
    ("bfe.u64 %out, %a, %bw, %cw;", (0x0123456789ABCDEF, 0x104, 8), 0),
    ("bfe.u64 %out, %a, %bw, %cw;", (0x0123456789ABCDEF, 4, 0x108), 0x00123456789ABCDE),
    ("bfe.s64 %out, %a, %bw, %cw;", (0x8123456789ABCDEF, 0x104, 8), 0xFFFFFFFFFFFFFFFF),
    ("bfe.s64 %out, %a, %bw, %cw;", (0x0123456789ABCDEF, 0xFFFFFFFF, 0xFFFFFFFF), 0),
    ("bfe.u32 %w, %aw, %bw, %cw; cvt.u64.u32 %out, %w;", (0x89ABCDEF, 0x104, 0x108), 0xDE),
    # Of one register twice, min and max are a copy: a NaN keeps its payload. Not under .NaN and .ftz.
    ("min.f32 %f, %af, %af; mov.b32 %w, %f; cvt.u64.u32 %out, %w;", (0x7FBFFFFF, 0, 0), 0x7FBFFFFF),
    ("max.NaN.f32 %f, %af, %af; mov.b32 %w, %f; cvt.u64.u32 %out, %w;", (0x7FBFFFFF, 0, 0), 0x7FFFFFFF),
    ("max.ftz.f32 %f, %af, %af; mov.b32 %w, %f; cvt.u64.u32 %out, %w;", (0x7FBFFFFF, 0, 0), 0x7FFFFFFF),
    ("min.f64 %d, %ad, %ad; mov.b64 %out, %d;", (0x7FF0000000000001, 0, 0), 0x7FF0000000000001),
    ("max.f16 %h, %ah, %ah; cvt.u64.u16 %out, %h;", (0x7C01, 0, 0), 0x7C01),
    ("max.bf16 %h, %ah, %ah; cvt.u64.u16 %out, %h;", (0x7F81, 0, 0), 0x7FFF),
    # Constant amounts of 16-bit shifts are cut to 16 bits.
    ("shl.b16 %h, %ah, -2147483648; cvt.u64.u16 %out, %h;", (0xF456, 0, 0), 0xF456),
    ("shl.b16 %h, %ah, 65537; cvt.u64.u16 %out, %h;", (0x1234, 0, 0), 0x2468),
    ("shr.s16 %h, %ah, 65537; cvt.u64.u16 %out, %h;", (0x8234, 0, 0), 0xC11A),
    ("shr.u16 %h, %ah, -1; cvt.u64.u16 %out, %h;", (0x8234, 0, 0), 0),
    ("shl.b16 %h, %ah, %bw; cvt.u64.u16 %out, %h;", (0x1234, 65537, 0), 0),
]
LAUNCH = Launch("k", (1, 1, 1), (1, 1, 1), ("in", "out"))


def ptx(body: str) -> str:
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p_in, .param .u64 p_out)
{{
    .reg .b64 %in, %to, %a, %b, %c, %out;
    .reg .b32 %aw, %bw, %cw, %w;
    .reg .f32 %af, %f;
    .reg .f64 %ad, %d;
    .reg .b16 %ah, %h;
    .reg .pred %p, %q;
    ld.param.u64 %in, [p_in];
    ld.param.u64 %to, [p_out];
    ld.global.b64 %a, [%in];
    ld.global.b64 %b, [%in+8];
    ld.global.b64 %c, [%in+16];
    cvt.u32.u64 %aw, %a;
    cvt.u32.u64 %bw, %b;
    cvt.u32.u64 %cw, %c;
    mov.b32 %af, %aw;
    mov.b64 %ad, %a;
    cvt.u16.u64 %ah, %a;
    setp.eq.u64 %q, %a, %b;
    {body}
    st.global.b64 [%to], %out;
    ret;
}}
"""


def words(operands: tuple[int, ...]) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in operands)


def modelled(executor: ModelExecutor, body: str, operands: tuple[int, int, int]) -> int:
    stage = Stage("k", (1, 1, 1), (1, 1, 1), (Arg(ArgKind.INPUT, "in"), Arg(ArgKind.BUFFER, "out")))
    program = executor.program(body, ptx(body), [stage])
    inputs = {"in": np.frombuffer(words(operands), np.uint64)}
    return int.from_bytes(
        run(program, [Buffer("out", "uint64", (1,), Role.RESULT)], inputs, 3, 1, 0).raws["out"][0], "little"
    )


@pytest.mark.parametrize(("body", "operands", "bits"), MEASURED)
def test_the_model_follows_the_machine_code(
    body: str, operands: tuple[int, int, int], bits: int, executor: ModelExecutor
) -> None:
    assert f"{modelled(executor, body, operands):#x}" == f"{bits:#x}"


@pytest.mark.parametrize(("body", "operands", "bits"), MEASURED)
def test_the_interpreter_follows_it_too(body: str, operands: tuple[int, int, int], bits: int) -> None:
    found = interpreted(ptx(body), LAUNCH, {"in": words(operands), "out": bytes(8)})
    assert f"{int.from_bytes(found['out'], 'little'):#x}" == f"{bits:#x}"


@pytest.mark.gpu
def test_a_gpu_does_as_these_tests_say(tmp_path: Path) -> None:
    import cupy

    found = {}
    for k, (body, operands, _) in enumerate(MEASURED):
        cubin = assemble(ptx(body), tmp_path / f"{k}.cubin")
        out = launch(cupy, cubin, LAUNCH, {"in": words(operands), "out": bytes(8)})["out"]
        found[body, operands] = int.from_bytes(out, "little")
    assert found == {(body, operands): bits for body, operands, bits in MEASURED}


@pytest.mark.parametrize(
    "instruction",
    [
        "@%q testp.finite.f32 %p, %af;",
        "@!%q testp.infinite.f64 %p, %ad;",
        "@%q set.lt.f32.s32 %f, %aw, %bw;",
        "@%q set.lt.f32.f32 %f, %af, 0f3F800000;",
    ],
)
def test_a_guard_that_ptxas_does_not_keep_to_is_refused(instruction: str, executor: ModelExecutor) -> None:
    """ptxas makes several instructions of these and guards only some, so that a lane's register changes whose
    guard is false."""
    with pytest.raises(UnsupportedError, match="which ptxas does not keep to") as caught:
        modelled(executor, f"{instruction} mov.b64 %out, %a;", (1, 1, 1))
    assert instruction.split()[1] in str(caught.value)


def test_the_same_without_a_guard_is_executed(executor: ModelExecutor) -> None:
    body = "testp.finite.f32 %p, %af; selp.u64 %out, 1, 0, %p;"
    assert modelled(executor, body, (0x3F800000, 0, 0)) == 1
    assert modelled(executor, body, (0x7F800000, 0, 0)) == 0
