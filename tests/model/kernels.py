"""Small CUDA kernels for the engine's tests, compiled by the real NVRTC, and short ways to run PTX."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import Arg, ArgKind, Buffer, BuildRequest, Profile, Role, SourceFile, Stage
from reprodb.executors.model.engine import Limits, ModelExecutor, run_stages
from reprodb.toolchains.pool import compile_all
from tests.toolchains_here import nvrtc12, nvrtc13

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"


@cache
def compiled(source: str, entry: str, *, major: int = 13, fmad: bool = True) -> str:
    """The PTX that NVRTC makes of a source for sm_90."""
    toolchain = nvrtc13() if major == 13 else nvrtc12()
    profile = Profile("test", "nvrtc", "any", fmad=fmad, arch="sm_90")
    request = BuildRequest(
        "test", (entry,), "k.cu", (SourceFile("k.cu", source),), (), profile, toolchain, "sm_90"
    )
    done = next(iter(compile_all([request], 1)))
    assert done.output.ptx is not None, done.output.log
    return done.output.ptx


def stage(
    entry: str,
    grid: int | tuple[int, int, int],
    block: int | tuple[int, int, int],
    *args: str | Arg,
    shared: int = 0,
) -> Stage:
    """A launch. Arguments by name: `<x` an input, `n` the size, all others buffers."""
    found = []
    for arg in args:
        if isinstance(arg, Arg):
            found.append(arg)
        elif arg == "n":
            found.append(Arg(ArgKind.SIZE, "n"))
        elif arg.startswith("<"):
            found.append(Arg(ArgKind.INPUT, arg[1:]))
        else:
            found.append(Arg(ArgKind.BUFFER, arg))
    return Stage(entry, _three(grid), _three(block), tuple(found), shared)


def _three(size: int | tuple[int, int, int]) -> tuple[int, int, int]:
    return (size, 1, 1) if isinstance(size, int) else size


def outputs(
    executor: ModelExecutor,
    ptx: str,
    stages: list[Stage],
    buffers: Mapping[str, tuple[str, int]],
    arrays: Mapping[str, NDArray[Any]] | None = None,
    n: int = 0,
    repetitions: int = 1,
    seed: int = 0,
    *,
    init: str = "poison",
    limits: Limits | None = None,
) -> dict[str, list[NDArray[Any]]]:
    """Every buffer after each repetition; `buffers` are name → (dtype, elements)."""
    made = [Buffer(name, dtype, (count,), Role.RESULT, init) for name, (dtype, count) in buffers.items()]
    raws = run_stages(
        ptx, stages, made, arrays or {}, n, repetitions, seed, executor=executor, limits=limits, name="test"
    )
    return {
        name: [np.frombuffer(raw, buffers[name][0]) for raw in raw_list] for name, raw_list in raws.items()
    }


TREE = """
typedef unsigned long long u64;
extern "C" __global__ void partialSums(const float* x, u64 n, float* partials)
{
    __shared__ float s[256];
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        const float v = x[i];
        sum += v * v + 0.25f;
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = s[0];
}
extern "C" __global__ void fold(const float* partials, float* total)
{
    __shared__ float s[256];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < 1024; i += 256) sum += partials[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) total[0] = s[0];
}
"""


def ramp(n: int) -> NDArray[np.float32]:
    """1 + (i % 1000) · 0.001 in float32, product and sum rounded each."""
    steps = np.arange(1000).astype(np.float32) * np.float32(0.001)
    period: NDArray[np.float32] = np.float32(1.0) + steps.astype(np.float32)
    return np.resize(period, n)
