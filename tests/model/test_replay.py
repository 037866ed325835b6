"""Replayed arrival orders are those of executions in full, bit for bit; what is not proven is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reprodb.artifacts import ArtifactStore
from reprodb.build import build_each, request
from reprodb.domain import Artifact, Buffer, Case, Kernel, Role, Stage
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import ExecutorOptions, open_executor
from reprodb.executors.model import arrivals
from reprodb.executors.model.engine import Limits, ModelExecutor, run
from reprodb.inputs import generate
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.suite import bundled_suite, load_suite, select_kernels
from tests.model.kernels import HEAD, compiled, stage
from tests.toolchains_here import nvrtc13

REPLAYED = Limits(worth=0)
IN_FULL = Limits(log=0)
SEEDS = 100


def same(
    executor: ModelExecutor,
    ptx: str,
    stages: list[Stage],
    buffers: Mapping[str, tuple[str, int]],
    arrays: Mapping[str, NDArray[Any]],
    n: int,
    *,
    seeds: int = SEEDS,
    limits: Limits = REPLAYED,
) -> tuple[int, str]:
    """Replayed and in full, three repetitions a seed: how many results there were, and what was noted."""
    made = [Buffer(name, dtype, (count,), Role.RESULT, "zero") for name, (dtype, count) in buffers.items()]
    program = executor.program("test", ptx, stages)
    distinct: set[bytes] = set()
    for seed in range(seeds):
        replayed = run(program, made, arrays, n, 3, seed, limits)
        in_full = run(program, made, arrays, n, 3, seed, replace(limits, log=0))
        assert replayed.raws == in_full.raws
        assert not any("arrival order" in note for note in in_full.notes)
        distinct |= {b"".join(raw) for raw in zip(*in_full.raws.values(), strict=True)}
    return len(distinct), "; ".join(note for note in replayed.notes if "arrival order" in note)


def values(n: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


# --- The bundled kernels -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Artifact, Kernel]]:
    """Every bundled kernel whose stages use atomics, by name."""
    suite = load_suite(bundled_suite())
    kernels = [k for k in select_kernels(suite, ["*"]) if "atomic" in k.tags or "atomic" in k.name]
    kernels += select_kernels(suite, ["sum_last_block"])
    kernels = [k for k in kernels if k.program is None]
    profile = load_profiles(bundled_profiles())["default"]
    wanted = {request(suite, k, profile, nvrtc13(), "sm_90"): k for k in kernels}
    store = ArtifactStore(tmp_path_factory.mktemp("store"))
    return {wanted[made].name: (artifact, wanted[made]) for made, artifact in build_each(list(wanted), store)}


def sized(case: Case, n: int) -> Case:
    return replace(case, n=n, inputs=tuple(replace(each, n=n) for each in case.inputs))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sum_squares_atomic", "99 of 100 arrival orders replayed"),
        ("sum_squares_kahan_atomic", "99 of 100 arrival orders replayed"),
        ("sum_tree_atomic", "99 of 100 arrival orders replayed"),
        ("sum_global_atomic", "99 of 100 arrival orders replayed"),
        ("sum_int_atomic", "99 of 100 arrival orders replayed"),
        ("sum_shared_atomic", "what a block adds depends on the order of its own warps"),
        ("append_atomic", "uses the value that it finds"),
        ("sum_last_block", "uses the value that it finds"),
    ],
)
def test_the_bundled_kernels(
    executor: ModelExecutor, built: dict[str, tuple[Artifact, Kernel]], name: str, told: str
) -> None:
    """A hundred orders of each, results and witnesses."""
    artifact, kernel = built[name]
    case = kernel.cases[0] if name == "append_atomic" else sized(kernel.cases[0], 30_011)
    arrays = {i.name: generate(i) for i in case.inputs}
    program = executor.program(name, artifact.ptx or "", kernel.stages, artifact)
    replayed = run(program, case.buffers, arrays, case.n, 100, 11, REPLAYED)
    assert replayed.raws == run(program, case.buffers, arrays, case.n, 100, 11, IN_FULL).raws
    assert told in replayed.notes[-1]


def test_the_executor_replays_and_can_be_told_not_to(
    built: dict[str, tuple[Artifact, Kernel]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full size: with less to do than a recording costs, every order is executed."""
    artifact, kernel = built["sum_squares_atomic"]
    case = kernel.cases[0]
    wanted = {"": "19 of 20", "0": ""}
    found = []
    for setting, told in wanted.items():
        monkeypatch.setenv("REPRODB_REPLAY", setting)
        executor, _ = open_executor(ExecutorOptions("model"), Arrays())
        samples = executor.execute(artifact, kernel, case, 20, seed=3)
        assert any(told in note for note in samples.notes if "arrival" in note) or not told
        assert bool(told) == any("arrival" in note for note in samples.notes)
        found.append(samples.outputs)
    assert found[0] == found[1]
    few = executor.execute(artifact, kernel, sized(case, 1000), 20)
    assert not any("arrival" in note for note in few.notes)


# --- Kernels that are replayed -----------------------------------------------------------------

KERNELS = """
extern "C" __global__ void bins(const float* x, unsigned long long n, float* out)
{   // mixed addresses, lanes left out, the last warp of a block and the last block partly filled
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i % 3) atomicAdd(out + i % 7, x[i]);
}
extern "C" __global__ void phases(const float* x, unsigned long long n, float* out)
{   // two warps at a time between barriers, then one
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned k = 0; k < 3; k++) {
        if (threadIdx.x / 64 == k) atomicAdd(out, x[i % n] * (k + 1));
        __syncthreads();
    }
    if (threadIdx.x == 40) atomicAdd(out + 1, x[i % n]);
    if (__syncthreads_or(x[i % n] > 3.0f) && threadIdx.x == 1) atomicAdd(out + 2, x[blockIdx.x]);
}
extern "C" __global__ void tree(const float* x, unsigned long long n, float* out)
{   // what a block adds comes through shared memory, with a barrier before each use
    __shared__ float s[128];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    for (unsigned k = 64; k; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    }
    if (threadIdx.x == 0) { out[blockIdx.x + 1] = s[0]; atomicAdd(out, s[0]); }
}
extern "C" __global__ void last_store(const float* x, unsigned long long n, float* out)
{   // plain stores to one place, and an exchange: the last stays
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { out[i % 5] = x[i]; atomicExch(out + 5, x[i]); atomicAdd(out + 6, x[i]); }
}
extern "C" __global__ void doubles(const float* x, unsigned long long n, double* out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { atomicAdd(out, 0.1 * x[i]); atomicAdd(out + 1 + threadIdx.x % 2, (double)x[i]); }
}
extern "C" __global__ void whole(const int* x, unsigned long long n, int* out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(out, x[i]); atomicMin(out + 1, x[i]); atomicMax(out + 2, x[i]); atomicXor(out + 3, x[i]);
    atomicCAS(out + 4, x[i] & 3, x[i] >> 2);
}
extern "C" __global__ void walk(const float* x, unsigned long long n, float* out)
{   // many turns of a warp when turns are short
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned k = 0; k < 20 + threadIdx.x / 16; k++) atomicAdd(out + k % 2, x[(i + 31 * k) % n]);
}
extern "C" __global__ void loaded(const float* x, unsigned long long n, float* first, float* out)
{   // operands that come from an earlier stage's arrival order
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, x[i] * first[0]);
}
"""


def ints(n: int) -> NDArray[np.int32]:
    return np.random.default_rng(2).integers(-50, 50, n, np.int32)


@pytest.mark.parametrize(
    ("entry", "block", "dtype", "count", "least"),
    [
        ("bins", 70, "float32", 7, 200),
        ("phases", 192, "float32", 3, 200),
        ("tree", 128, "float32", 25, 10),
        ("last_store", 96, "float32", 7, 200),
        ("doubles", 100, "float64", 3, 50),
        ("whole", 70, "int32", 5, 5),
        ("walk", 96, "float32", 2, 200),
    ],
)
def test_replays_are_executions_in_full(
    executor: ModelExecutor, entry: str, block: int, dtype: str, count: int, least: int
) -> None:
    n = 24 * block - 17
    x = ints(n) if entry == "whole" else values(n)
    launch = [stage(entry, 24, block, "<x", "n", "out")]
    found, told = same(executor, compiled(KERNELS, entry), launch, {"out": (dtype, count)}, {"x": x}, n)
    assert told == f"{entry}: 2 of 3 arrival orders replayed from recorded operands"
    assert found >= least


@pytest.mark.parametrize(("entry", "block"), [("walk", 96), ("phases", 192), ("tree", 128)])
def test_turns_that_run_out_are_replayed_too(executor: ModelExecutor, entry: str, block: int) -> None:
    x = values(999)
    launch = [stage(entry, 24, block, "<x", "n", "out")]
    limits = replace(REPLAYED, quantum=3, stalls=1000)
    _, told = same(
        executor, compiled(KERNELS, entry), launch, {"out": ("float32", 25)}, {"x": x}, 999, limits=limits
    )
    assert "2 of 3 arrival orders replayed" in told


def test_subnormals_are_flushed_as_in_full(executor: ModelExecutor) -> None:
    """Sums that pass through subnormals, zeros, infinities and NaNs, at one address and at several."""
    x = values(24 * 70)
    x[::3] *= np.float32(1e-38)
    x[1::3] *= np.float32(1e-39)
    x[5::97] = 0.0
    x[7::311] = np.float32(3e38)
    x[8::401] = np.float32("-inf")
    buffers = {"out": ("float32", 7)}
    bins = compiled(KERNELS, "bins")
    finite = np.nan_to_num(x, posinf=0, neginf=0)
    for part in (x, x[:1500] * np.float32(1e-3), np.abs(finite) % np.float32(1e-37)):
        launch = [stage("bins", 24, 70, "<x", "n", "out")]
        _, told = same(executor, bins, launch, buffers, {"x": part}, len(part))
        assert "2 of 3" in told
    one = HEAD + (
        ".visible .entry one(.param .u64 x, .param .u64 o) {\n"
        ".reg .b64 %d<4>; .reg .b32 %r<4>; .reg .f32 %f<2>;\n"
        "ld.param.u64 %d0, [x]; ld.param.u64 %d1, [o]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;\n"
        "mad.lo.u32 %r2, %r0, 70, %r1; mad.wide.u32 %d2, %r2, 4, %d0; ld.global.f32 %f0, [%d2];\n"
        "red.global.add.f32 [%d1], %f0; mul.wide.u32 %d3, %r1, 0; add.u64 %d3, %d3, %d1;\n"
        "red.add.f32 [%d3+4], %f0; ret; }"
    )
    tiny = values(24 * 70) * np.float32(1e-37)
    tiny[::3] *= np.float32(1e-2)
    found, told = same(executor, one, [stage("one", 24, 70, "<x", "out")], buffers, {"x": tiny}, 0)
    assert found > 100
    assert "2 of 3" in told


def test_what_an_earlier_stage_left_is_compared(executor: ModelExecutor) -> None:
    """Operands that depend on an earlier order: replayed where it came out as recorded, else executed."""
    n = 24 * 70
    ptx = compiled(KERNELS, "bins")
    stages = [
        stage("bins", 24, 70, "<x", "n", "first"),
        stage("loaded", 24, 70, "<x", "n", "first", "out"),
    ]
    buffers = {"first": ("float32", 7), "out": ("float32", 1)}
    found, told = same(executor, ptx, stages, buffers, {"x": values(n)}, n)
    assert found > 200
    assert "bins: 2 of 3" in told
    assert "loaded: 0 of 3" in told
    ones = np.ones(n, np.float32)  # of which every order gives the same sums
    _, told = same(executor, ptx, stages, buffers, {"x": ones}, n, seeds=3)
    assert "loaded: 2 of 3" in told


# --- Kernels that are not ----------------------------------------------------------------------

REFUSED = """
extern "C" __global__ void ticket(const float* x, unsigned long long n, float* out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { float old = atomicAdd(out, x[i]); if (old > 3.0f) atomicAdd(out + 1, x[i]); }
}
extern "C" __global__ void shared_sum(const float* x, unsigned long long n, float* out)
{
    __shared__ float s;
    if (threadIdx.x == 0) s = 0.0f;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&s, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, s);
}
extern "C" __global__ void racy(const float* x, unsigned long long n, float* out)
{   // no barrier between the stores and the loads of other warps
    __shared__ float s[96];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    atomicAdd(out, s[(threadIdx.x + 32) % 96]);
}
extern "C" __global__ void overwritten(const float* x, unsigned long long n, float* out)
{   // the barrier is there, and which warp stored last is open
    __shared__ float s[32];
    s[threadIdx.x % 32] = x[(blockIdx.x * blockDim.x + threadIdx.x) % n];
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(out, s[threadIdx.x]);
}
extern "C" __global__ void fed_back(const float* x, unsigned long long n, float* out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, x[i] * (1.0f + *(volatile float*)(out + 1)));
    if (i < n && i % 64 == 0) out[1] = x[i];
}
extern "C" __global__ void indexed(const float* x, unsigned long long n, float* out)
{   // an array of a thread's own, reached by a number
    float own[8];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 8; k++) own[k] = x[(i + k) % n];
    atomicAdd(out, own[(int)(x[i % n] * 64.0f) & 7]);
}
"""


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("ticket", "uses the value that it finds"),
        ("shared_sum", "what a block adds depends on the order of its own warps"),
        ("racy", "warps of a block meet in shared memory without a barrier between them"),
        ("overwritten", "warps of a block meet in shared memory without a barrier between them"),
        ("fed_back", "it reads out, which it writes"),
        ("indexed", "threads keep local memory"),
    ],
)
def test_what_is_not_proven_is_executed_in_full(executor: ModelExecutor, entry: str, why: str) -> None:
    n = 24 * 96 - 5
    launch = [stage(entry, 24, 96, "<x", "n", "out")]
    found, told = same(
        executor, compiled(REFUSED, entry), launch, {"out": ("float32", 2)}, {"x": values(n)}, n, seeds=20
    )
    assert told.startswith(f"{entry}: each arrival order executed in full: ")
    assert why in told
    assert found > 5


def adding(body: str) -> str:
    """A kernel with its x in %f0, its thread in %r0, and `out` in %d1."""
    return HEAD + (
        ".visible .entry add(.param .u64 x, .param .u64 o) {\n"
        ".reg .b64 %d<4>; .reg .b32 %r<6>; .reg .f32 %f<4>;\n"
        ".reg .pred %p<4>; .shared .align 4 .b8 s[512];\n"
        "ld.param.u64 %d0, [x]; ld.param.u64 %d1, [o]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;\n"
        "mad.lo.u32 %r2, %r1, 128, %r0; mad.wide.u32 %d2, %r2, 4, %d0; ld.global.f32 %f0, [%d2];\n"
        f"{body}\nred.global.add.f32 [%d1], %f0; ret; }}"
    )


@pytest.mark.parametrize(
    ("body", "told"),
    [
        # Two halves of a block meet at barriers of their own: no order between them is claimed.
        ("setp.lt.u32 %p0, %r0, 64; @%p0 bar.sync 1, 64; @!%p0 bar.sync 2, 64;", "2 of 3"),
        ("bar.sync 0, 128;", "2 of 3"),
        ("bar.red.popc.u32 %r3, 0, %p1; cvt.rn.f32.u32 %f1, %r3; add.f32 %f0, %f0, %f1;", "register %p1"),
        ("setp.gt.f32 %p1, %f0, 0f00000000; bar.red.popc.u32 %r3, 0, %p1; cvt.rn.f32.u32 %f1, %r3;\n"
         "add.f32 %f0, %f0, %f1;", "2 of 3"),
        ("setp.gt.f32 %p1, %f0, 0f00000000; setp.lt.u32 %p0, %r0, 64; mov.u32 %r3, 0; @!%p0 bra OVER;\n"
         "bar.red.popc.u32 %r3, 1, 64, %p1; OVER: cvt.rn.f32.u32 %f1, %r3; add.f32 %f0, %f0, %f1;",
         "a barrier of some warps reduces what they bring"),
        ("add.f32 %f0, %f0, %f2;", "register %f2 may be read before it is set"),
        # A barrier that some warps pass does not order shared memory for all.
        ("shl.b32 %r3, %r0, 2; mov.u32 %r4, s; add.u32 %r3, %r3, %r4; st.shared.f32 [%r3], %f0;\n"
         "bar.sync 0, 128; xor.b32 %r5, %r3, 128; ld.shared.f32 %f0, [%r5];",
         "warps of a block meet in shared memory without a barrier between them"),
        ("shl.b32 %r3, %r0, 2; mov.u32 %r4, s; add.u32 %r3, %r3, %r4; st.shared.f32 [%r3], %f0;\n"
         "bar.sync 0; xor.b32 %r5, %r3, 128; ld.shared.f32 %f0, [%r5];", "2 of 3"),
        # A read before another warp's store, in the order that was recorded or not.
        ("shl.b32 %r3, %r0, 2; mov.u32 %r4, s; add.u32 %r3, %r3, %r4; xor.b32 %r5, %r3, 128;\n"
         "ld.shared.f32 %f1, [%r5]; st.shared.f32 [%r3], %f0; add.f32 %f0, %f0, %f1;",
         "warps of a block meet in shared memory without a barrier between them"),
    ],
)  # fmt: skip
def test_barriers_and_registers(executor: ModelExecutor, body: str, told: str) -> None:
    launch = [stage("add", 12, 128, "<x", "out")]
    _, noted = same(
        executor, adding(body), launch, {"out": ("float32", 1)}, {"x": values(12 * 128)}, 0, seeds=30
    )
    assert told in noted


def test_blocks_that_wait_for_each_other_are_not_replayed(executor: ModelExecutor) -> None:
    launch = [stage("walk", 24, 96, "<x", "n", "out")]
    limits = replace(REPLAYED, quantum=2, stalls=1)
    _, told = same(
        executor, compiled(KERNELS, "walk"), launch, {"out": ("float32", 2)}, {"x": values(99)}, 99,
        seeds=20, limits=limits,
    )  # fmt: skip
    assert "its blocks wait for each other" in told


def test_what_is_kept_is_bounded(executor: ModelExecutor) -> None:
    launch = [stage("bins", 24, 70, "<x", "n", "out")]
    limits = replace(REPLAYED, log=8192)
    n = 24 * 70
    _, told = same(
        executor, compiled(KERNELS, "bins"), launch, {"out": ("float32", 7)}, {"x": values(n)}, n,
        seeds=5, limits=limits,
    )  # fmt: skip
    assert "its writes are too many to be kept" in told


def test_very_large_grids_are_executed_in_full(
    executor: ModelExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of each warp would be too much."""
    monkeypatch.setattr(arrivals, "WARPS", 71)
    launch = [stage("bins", 24, 70, "<x", "n", "out")]  # of three warps each
    n = 24 * 70
    _, told = same(
        executor, compiled(KERNELS, "bins"), launch, {"out": ("float32", 7)}, {"x": values(n)}, n, seeds=2
    )
    assert "its grid has more than 71 warps" in told


def test_an_error_while_a_stage_is_recorded_is_the_same_error(executor: ModelExecutor) -> None:
    """Bounds, thread and line are named as in an execution in full."""
    ptx = compiled(KERNELS, "bins")
    launch = [stage("bins", 24, 70, "<x", "n", "out")]
    program = executor.program("test", ptx, launch)
    out = [Buffer("out", "float32", (6,), Role.RESULT, "zero")]
    told = []
    for limits in (REPLAYED, IN_FULL):
        with pytest.raises(Exception, match="24 bytes into out, which has 24 bytes") as caught:
            run(program, out, {"x": values(900)}, 900, 3, 5, limits)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_recorded_stages_are_kept_on_disk(tmp_path: Path) -> None:
    ptx = compiled(KERNELS, "bins")
    launch = [stage("bins", 24, 70, "<x", "n", "out")]
    found = []
    for _ in range(2):
        _, told = same(
            ModelExecutor(tmp_path), ptx, launch, {"out": ("float32", 7)}, {"x": values(900)}, 900, seeds=2
        )
        assert "2 of 3" in told
        found.append(sorted(tmp_path.rglob("*.stage")))
    assert found[0] == found[1]
    assert len(found[0]) == 3  # the stage, the stage as it is recorded, and what all stages share
