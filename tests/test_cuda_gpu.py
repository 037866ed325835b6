"""What only a GPU can show: the published bits, failures that must not look like results, and speed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reprodb.artifacts import ArtifactStore
from reprodb.build import build_each, request
from reprodb.digest import hex64
from reprodb.domain import Artifact, CodeOrigin, Kernel, Profile, Stage, Status, Suite
from reprodb.environment import find_gpus
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import DeviceError, ExecutorOptions, output_of
from reprodb.executors.choice import resolve_device
from reprodb.executors.cuda import CudaExecutor
from reprodb.executors.pool import Limits, Pool
from reprodb.executors.task import Outcome, Task
from reprodb.suite import bundled_suite, load_suite
from reprodb.toolchains import catalog

pytestmark = pytest.mark.gpu

SOURCE = """
extern "C" __global__ void good(const float* x, unsigned long long n, float* total) { total[0] = x[0] + n; }
extern "C" __global__ void illegal(const float* x, unsigned long long n, float* total)
{ *(float*)(16) = 1.0f; total[0] = 0.0f; }
extern "C" __global__ void trap(const float* x, unsigned long long n, float* total) { asm("trap;"); }
extern "C" __global__ void spin(const float* x, unsigned long long n, float* total)
{ volatile float* v = total; v[0] = 0.0f; while (v[0] == 0.0f) { } }
extern "C" __global__ void overrun(const float* x, unsigned long long n, float* total)
{ total[0] = 1.0f; total[1] = 1.0f; }
extern "C" __global__ void clobber(float* x, unsigned long long n, float* total) { total[0] = ++x[0]; }
extern "C" __global__ void nothing(const float* x, unsigned long long n, float* total) { }
extern "C" __global__ void chatter(const float* x, unsigned long long n, float* total)
{ printf("%d says something that nobody will read to the end\\n", threadIdx.x); total[0] = 1.0f; }
extern "C" __global__ void wide(const float* x, unsigned long long n, float* total)
{ extern __shared__ float s[]; s[50000 + threadIdx.x] = 2.0f; __syncthreads(); total[0] = s[50000]; }
__device__ unsigned int seen;
extern "C" __global__ void counter(const float* x, unsigned long long n, float* total) { total[0] = ++seen; }
static __device__ unsigned int own;
extern "C" __global__ void hidden(const float* x, unsigned long long n, float* total) { total[0] = ++own; }
"""
MANIFEST = """
[kernel]
name = "{name}"
source = "../kernel.cu"
operation = "{name}"
determinism = "run_to_run"
accumulator = "float32"
[[buffer]]
name = "total"
dtype = "float32"
size = 1
role = "result"
[[stage]]
entry = "{name}"
grid = 1
block = {block}
args = ["x", "n", "total"]
shared = {shared}
[[case]]
input = "ones"
n = 4
"""
NAMES = ("good", "illegal", "trap", "spin", "overrun", "clobber", "nothing", "chatter", "wide", "large",
         "counter", "hidden")  # fmt: skip


@pytest.fixture(name="suite", scope="module")
def misbehaving(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "kernel.cu").write_text(SOURCE)
    for name in NAMES:
        (folder / name).mkdir()
        block, shared = (1025, 0) if name == "large" else (32, 200_200 if name == "wide" else 0)
        text = MANIFEST.format(name=name, block=block, shared=shared)
        entry = 'entry = "good"' if name == "large" else f'entry = "{name}"'
        (folder / name / "kernel.toml").write_text(text.replace(f'entry = "{name}"', entry))
    return load_suite(folder)


@pytest.fixture(name="executor", scope="module")
def on_the_gpu() -> CudaExecutor:
    return CudaExecutor.open(0, Arrays())


def arch() -> str:
    return find_gpus().devices[0].arch


def built(suite: Suite, name: str, folder: Path, *, fmad: bool = True, arch_: str | None = None) -> Artifact:
    toolchain = next(t for t in catalog.find() if t.version >= "13")
    kernel = next(k for k in suite.kernels if k.name == name)
    profile = Profile("gpu", toolchain.compiler, f"=={toolchain.version}", fmad=fmad)
    wanted = request(suite, kernel, profile, toolchain, arch_ or arch())
    ((_, artifact),) = build_each([wanted], ArtifactStore(folder))
    assert artifact.build.status is Status.OK, artifact.build.log
    return artifact


def kernel_of(suite: Suite, name: str) -> Kernel:
    return next(k for k in suite.kernels if k.name == name)


@pytest.fixture(name="folder", scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


# --- The published bits ------------------------------------------------------------------------


def test_the_tree_has_the_published_bits_and_contraction_moves_73_partials(
    executor: CudaExecutor, folder: Path
) -> None:
    suite = load_suite(bundled_suite())
    kernel = kernel_of(suite, "sum_squares_tree")
    partials = []
    for fmad in (True, False):
        artifact = built(suite, kernel.name, folder, fmad=fmad)
        samples = executor.execute(artifact, kernel, kernel.cases[0], 100)
        outputs = {o.buffer.name: output_of(kernel, o) for o in samples.outputs}
        # Published for a Tesla T4: 1 pattern of 100, first bits, FNV-1a 64 over the 100 words.
        assert (outputs["total"].distinct, outputs["total"].first_bits) == (1, "0x4b25426d")
        assert hex64(outputs["total"].run_hash) == "0x8189389fe1bc0a65"
        assert samples.origin is CodeOrigin.CUBIN
        partials.append(np.frombuffer(outputs["partials"].patterns[0].data or b"", np.uint32))
    assert int((partials[0] != partials[1]).sum()) == 73


def test_atomics_churn_around_the_published_value(executor: CudaExecutor, folder: Path) -> None:
    suite = load_suite(bundled_suite())
    kernel = kernel_of(suite, "sum_squares_atomic")
    samples = executor.execute(built(suite, kernel.name, folder), kernel, kernel.cases[0], 100)
    (total,) = (o for o in samples.outputs if o.buffer.name == "total")
    values = [np.frombuffer(pattern, np.float32)[0] for pattern in total.patterns]
    assert len(values) > 1
    assert all(abs(value / 10830445.0 - 1) < 1e-5 for value in values)


def test_the_device_is_the_one_that_the_driver_lists(executor: CudaExecutor) -> None:
    assert executor.platform().device == find_gpus().devices[0]
    assert resolve_device("auto").device == find_gpus().devices[0]
    assert executor.platform().driver is not None


# --- What must not look like a result ----------------------------------------------------------


def test_failures_cost_their_result_and_the_next_is_whole(suite: Suite, folder: Path) -> None:
    limits = dict.fromkeys(("illegal", "trap", "overrun", "clobber", "large"), Status.LAUNCH_FAILED)
    expected = {**limits, "spin": Status.TIMED_OUT, "chatter": Status.OK, "wide": Status.OK}
    words = {"illegal": "IllegalAddress", "large": "CUDA_ERROR_INVALID_VALUE", "overrun": "past the end",
             "clobber": "changed its input", "spin": "ran past its limit of 4 s"}  # fmt: skip
    outcomes: dict[str, Outcome] = {}
    with Pool(ExecutorOptions("cuda"), limits=Limits(4.0)) as pool:
        pool.start()
        for name in expected:
            bad, good = pool.run(
                Task(built(suite, each, folder), kernel_of(suite, each), 40) for each in (name, "good")
            )
            outcomes[name] = bad
            assert good.status is Status.OK, (name, good.error)
            assert good.outputs[0].first_bits == "0x40a00000"  # 1 + 4
        assert all(len(worker.tail) <= 16 << 10 for worker in pool._workers)
    assert {name: outcome.status for name, outcome in outcomes.items()} == expected
    for name, text in words.items():
        assert text in outcomes[name].error, outcomes[name].error
    assert outcomes["illegal"].sticky
    assert not outcomes["large"].sticky
    assert all(not outcome.outputs for name, outcome in outcomes.items() if expected[name] is not Status.OK)


def test_code_for_another_architecture_is_an_error(
    suite: Suite, executor: CudaExecutor, folder: Path
) -> None:
    other = built(suite, "good", folder, arch_="sm_80" if arch() != "sm_80" else "sm_90")
    kernel = kernel_of(suite, "good")
    with pytest.raises(DeviceError, match="CUDA_ERROR_NO_BINARY_FOR_GPU"):
        executor.execute(other, kernel, kernel.cases[0], 3)


def test_ptx_of_a_virtual_architecture_is_compiled_by_the_driver_and_said_so(
    suite: Suite, executor: CudaExecutor, folder: Path
) -> None:
    artifact = built(suite, "good", folder)
    virtual = replace(
        artifact, cubin=None, build=replace(artifact.build, arch=arch().replace("sm_", "compute_"))
    )
    kernel = kernel_of(suite, "good")
    samples = executor.execute(virtual, kernel, kernel.cases[0], 3)
    assert samples.origin is CodeOrigin.JIT
    assert "compiled by driver" in samples.notes[0]
    newer = replace(virtual, ptx=(virtual.ptx or "").replace(".version 9", ".version 99", 1))
    with pytest.raises(DeviceError, match="CUDA_ERROR_"):
        executor.execute(newer, kernel, kernel.cases[0], 3)


def test_an_output_that_is_never_written_is_noted(suite: Suite, executor: CudaExecutor, folder: Path) -> None:
    kernel = kernel_of(suite, "nothing")
    samples = executor.execute(built(suite, "nothing", folder), kernel, kernel.cases[0], 40)
    assert samples.notes == ("buffer total was never written: it holds its poison",)


def test_global_variables_start_every_repetition_as_declared(
    suite: Suite, executor: CudaExecutor, folder: Path
) -> None:
    kernel = replace(kernel_of(suite, "counter"), stages=(one_thread(kernel_of(suite, "counter")),))
    samples = executor.execute(built(suite, "counter", folder), kernel, kernel.cases[0], 40)
    assert (len(samples.outputs[0].patterns), samples.notes) == (1, ())
    kernel = replace(kernel_of(suite, "hidden"), stages=(one_thread(kernel_of(suite, "hidden")),))
    samples = executor.execute(built(suite, "hidden", folder), kernel, kernel.cases[0], 40)
    assert len(samples.outputs[0].patterns) == 1 or "keeps its value" in samples.notes[0]


def one_thread(kernel: Kernel) -> Stage:
    return replace(kernel.stages[0], block=(1, 1, 1))
