"""The model on one core: against NumPy doing the same sum in its own order, against itself; its memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Spread, pair, seconds
from benchmarks.peak import peak_of
from reprodb.artifacts import ArtifactStore
from reprodb.build import build_all, request
from reprodb.domain import Artifact, Case, Kernel
from reprodb.executors.model.engine import Limits, ModelExecutor, run
from reprodb.executors.model.machine import Host
from reprodb.executors.task import Task
from reprodb.inputs import generate
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.suite import bundled_suite, load_suite, select_kernels
from reprodb.toolchains import catalog

REPETITIONS = 10
ORDERS = 100
LARGE = 1 << 26
ALLOWED = 200_000_000  # bytes beside the inputs


def tree(arch: str = "sm_90") -> tuple[Artifact, Kernel]:
    """The two-pass tree of the bundled suite."""
    return built("sum_squares_tree", arch)


def built(name: str, arch: str = "sm_90") -> tuple[Artifact, Kernel]:
    """A kernel of the bundled suite, compiled by the default profile or any other CUDA 13."""
    suite = load_suite(bundled_suite())
    (kernel,) = select_kernels(suite, [name])
    profiles = load_profiles(bundled_profiles())
    found = catalog.find()
    usable = [(p, t) for p in (profiles["default"], profiles["nvcc13"]) if (t := catalog.match(p, found))]
    if not usable:
        raise SystemExit("the benchmark needs a CUDA 13 compiler: pip install 'reprodb[nvrtc13]'")
    wanted = request(suite, kernel, *usable[0], arch)
    with tempfile.TemporaryDirectory() as folder:
        (artifact,) = build_all([wanted], ArtifactStore(Path(folder)))
    return artifact, kernel


def sized(case: Case, n: int) -> Case:
    """The case with its first `n` elements."""
    return replace(case, n=n, inputs=tuple(replace(each, n=n) for each in case.inputs))


def _one_size(artifact: Artifact, kernel: Kernel, case: Case, goal: float) -> Row:
    import numpy as np

    array = generate(case.inputs[0])
    executor = ModelExecutor()
    program = executor.program(kernel.name, artifact.ptx or "", kernel.stages, artifact)

    def ours() -> object:
        return run(program, case.buffers, {"x": array}, case.n, REPETITIONS, 0)

    def numpy_sum() -> object:
        for _ in range(REPETITIONS):
            np.sum(array * array + np.float32(0.25))
        return None

    row = pair(f"tree, n = {case.n:,}", ours, "numpy x*x+0.25, sum", numpy_sum, lane="modelled")
    return replace(row, ours=_each(row.ours), peer=_each(row.peer), goal=goal)


def _each(spread: Spread) -> Spread:
    return Spread(*(figure / REPETITIONS for figure in (spread.low, spread.median, spread.high)))


def _hundred(artifact: Artifact, kernel: Kernel, host: Host, words: str) -> Row:
    """All repetitions of the tree as published, each of them executed, by code for that CPU."""
    import numpy as np

    case = kernel.cases[0]
    array = generate(case.inputs[0])
    program = ModelExecutor(host=host).program(kernel.name, artifact.ptx or "", kernel.stages, artifact)

    def ours() -> object:
        return run(program, case.buffers, {"x": array}, case.n, ORDERS, 0)

    def numpy_sum() -> object:
        for _ in range(ORDERS):
            np.sum(array * array + np.float32(0.25))
        return None

    return pair(
        f"{ORDERS} repetitions of the tree, n = {case.n:,}{words}", ours,
        f"numpy x*x+0.25, sum, {ORDERS} times", numpy_sum, lane="modelled", goal=0.35,
    )  # fmt: skip


def _orders(name: str) -> Row:
    """A hundred arrival orders, one of them recorded, against a hundred executed in full."""
    artifact, kernel = built(name)
    case = kernel.cases[0]
    arrays = {each.name: generate(each) for each in case.inputs}
    program = ModelExecutor().program(kernel.name, artifact.ptx or "", kernel.stages, artifact)

    def orders(limits: Limits) -> Callable[[], object]:
        return lambda: run(program, case.buffers, arrays, case.n, ORDERS, 0, limits)

    return pair(
        f"{ORDERS} arrival orders of {name}", orders(Limits()), "the same executed in full",
        orders(Limits(log=0)), lane="modelled", rounds=5,
    )  # fmt: skip


def _peak(name: str) -> Row:
    """Resident memory of a fresh process beyond the inputs of a case of 2^26 elements, all steps included."""
    artifact, kernel = built(name)
    case = sized(kernel.cases[0], LARGE)
    inputs = sum(generate(each).nbytes for each in case.inputs)
    task = Task(artifact, replace(kernel, cases=(case,)), 3)
    found = [float(peak_of(task) - inputs) for _ in range(3)]
    allowed, mine = Spread.of([float(ALLOWED)]), Spread.of(found)
    ratio = Spread.of([figure / ALLOWED for figure in found])
    return Row(
        f"memory beside the inputs, {name}, n = {LARGE:,}", "modelled", mine, "allowed", allowed, ratio,
        goal=ALLOWED, unit="bytes",
    )  # fmt: skip


def _lowering(artifact: Artifact, kernel: Kernel) -> Row:
    """PTX to machine code of both stages, against NVRTC compiling the source of the same kernel."""

    def lower() -> object:
        return ModelExecutor().program(kernel.name, artifact.ptx or "", kernel.stages, artifact)

    row = pair(
        "lowering, a stage", lower, "the whole build of the kernel", _timed(tree), lane="modelled", rounds=5
    )
    stages = len(kernel.stages)

    def each(spread: Spread) -> Spread:
        return Spread(*(figure / stages for figure in (spread.low, spread.median, spread.high)))

    return replace(row, ours=each(row.ours), ratio=each(row.ratio), goal=0.2)


def _timed(call: Callable[[], Any]) -> Callable[[], float]:
    return lambda: seconds(call)


def rows() -> list[Row]:
    artifact, kernel = tree()
    case = kernel.cases[0]
    here = Host.this()
    avx2 = [Host("x86-64-v3", "", fma=True)] if "+avx2" in here.features else []
    return [
        _one_size(artifact, kernel, case, goal=0.005),
        _one_size(artifact, kernel, sized(case, LARGE), goal=0.06),
        _hundred(artifact, kernel, here, ""),
        *(_hundred(artifact, kernel, host, ", code for AVX2 alone") for host in avx2),
        _orders("sum_squares_atomic"),
        _peak("sum_squares_tree"),
        _peak("sum_global_atomic"),
        _lowering(artifact, kernel),
    ]
