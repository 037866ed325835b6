"""Float additions whose old value nobody wants take a quicker way: it must end in the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from reprodb.executors.model.engine import ModelExecutor
from tests.model.instructions import COUNT, operand
from tests.model.kernels import HEAD, outputs, stage


def additions(kind: str, space: str) -> str:
    """A thread a pair: cells start as a, take b and then c; by `red`, and by `atom` with its value kept."""
    bits, size = ("b32", 4) if kind == "f32" else ("b64", 8)
    shared = "shared" in space
    where = "" if "generic" in space else ("shared." if shared else "global.")
    home = "shared" if shared else "global"
    place = "mov.u64 %d5, cells; mad.wide.u32 %d5, %r2, 8, %d5;" if shared else "mov.u64 %d5, %d4;"
    generic = f"cvta.{home}.u64 %d6, %d5;" if "generic" in space else "mov.u64 %d6, %d5;"
    v = [register(kind, i) for i in range(5)]
    loads = "".join(
        f"ld.param.u64 %d{i}, [{name}]; add.u64 %d{i}, %d{i}, %d7; ld.global.{bits} {v[i]}, [%d{i}];\n"
        for i, name in enumerate("abc")
    )

    def cell(result: str) -> str:
        return (
            f"ld.param.u64 %d4, [{result}]; add.u64 %d4, %d4, %d7; {place} {generic}\n"
            f"st.{home}.{bits} [%d5], {v[0]};\n"
        )

    keep = f"ld.{home}.{bits} {v[3]}, [%d5]; st.global.{bits} [%d4], {v[3]};\n"
    return (
        HEAD
        + ".visible .entry sums(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 quick,\n"
        + ".param .u64 kept, .param .u64 old) {\n"
        + ".reg .b64 %d<9>; .reg .b64 %q<6>; .reg .b32 %r<6>; .reg .b32 %w<6>;\n"
        + ".shared .align 8 .b8 cells[2048]; mov.u32 %r0, %ctaid.x; mov.u32 %r2, %tid.x;\n"
        + f"mad.lo.u32 %r1, %r0, 256, %r2; mul.wide.u32 %d7, %r1, {size};\n"
        + loads
        + cell("quick")
        + f"red.{where}add.{kind} [%d6], {v[1]}; red.{where}add.{kind} [%d6], {v[2]};\n"
        + keep
        + cell("kept")
        + f"atom.{where}add.{kind} {v[4]}, [%d6], {v[1]};\n"
        + f"ld.param.u64 %d8, [old]; add.u64 %d8, %d8, %d7; st.global.{bits} [%d8], {v[4]};\n"
        + f"atom.{where}add.{kind} {v[4]}, [%d6], {v[2]}; st.global.{bits} [%d8], {v[4]};\n"
        + keep
        + "ret; }"
    )


def register(kind: str, number: int) -> str:
    return f"%w{number}" if kind == "f32" else f"%q{number}"


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("space", ["global", "shared", "generic global", "generic shared"])
def test_quick_additions_end_in_the_same_bits(executor: ModelExecutor, kind: str, space: str) -> None:
    dtype = np.uint32 if kind == "f32" else np.uint64
    arrays = {name: operand(kind, 7, i).astype(dtype) for i, name in enumerate("abc")}
    buffers = dict.fromkeys(("quick", "kept", "old"), (np.dtype(dtype).name, COUNT))
    run = [stage("sums", COUNT // 256, 256, "<a", "<b", "<c", "quick", "kept", "old")]
    found = outputs(executor, additions(kind, space), run, buffers, arrays)
    assert (found["quick"][0] == found["kept"][0]).all()


def test_subnormals_are_flushed_in_global_memory_and_kept_in_shared(executor: ModelExecutor) -> None:
    """As an H200 does it: 2^-149 added to 2^-149, and to 1.5 times the smallest normal."""
    start = np.full(COUNT, 1, np.uint32)
    start[1::2] = 0x00C00000
    arrays = {"a": start, "b": np.ones(COUNT, np.uint32), "c": np.full(COUNT, 0x80000000, np.uint32)}
    buffers = dict.fromkeys(("quick", "kept", "old"), ("uint32", COUNT))
    run = [stage("sums", COUNT // 256, 256, "<a", "<b", "<c", "quick", "kept", "old")]
    for space, wanted in (
        ("global", [0, 0x00C00000]),
        ("generic global", [0, 0x00C00000]),
        ("shared", [2, 0x00C00001]),
        ("generic shared", [2, 0x00C00001]),
    ):
        found = outputs(executor, additions("f32", space), run, buffers, arrays)
        assert found["quick"][0][:2].tolist() == wanted
        assert found["kept"][0][:2].tolist() == wanted
