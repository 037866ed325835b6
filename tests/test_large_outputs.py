"""Large outputs are compared on the device and brought back only where they are another."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from reprodb.domain import (
    Arg,
    ArgKind,
    Artifact,
    Buffer,
    BuildRequest,
    Case,
    Kernel,
    Profile,
    Role,
    Samples,
    SourceFile,
    Stage,
)
from reprodb.environment import find_gpus
from reprodb.errors import ExecutionError
from reprodb.executors import cuda
from reprodb.executors.arrays import Arrays
from reprodb.executors.cuda import CudaExecutor
from reprodb.executors.model.engine import run_stages
from reprodb.toolchains import catalog
from reprodb.toolchains.pool import compile_all
from tests.executors.fake_cupy import FakeCupy, FakeKernel
from tests.executors.things import a_case, a_kernel, an_artifact

PTX = ".visible .entry sum(\n\t.param .u64 sum_param_0,\n\t.param .u64 sum_param_1,\n\t.param .u64 s_2\n)"
ELEMENTS = 1 << 18  # 1 MiB of floats: the least that counts as large
WIDE = Buffer("total", "float32", (ELEMENTS,), Role.RESULT)
SMALL = Buffer("scratch", "float32", (4,), Role.SCRATCH)


def differs(a: int, b: int, words: int, flag: int) -> None:
    """What the device's comparison does, on this process's own memory."""
    if ctypes.string_at(a, 16 * words) != ctypes.string_at(b, 16 * words):
        ctypes.c_uint32.from_address(flag).value = 1


def executed(kernel: FakeKernel, repetitions: int, *buffers: Buffer) -> tuple[Samples, FakeCupy]:
    fake = FakeCupy({"sum": (3, kernel), "differs": (4, differs)})
    wanted = a_kernel(case=a_case((WIDE, *buffers)))
    executor = CudaExecutor(fake, 0, Arrays())
    artifact = an_artifact(ptx=PTX)
    return executor.execute(artifact, wanted, wanted.cases[0], repetitions), fake


def writing(*values: float) -> FakeKernel:
    """Fills the output with one of the values, the next at every call."""
    calls = iter(range(1 << 20))

    def kernel(x: int, n: int, total: int) -> None:
        data = np.full(ELEMENTS, values[next(calls) % len(values)], np.float32).tobytes()
        ctypes.memmove(total, data, len(data))

    return kernel


@pytest.mark.parametrize("repetitions", [2, 7, 30])
def test_equal_repetitions_are_one_pattern(repetitions: int) -> None:
    samples, fake = executed(writing(2.5), repetitions)
    (output,) = samples.outputs
    assert output.patterns == (np.full(ELEMENTS, 2.5, np.float32).tobytes(),)
    assert output.sequence == (0,) * repetitions
    assert fake.calls.count("launchKernel") == 2 * repetitions


def test_the_comparison_is_loaded_once_a_process() -> None:
    fake = FakeCupy({"sum": (3, writing(1.0)), "differs": (4, differs)})
    executor, wanted = CudaExecutor(fake, 0, Arrays()), a_kernel(case=a_case((WIDE,)))
    for _ in range(3):
        executor.execute(an_artifact(ptx=PTX), wanted, wanted.cases[0], 2)
    assert fake.calls.count("moduleLoadData") == 3 + 1


def test_those_that_differ_are_brought_back_in_order() -> None:
    samples, _ = executed(writing(1.0, 1.0, 7.0), 8)
    (output,) = samples.outputs
    assert [np.frombuffer(p, np.float32)[-1] for p in output.patterns] == [1.0, 7.0]
    assert output.sequence == (0, 0, 1, 0, 0, 1, 0, 0)


def test_small_and_large_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    large, _ = executed(writing(1.0, 2.0, 1.0, 3.0), 9)
    monkeypatch.setattr(cuda, "LARGE_BYTES", 1 << 40)
    small, _ = executed(writing(1.0, 2.0, 1.0, 3.0), 9)
    assert large.outputs == small.outputs


def test_a_write_past_the_end_of_one_repetition_is_found() -> None:
    calls = iter(range(100))

    def kernel(x: int, n: int, total: int) -> None:
        writing(1.0)(x, n, total)
        if next(calls) == 5:
            ctypes.c_float.from_address(total + 4 * ELEMENTS).value = 1.0

    with pytest.raises(ExecutionError, match="wrote past the end of buffer 'total'"):
        executed(kernel, 9)


def test_a_write_past_the_end_of_scratch_is_found() -> None:
    kernel = a_kernel(case=a_case((WIDE, SMALL)))
    arguments = (*kernel.stages[0].args, Arg(ArgKind.BUFFER, "scratch"))
    kernel = replace(kernel, stages=(replace(kernel.stages[0], args=arguments),))

    def write(x: int, n: int, total: int, scratch: int) -> None:
        writing(1.0)(x, n, total)
        ctypes.c_float.from_address(scratch + 256).value = 1.0  # its slot is rounded up to 256

    fake = FakeCupy({"sum": (4, write), "differs": (4, differs)})
    artifact = an_artifact(ptx=PTX.replace("s_2\n", "s_2,\n\t.param .u64 s_3\n"))
    with pytest.raises(ExecutionError, match="wrote past the end of buffer 'scratch'"):
        CudaExecutor(fake, 0, Arrays()).execute(artifact, kernel, kernel.cases[0], 3)


@pytest.mark.parametrize("size", [16, 4096, (1 << 22) + 16])
@pytest.mark.parametrize("place", [None, 0, -1])
def test_the_comparison_itself_on_the_model(size: int, place: int | None) -> None:
    """The PTX that compares, executed: equal memory says 0; one other byte, the first or the last, says 1."""
    from reprodb.executors import difference

    left = np.arange(size, dtype=np.uint8)
    right = left.copy()
    if place is not None:
        right[place] ^= 1
    words = Arg(ArgKind.SCALAR, "words", "uint64", (size // difference.WORD).to_bytes(8, "little"))
    stage = Stage(
        difference.ENTRY,
        (difference.BLOCKS, 1, 1),
        (difference.THREADS, 1, 1),
        (Arg(ArgKind.INPUT, "a"), Arg(ArgKind.INPUT, "b"), words, Arg(ArgKind.BUFFER, "flag")),
    )
    flag = Buffer("flag", "uint32", (1,), Role.RESULT, init="zero")
    raws = run_stages(difference.PTX, [stage], [flag], {"a": left, "b": right}, size)
    assert raws["flag"] == [(place is not None).to_bytes(4, "little")]


SOURCE = """
extern "C" __global__ void fill(const float* x, unsigned long long n, float* total)
{
    unsigned long long i = blockIdx.x * 256ull + threadIdx.x;
    if (i < n) total[i] = 3.0f * i;
    if (i == n - 1 && CHURN) total[i] = (float)(clock64() & 3);
}
"""


@pytest.mark.gpu
@pytest.mark.parametrize("churn", [0, 1])
def test_on_a_gpu(churn: int) -> None:
    """64 MiB a repetition: the bits are right, and only what churns is another pattern."""
    n = 1 << 24
    case = Case("large", n, a_case().inputs, (Buffer("total", "float32", (n,), Role.RESULT),))
    arguments = (Arg(ArgKind.INPUT, "x"), Arg(ArgKind.SIZE, "n"), Arg(ArgKind.BUFFER, "total"))
    kernel: Kernel = replace(
        a_kernel(case=case), stages=(Stage("fill", (n // 256, 1, 1), (256, 1, 1), arguments),)
    )
    samples = CudaExecutor.open(0, Arrays()).execute(compiled(churn), kernel, case, 40)
    (output,) = samples.outputs
    right = np.float32(3.0) * np.arange(n, dtype=np.float32)
    for pattern in output.patterns:
        found = np.frombuffer(pattern, np.float32)
        assert (found[:-1] == right[:-1]).all()
    assert len(output.sequence) == 40
    assert (len(output.patterns) > 1) == bool(churn)


def compiled(churn: int) -> Artifact:
    toolchain = next(t for t in catalog.find() if t.compiler == "nvcc" or t.version.startswith("13."))
    arch = find_gpus().devices[0].arch
    request = BuildRequest(
        "fill",
        ("fill",),
        "fill.cu",
        (SourceFile("fill.cu", SOURCE),),
        (("CHURN", str(churn)),),
        Profile("test", toolchain.compiler, "any", arch=arch),
        toolchain,
        arch,
    )
    done = next(iter(compile_all([request], 1)))
    assert done.output.cubin is not None, done.output.log
    return an_artifact(arch=arch, ptx=None, cubin=done.output.cubin)
