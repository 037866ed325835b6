"""On a GPU: repetitions of a large output are compared where they lie, and one of them is brought back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import Row, Spread
from reprodb.artifacts import ArtifactStore
from reprodb.build import build_all
from reprodb.domain import (
    Arg,
    ArgKind,
    Artifact,
    Buffer,
    BuildRequest,
    Case,
    Determinism,
    Kernel,
    Role,
    SourceFile,
    Stage,
)
from reprodb.executors import cuda
from reprodb.executors.cuda import CudaExecutor
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.toolchains import catalog

REPETITIONS = 100
BYTES = 64 << 20
ROUNDS = 5
SOURCE = """
extern "C" __global__ void fill(unsigned long long n, float* out) {
    unsigned long long i = blockIdx.x * 256ull + threadIdx.x;
    if (i < n) out[i] = 3.0f * i;
}
"""
ON_DEVICE = 3


def fill(size: int = BYTES) -> Kernel:
    """A kernel that writes so many bytes, and reads nothing."""
    n = size // 4
    stage = Stage("fill", (n // 256, 1, 1), (256, 1, 1), (Arg(ArgKind.SIZE, "n"), Arg(ArgKind.BUFFER, "out")))
    return Kernel(
        name="fill",
        source="fill.cu",
        operation="3 i",
        determinism=Determinism.RUN_TO_RUN,
        accumulator="float32",
        defines=(),
        shape_defines=(),
        stages=(stage,),
        cases=(Case("large", n, (), (Buffer("out", "float32", (n,), Role.RESULT),)),),
    )


def compiled(arch: str) -> Artifact:
    profiles, found = load_profiles(bundled_profiles()), catalog.find()
    usable = [(p, t) for p in (profiles["default"], profiles["nvcc13"]) if (t := catalog.match(p, found))]
    if not usable:
        raise SystemExit("the benchmark needs a CUDA 13 compiler: pip install 'reprodb[nvrtc13]'")
    files = (SourceFile("fill.cu", SOURCE),)
    with tempfile.TemporaryDirectory() as folder:
        wanted = BuildRequest("fill", ("fill",), "fill.cu", files, (), *usable[0], arch)
        (artifact,) = build_all([wanted], ArtifactStore(Path(folder)))
    return artifact


@contextmanager
def copies(executor: CudaExecutor, size: int) -> Iterator[Callable[[], float]]:
    """Seconds of copies on the device that read and write what the repetitions do.

    A repetition's slot is filled with poison, written by the kernel, and read beside the first one's: four
    times its size, a copy of twice the size.
    """
    runtime, stream = executor._runtime, executor._stream
    source, target = runtime.malloc(2 * size), runtime.malloc(2 * size)

    def copied() -> float:
        runtime.streamSynchronize(stream)
        began = time.perf_counter()
        for _ in range(REPETITIONS):
            runtime.memcpyAsync(target, source, 2 * size, ON_DEVICE, stream)
        runtime.streamSynchronize(stream)
        return time.perf_counter() - began

    yield copied
    runtime.free(source)
    runtime.free(target)


def rows(executor: CudaExecutor, artifact: Artifact, kernel: Kernel) -> list[Row]:
    """What the comparison costs, and what it spares."""
    case = kernel.cases[0]
    size = case.buffers[0].nbytes
    queued: list[float] = []
    whole: list[float] = []
    peer: list[float] = []
    apart: list[float] = []

    def executed() -> tuple[float, float]:
        began = time.perf_counter()
        samples = executor.execute(artifact, kernel, case, REPETITIONS)
        took = time.perf_counter() - began
        if samples.outputs[0].sequence != (0,) * REPETITIONS:
            raise SystemExit("repetitions of a kernel that only writes are not one pattern")
        return samples.seconds, took

    least = cuda.LARGE_BYTES
    with copies(executor, size) as copied:
        for counted in range(ROUNDS + 1):
            seconds, took = executed()
            moved = copied()
            cuda.LARGE_BYTES = 1 << 60  # every repetition is brought back
            try:
                _, back = executed()
            finally:
                cuda.LARGE_BYTES = least
            if counted:  # the first round warms up
                for figures, figure in ((queued, seconds), (whole, took), (peer, moved), (apart, back)):
                    figures.append(figure)

    def row(name: str, mine: list[float], peer_name: str, theirs: list[float], goal: float | None) -> Row:
        ratio = Spread.of([a / b for a, b in zip(mine, theirs, strict=True)])
        return Row(name, "measured", Spread.of(mine), peer_name, Spread.of(theirs), ratio, goal_ratio=goal)

    what = f"{REPETITIONS} repetitions of {size >> 20} MiB"
    return [
        row(f"{what}, executed and compared", queued, "copies on the device of as many bytes", peer, 1.5),
        row(f"{what}, with loading and one brought back", whole, "every one brought back", apart, None),
    ]
