"""On a GPU: 100 repetitions of the tree by reprodb, against a bare CUDA graph of the same launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks import large
from benchmarks.harness import Row, Spread
from benchmarks.model import tree
from reprodb.domain import Artifact, Kernel
from reprodb.environment import find_gpus
from reprodb.executors.arrays import Arrays
from reprodb.executors.cuda import CudaExecutor
from reprodb.executors.slots import Batch

REPETITIONS = 100
ROUNDS = 30


@contextmanager
def bare_graph(executor: CudaExecutor, artifact: Artifact, kernel: Kernel) -> Iterator[Callable[[], float]]:
    """One CUDA graph of the repetitions' launches and nothing else; each call replays it, in seconds."""
    runtime, driver, stream = executor._runtime, executor._driver, executor._stream
    case = kernel.cases[0]
    module = driver.moduleLoadData(artifact.cubin)
    inputs = {wanted.name: executor._resident(wanted, case) for wanted in case.inputs}
    batch = Batch.of(case, REPETITIONS, inputs)
    batch = replace(batch, base=runtime.malloc(batch.nbytes))
    stages = [(s, driver.moduleGetFunction(module, s.entry), batch.arguments(s)) for s in kernel.stages]
    runtime.streamBeginCapture(stream, 1)
    for slot in range(REPETITIONS):
        for stage, function, arguments in stages:
            shape = (*stage.grid, *stage.block, stage.shared, stream)
            driver.launchKernel(function, *shape, arguments.address + slot * arguments.step, 0)
    graph = runtime.graphInstantiate(runtime.streamEndCapture(stream))

    def launch() -> float:
        runtime.streamSynchronize(stream)
        began = time.perf_counter()
        runtime.graphLaunch(graph, stream)
        runtime.streamSynchronize(stream)
        return time.perf_counter() - began

    yield launch
    runtime.free(batch.base)


def rows() -> list[Row]:
    """Ours fills, launches, copies back once and checks every buffer; the peer only launches."""
    devices = find_gpus().devices
    if not devices:
        raise SystemExit("the GPU benchmarks need a GPU: run them where `reprodb doctor` shows one")
    artifact, kernel = tree(devices[0].arch)
    executor = CudaExecutor.open(0, Arrays())
    ours: list[float] = []
    bare: list[float] = []
    whole: list[float] = []
    with bare_graph(executor, artifact, kernel) as launch:
        for counted in range(ROUNDS + 3):
            began = time.perf_counter()
            samples = executor.execute(artifact, kernel, kernel.cases[0], REPETITIONS)
            took = time.perf_counter() - began
            replay = launch()
            if counted >= 3:  # the first ones warm up
                ours.append(samples.seconds)
                whole.append(took)
                bare.append(replay)
    peer = "a bare CUDA graph of the launches"

    def row(name: str, mine: list[float], goal: float | None) -> Row:
        ratio = Spread.of([a / b for a, b in zip(mine, bare, strict=True)])
        return Row(name, "measured", Spread.of(mine), peer, Spread.of(bare), ratio, goal_ratio=goal)

    return [
        row("100 repetitions of the tree, first launch to last byte", ours, 1.1),
        row("the same with loading and capture", whole, None),
        *large.rows(executor, large.compiled(devices[0].arch), large.fill()),
    ]
