"""Sums on a GPU: the suite's trees against CUB's three determinism modes, CuPy's sum and a copy."""

from __future__ import annotations

import ctypes
import importlib.util
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Spread
from reprodb.artifacts import ArtifactStore
from reprodb.build import build_all, request
from reprodb.domain import Kernel
from reprodb.environment import find_gpus
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.suite import bundled_suite, load_suite, select_kernels
from reprodb.toolchains import catalog

SIZES = (1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30, 1 << 31)
GOALS_FROM = 1 << 26
ROUNDS = 30
MODES = ("not_guaranteed", "run_to_run", "gpu_to_gpu")
SOURCE = Path(__file__).with_name("cub_reduce.cu")
STORAGE = 64 << 20  # bytes lent to CUB
RINSED = 1 << 26  # elements read between two measurements: five times an H200's cache
RINSE = """{
    float sum = 0.0f;
    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < n; i += 262144)
        sum += x[i];
    if (sum == 0.123f)
        y[0] = sum;
}"""

Launch = Callable[[int], None]  # queues one sum of the first n elements


def _cccl() -> list[str]:
    """Include flags for a CUB with determinism modes: the nvidia-cuda-cccl wheel; CUDA 13.0 has none."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        headers = Path(place) / "cu13" / "include" / "cccl"
        if (headers / "cub" / "version.cuh").exists():
            return [f"-I{headers}"]
    raise SystemExit("the benchmark needs CUB's determinism modes: pip install nvidia-cuda-cccl")


def cub_library(arch: str, folder: Path) -> ctypes.CDLL:
    """`cub_reduce.cu` as a library."""
    nvcc = next((t for t in catalog.find() if t.compiler == "nvcc" and t.version.startswith("13.")), None)
    if nvcc is None:
        raise SystemExit("the benchmark needs nvcc 13: reprodb toolchains install nvcc 13.0")
    library = folder / "cub_reduce.so"
    command = [nvcc.path, "-std=c++17", "-O3", f"-arch={arch}", "-shared", "-Xcompiler", "-fPIC", *_cccl()]
    subprocess.run([*command, str(SOURCE), "-o", str(library)], check=True, capture_output=True)
    return ctypes.CDLL(str(library))


class Bench:
    """The arrays of the benchmark, and every way to sum them on one stream."""

    def __init__(self, folder: Path) -> None:
        import cupy

        self.cupy = cupy
        self.arch = find_gpus().devices[0].arch
        self.stream = cupy.cuda.Stream(non_blocking=True)
        generator = cupy.random.default_rng(68)
        self.x = generator.standard_normal(SIZES[-1], dtype=cupy.float32)
        self.copied = cupy.zeros_like(self.x)
        self.partials = cupy.empty(1 << 16, dtype=cupy.float32)
        self.totals = cupy.zeros(16, dtype=cupy.float32)
        self.storage = cupy.empty(STORAGE, dtype=cupy.uint8)
        self.cub = cub_library(self.arch, folder)
        self._folder = folder
        rinse = 'extern "C" __global__ void rinse(const float* x, unsigned long long n, float* y)' + RINSE
        self._rinsing = partial(cupy.RawKernel(rinse, "rinse"), (1024,), (256,))
        cupy.cuda.Device().synchronize()

    def tree(self, name: str, place: int, profile: str = "default") -> Launch:
        """A kernel of the suite: stages in order, with its own constant shape, on any n."""
        suite = load_suite(bundled_suite())
        (kernel,) = select_kernels(suite, [name])
        profiles = load_profiles(bundled_profiles())
        toolchains = catalog.find()
        chosen = [
            (p, t) for p in (profiles[profile], profiles["nvcc13"]) if (t := catalog.match(p, toolchains))
        ]
        wanted = request(suite, kernel, *chosen[0], self.arch)
        (artifact,) = build_all([wanted], ArtifactStore(self._folder / "store"))
        module = self.cupy.cuda.function.Module()
        module.load(artifact.cubin)
        stages = [(stage, module.get_function(stage.entry)) for stage in kernel.stages]

        def launch(n: int) -> None:
            for stage, function in stages:
                arguments = tuple(self._argument(kernel, arg.name, n, place) for arg in stage.args)
                function(stage.grid, stage.block, arguments, stream=self.stream)

        return launch

    def _argument(self, kernel: Kernel, name: str, n: int, place: int) -> Any:
        import numpy as np

        if name == "n":
            return np.uint64(n)
        if name == "x":
            return self.x
        return self.totals[place:] if name == "total" else self.partials

    def cub_sum(self, mode: int, *, lent: bool = True) -> Launch:
        wanted = ctypes.c_size_t()

        def launch(n: int) -> None:
            storage_at = self.storage.data.ptr if lent else None
            pointers = (self.x.data.ptr, self.totals.data.ptr + 4 * mode, storage_at)
            x, total, storage = (ctypes.c_void_p(p) for p in pointers)
            error = self.cub.cub_sum(
                mode, x, ctypes.c_ulonglong(n), total, storage, ctypes.c_size_t(STORAGE),
                ctypes.byref(wanted), ctypes.c_void_p(self.stream.ptr),
            )  # fmt: skip
            if error:
                raise SystemExit(f"CUB's {MODES[mode]} sum failed with CUDA error {error}")

        return launch

    def cupy_sum(self, n: int) -> None:
        with self.stream:
            self.x[:n].sum(out=self.totals[9])

    def copy(self, n: int) -> None:
        self.cupy.cuda.runtime.memcpyAsync(self.copied.data.ptr, self.x.data.ptr, 4 * n, 3, self.stream.ptr)

    def graph(self, launch: Launch, n: int) -> Any:
        """One call as a CUDA graph, so that what is timed is the device's work alone."""
        launch(n)  # whatever is loaded or allocated at first
        self.stream.synchronize()
        self.stream.begin_capture()
        launch(n)
        return self.stream.end_capture()

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds between two events around what `work` queues, its input not in the GPU's cache."""
        self._rinse()
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        begin.record(self.stream)
        work()
        end.record(self.stream)
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(begin, end)) * 1e-3

    def _rinse(self) -> None:
        """Reads other memory: nobody finds, or has to write, what the one before left in the cache."""
        self._rinsing((self.copied, self.cupy.uint64(RINSED), self.partials), stream=self.stream)

    def bits(self, place: int) -> int:
        return int(self.totals[place : place + 1].view("uint32").get()[0])


def _times(
    bench: Bench, captured: dict[str, Launch], called: dict[str, Launch], n: int
) -> dict[str, list[float]]:
    """Seconds of every way, in turn, after one round that is not counted.

    `captured` ways are replayed as graphs: the device's work alone. `called` ones are called as they are.
    """
    graphs = {name: bench.graph(launch, n) for name, launch in captured.items()}
    ways: dict[str, Callable[[], object]] = {
        **{name: partial(graph.launch, bench.stream) for name, graph in graphs.items()},
        **{name: partial(launch, n) for name, launch in called.items()},
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, work in ways.items():
            took = bench.seconds(work)
            if turn:
                times[name].append(took)
    return times


FAST, PUBLISHED, COPY = "sum_tree_fast", "sum_squares_tree", "copy, read and written"
CALLED = " as called"  # not replayed from a graph: the launch, and for CUB its allocation, are in the time
# Which pair has which goal from 2^26 up, as the highest ratio of times.
GOALS = {
    (FAST, COPY): 1.0,
    (FAST + CALLED, "CUB run_to_run" + CALLED): round(1 / 1.05, 4),
    (FAST, "CUB run_to_run"): round(1 / 1.05, 4),
    (PUBLISHED, "CUB run_to_run"): 1.0,
    (PUBLISHED + CALLED, "CUB run_to_run" + CALLED): 1.0,
}


def rows() -> list[Row]:
    """For every size: the fast tree against each peer, the published shape against CUB's run_to_run."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        fast, published = bench.tree(FAST, 4), bench.tree(PUBLISHED, 5)
        captured = {
            FAST: fast,
            PUBLISHED: published,
            **{f"CUB {mode}": bench.cub_sum(i) for i, mode in enumerate(MODES)},
        }
        called = {
            FAST + CALLED: fast,
            PUBLISHED + CALLED: published,
            **{f"CUB {mode}{CALLED}": bench.cub_sum(i, lent=False) for i, mode in enumerate(MODES)},
            "CuPy sum" + CALLED: bench.cupy_sum,
            COPY: bench.copy,
        }
        found: list[Row] = []
        for n in SIZES:
            times = _times(bench, captured, called, n)
            _check_bits(bench, fast, n)
            found += _rows(n, times)
        return found


def _check_bits(bench: Bench, launch: Launch, n: int) -> None:
    """Every launch gives the same bits."""
    seen = set()
    for _ in range(20):
        launch(n)
        bench.stream.synchronize()
        seen.add(bench.bits(4))
    if len(seen) != 1:
        raise SystemExit(f"{FAST} gave {len(seen)} patterns at n = {n}")


def _rows(n: int, times: dict[str, list[float]]) -> list[Row]:
    # A copy moves every byte twice: half its time is what one pass over the input takes.
    times = {**times, COPY: [t / 2 for t in times[COPY]]}
    own = (FAST, PUBLISHED)
    peers = [name for name in times if not name.startswith(own)]
    published = [pair for pair in GOALS if pair[0].startswith(PUBLISHED)]
    pairs = [(FAST + CALLED if peer.endswith(CALLED) else FAST, peer) for peer in peers] + published
    return [
        Row(
            f"{ours}, n = 2^{n.bit_length() - 1}: {4 * n / statistics.median(times[ours]) / 1e9:.0f} GB/s",
            "measured",
            Spread.of(times[ours]),
            f"{peer}: {4 * n / statistics.median(times[peer]) / 1e9:.0f} GB/s",
            Spread.of(times[peer]),
            Spread.of([a / b for a, b in zip(times[ours], times[peer], strict=True)]),
            goal_ratio=GOALS.get((ours, peer)) if n >= GOALS_FROM else None,
        )
        for ours, peer in pairs
    ]
