"""The conformance suite: every kernel compiles, and the model and the slow interpreter agree on its bits.

What PTX leaves open both refuse by name, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from reprodb.build import request
from reprodb.domain import Artifact, Build, Kernel, Profile, Status, Suite, Toolchain
from reprodb.errors import UnsupportedError
from reprodb.executors.model import ModelExecutor
from reprodb.executors.model.engine import run_stages
from reprodb.inputs import generate
from reprodb.suite import load_suite
from reprodb.toolchains.pool import compile_all
from tests.model.reference import Order, Refused
from tests.model.reference.suite import run_case
from tests.toolchains_here import nvcc13, nvrtc12, nvrtc13

ROOT = Path(__file__).parent / "suites" / "conformance"
COMPILERS = {"nvrtc12": nvrtc12, "nvrtc13": nvrtc13, "nvcc13": nvcc13}
FLAGS = ("default", "no-fmad", "fast-math")
# What the model must refuse and why, under every compiler and all flags or only under those named.
REFUSED = (
    ("remainders", None, None, "approx"),
    ("scaling", "nvrtc12", None, "approx"),
    ("f32_plain_division", None, "fast-math", "approx"),
    ("polynomial", None, "fast-math", "approx"),
    ("recursion", None, None, "recursive"),
)
# Quick ones of every kind for each run of the tests; the rest, and all other builds, are the soak's.
QUICK = (
    "atomics_global",
    "bf16_arithmetic",
    "bit_tricks",
    "device_functions",
    "f16_arithmetic",
    "f32_rounding",
    "f64_division",
    "float_to_int",
    "fma_halfway",
    "generic_pointers",
    "minmax",
    "named_barriers",
    "partial_masks",
    "partial_warps",
    "remainders",
    "shuffles",
    "special_values",
    "subnormal_atomics",
    "subnormals",
    "votes",
)


@cache
def suite() -> Suite:
    return load_suite(ROOT)


def profile(flags: str) -> Profile:
    return Profile(flags, "any", "any", fmad=flags != "no-fmad", fast_math=flags == "fast-math", arch="sm_90")


@cache
def built(compiler: str, flags: str) -> dict[str, Artifact]:
    """Every kernel of the suite as one compiler made it, by name: PTX without SASS."""
    toolchain: Toolchain = COMPILERS[compiler]()
    kernels = suite().kernels
    wanted = [request(suite(), kernel, profile(flags), toolchain, "sm_90") for kernel in kernels]
    artifacts = {}
    for done in compile_all(wanted, 2):
        asked = wanted[done.number]
        status = Status.OK if done.output.ok else Status.BUILD_FAILED
        build = Build("", asked.profile, toolchain, "sm_90", (), asked.defines, (), status, done.output.log)
        artifacts[asked.kernel] = Artifact(build, done.output.ptx, done.output.cubin)
    return artifacts


@pytest.fixture(scope="module")
def model() -> ModelExecutor:
    return ModelExecutor()


def refused(name: str, compiler: str, flags: str) -> str:
    """The word that the refusal must have, or nothing."""
    words = [w for n, c, f, w in REFUSED if n == name and c in (None, compiler) and f in (None, flags)]
    return words[0] if words else ""


def named(names: Iterable[str]) -> list[Kernel]:
    wanted = set(names)
    return [kernel for kernel in suite().kernels if kernel.name in wanted]


def agree(model: ModelExecutor, kernel: Kernel, compiler: str, flags: str, number: int = 0) -> None:
    """The PTX as it is: what ptxas fuses beyond it is judged against bits measured on a GPU, not here."""
    artifact, case = built(compiler, flags)[kernel.name], kernel.cases[number]
    assert artifact.ptx is not None, artifact.build.log
    arrays = {i.name: generate(i) for i in case.inputs}
    word = refused(kernel.name, compiler, flags)
    if word:
        with pytest.raises(UnsupportedError, match=word):
            run_stages(artifact.ptx, kernel.stages, case.buffers, arrays, case.n, executor=model)
    if word == "approx":
        with pytest.raises(Refused, match=word):
            run_case(kernel, case, artifact.ptx)
    if word:
        return
    raws = run_stages(artifact.ptx, kernel.stages, case.buffers, arrays, case.n, 2, 7, executor=model)
    expected = run_case(kernel, case, artifact.ptx)
    for buffer in case.recorded:
        first, second = raws[buffer.name]
        assert first == second, f"{buffer.name} differs from one repetition to the next"
        same(buffer.pack(first), expected[buffer.name], buffer.element_bytes, buffer.name)


def same(got: bytes, wanted: bytes, width: int, name: str) -> None:
    """Fails with the first element that differs and the count."""
    if got == wanted:
        return
    assert len(got) == len(wanted), name
    pairs = [
        (i // width, got[i : i + width][::-1].hex(), wanted[i : i + width][::-1].hex())
        for i in range(0, len(got), width)
        if got[i : i + width] != wanted[i : i + width]
    ]
    index, left, right = pairs[0]
    pytest.fail(f"{name}[{index}]: model 0x{left}, interpreter 0x{right}; {len(pairs)} elements differ")


# --- The suite itself --------------------------------------------------------------------------


def test_the_suite_is_broad_and_small() -> None:
    assert len(suite().kernels) >= 28
    for kernel in suite().kernels:
        for case in kernel.cases:
            assert max(buffer.elements for buffer in case.recorded) >= 8
            assert max(buffer.elements for buffer in case.recorded) <= 4096, kernel.name


def test_every_kernel_compiles() -> None:
    failed = {name: a.build.log for name, a in built("nvrtc13", "default").items() if a.ptx is None}
    assert not failed


# What a kernel of the suite must still hold after the compiler's optimiser: words of its PTX.
HOLDS = {
    "atomics_global": "atom.global.add.u64 atom.global.inc.u32 atom.global.cas.b32 atom.global.exch.b32",
    "atomics_shared": "atom.shared.cas.b32 atom.shared.min.u32 atom.shared.add.u64",
    "bit_tricks": "shf.l.wrap.b32 shf.r.clamp.b32 prmt.b32.f4e lop3.b32 bfe.s32 bfi.b32 dp4a.s32.s32",
    "bytes_and_shorts": "ld.global.u8 mul.hi.s16 mad.wide.s16",
    "cache_hints": "ld.global.nc.f32 ld.volatile.global.f32 st.global.wt.f32",
    "constants": "ld.const.f32 ld.const.f64 ld.const.s8",
    "device_functions": "call.uni st.param.f32 ld.param.f64",
    "f32_division": "div.rm.f32 rcp.rp.f32 sqrt.rz.f32",
    "f64_rounding": "fma.rm.f64 add.rp.f64 mul.rz.f64",
    "float_atomics": "atom.global.add.f32 atom.global.add.f64 atom.shared.add.f32",
    "float_to_int": "cvt.rpi.u64.f32 cvt.rmi.s32.f64 cvt.rni.s64.f64",
    "generic_pointers": "ld.f32 st.f32 cvta.shared.u64 cvta.local.u64 isspacep.shared",
    "int64": "mul.hi.u64 addc.u64 subc.u64 rem.u64",
    "local_arrays": "ld.local.u8 st.local.f32",
    "named_barriers": "barrier.sync barrier.arrive bar.red.popc.u32 bar.red.and.pred",
    "redux": "redux.sync.add.s32 redux.sync.min.s32 redux.sync.xor.b32",
    "shuffles": "shfl.sync.idx.b32 shfl.sync.up.b32 shfl.sync.down.b32 shfl.sync.bfly.b32",
    "vectors": "ld.global.v4.f32 ld.global.v2.f32 ld.global.v4.u8 st.global.v2.f64",
    "votes": "vote.sync.ballot.b32 vote.sync.uni.pred match.any.sync.b64 match.all.sync.b32",
}


def test_compilers_leave_in_what_the_kernels_are_about() -> None:
    for name, words in HOLDS.items():
        ptx = built("nvrtc13", "default")[name].ptx
        assert ptx is not None
        found = set(re.findall(r"[a-z][\w.]*\.[\w.]+", ptx))
        assert set(words.split()) <= found, name


# --- Agreement ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", named(QUICK), ids=lambda kernel: kernel.name)
def test_model_and_interpreter_agree(kernel: Kernel, model: ModelExecutor) -> None:
    agree(model, kernel, "nvrtc13", "default")


@pytest.mark.soak
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("kernel", suite().kernels, ids=lambda kernel: kernel.name)
def test_model_and_interpreter_agree_on_every_build(
    kernel: Kernel, compiler: str, flags: str, model: ModelExecutor
) -> None:
    for case in range(len(kernel.cases)):
        agree(model, kernel, compiler, flags, case)


@pytest.mark.soak
@pytest.mark.parametrize("kernel", suite().kernels, ids=lambda kernel: kernel.name)
def test_no_result_depends_on_the_order_of_blocks_and_warps(kernel: Kernel) -> None:
    """The suite's own promise, on the interpreter alone."""
    ptx = built("nvrtc13", "default")[kernel.name].ptx
    assert ptx is not None
    if refused(kernel.name, "nvrtc13", "default") == "approx":
        return
    x, y, z = max((stage.grid for stage in kernel.stages), key=lambda g: g[0] * g[1] * g[2])
    backwards = Order(tuple(reversed(range(x * y * z))), tuple(reversed(range(32))))
    case = kernel.cases[0]
    assert run_case(kernel, case, ptx) == run_case(kernel, case, ptx, backwards)
