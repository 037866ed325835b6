"""The CUDA executor: against a stand-in for CuPy everywhere, and on a real GPU where there is one."""

import ctypes
import struct
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from reprodb.domain import (
    Arg,
    ArgKind,
    Buffer,
    CodeOrigin,
    Device,
    Kernel,
    Lane,
    Role,
    Samples,
)
from reprodb.environment import Gpus
from reprodb.errors import ExecutionError
from reprodb.executors import cuda
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import DeviceError
from reprodb.executors.cuda import CudaExecutor
from reprodb.executors.slots import GUARD, Batch
from tests.executors.fake_cupy import FakeCupy, FakeKernel
from tests.executors.things import TOTAL, a_case, a_kernel, an_artifact

PTX = ".visible .entry sum(\n\t.param .u64 sum_param_0,\n\t.param .u64 sum_param_1,\n\t.param .u64 s_2\n)"


def floats(address: int, count: int) -> Any:
    return (ctypes.c_float * count).from_address(address)


def total_of(x: int, n: int, total: int) -> None:
    floats(total, 1)[0] = sum(floats(x, n))


def executor_of(
    kernel: FakeKernel = total_of, count: int = 3, **settings: int
) -> tuple[CudaExecutor, FakeCupy]:
    fake = FakeCupy({"sum": (count, kernel)}, **settings)
    return CudaExecutor(fake, 0, Arrays()), fake


def run(executor: CudaExecutor, kernel: Kernel | None = None, repetitions: int = 3, **code: Any) -> Samples:
    kernel = kernel or a_kernel()
    return executor.execute(an_artifact(**{"ptx": PTX, **code}), kernel, kernel.cases[0], repetitions)


def word(value: float) -> bytes:
    return struct.pack("<f", value)


def counting() -> FakeKernel:
    """Writes how often it was called: every repetition another pattern."""
    calls = iter(range(1, 1 << 20))

    def kernel(x: int, n: int, total: int) -> None:
        floats(total, 1)[0] = next(calls)

    return kernel


# --- Repetitions and their slots ---------------------------------------------------------------


@pytest.mark.parametrize("repetitions", [1, 2, 31, 32, 100, 101, 997])
def test_every_repetition_runs_once_and_is_read_back_in_order(repetitions: int) -> None:
    executor, _ = executor_of(counting())
    (output,) = run(executor, repetitions=repetitions).outputs
    assert output.patterns == tuple(word(r) for r in range(1, repetitions + 1))
    assert output.sequence == tuple(range(repetitions))


def test_repetitions_beyond_the_memory_go_in_further_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "RESULT_BYTES", 7 * 512)  # seven results of one element
    monkeypatch.setattr(cuda, "SMALL_BYTES", 0)
    executor, fake = executor_of(counting(), room=0)  # and one slot at a time
    (output,) = run(executor, repetitions=20).outputs
    assert output.patterns == tuple(word(r) for r in range(1, 21))
    assert fake.calls.count("launchKernel") == 20


def test_many_repetitions_are_captured_once_and_replayed() -> None:
    executor, fake = executor_of()
    run(executor, repetitions=100)
    assert fake.calls.count("launchKernel") == 10
    assert fake.calls.count("graphLaunch") == 10
    assert fake.calls.count("graphInstantiate") == fake.calls.count("graphDestroy") == 1
    assert fake.calls.count("graphExecDestroy") == 1


@pytest.mark.parametrize(("count", "slots"), [(1, 1), (3, 1), (32, 4), (97, 9), (100, 10), (1000, 25)])
def test_a_cycle_has_about_the_square_root_of_the_repetitions(count: int, slots: int) -> None:
    assert cuda.slots_for(count) == slots


def test_all_repetitions_are_queued_before_the_first_copy_back() -> None:
    executor, fake = executor_of()
    run(executor)
    fake.calls.clear()
    run(executor, repetitions=100)
    last_launch = len(fake.calls) - fake.calls[::-1].index("graphLaunch")
    assert "streamSynchronize" not in fake.calls[:last_launch]


def test_buffers_start_poisoned_zeroed_or_copied_in_every_repetition() -> None:
    def add_up(x: int, poisoned: int, zeroed: int, copied: int) -> None:
        for address in (poisoned, zeroed, copied):
            cell = ctypes.c_uint32.from_address(address)
            cell.value += 1

    buffers = (
        Buffer("poisoned", "uint32", (1,), Role.RESULT),
        Buffer("zeroed", "uint32", (1,), Role.WITNESS, init="zero"),
        Buffer("copied", "float32", (4,), Role.WITNESS, init="copy:x"),
    )
    kernel = with_args(a_kernel(case=a_case(buffers)), "x", "poisoned", "zeroed", "copied")
    executor, _ = executor_of(add_up, 4)
    samples = run(executor, kernel, repetitions=40, ptx=None)
    one = 0x3F800000
    assert [output.patterns for output in samples.outputs] == [
        (struct.pack("<I", 0xA5A5A5A6),),
        (struct.pack("<I", 1),),
        (struct.pack("<4I", one + 1, one, one, one),),
    ]


def with_args(kernel: Kernel, *names: str) -> Kernel:
    inputs = {wanted.name for wanted in kernel.cases[0].inputs}
    args = tuple(
        Arg(ArgKind.SIZE if n == "n" else ArgKind.INPUT if n in inputs else ArgKind.BUFFER, n) for n in names
    )
    return replace(kernel, stages=(replace(kernel.stages[0], args=args),))


def test_global_variables_start_every_repetition_as_declared() -> None:
    seen = ctypes.c_uint32(7)

    def count(x: int, n: int, total: int) -> None:
        floats(total, 1)[0] = seen.value
        seen.value += 1

    executor, fake = executor_of(count)
    fake.variables["seen"] = ctypes.addressof(seen)
    declared = """
.visible .global .align 4 .u32 seen = 7;
.global .align 16 .b8 own[12];
.global .align 1 .b8 $str[10] = {104, 101};
"""
    samples = run(executor, repetitions=40, ptx=declared + PTX)
    assert samples.outputs[0].patterns == (word(7.0),)
    assert samples.notes == ("variable own keeps its value between repetitions",)
    assert (
        fake.calls.count("malloc") == fake.calls.count("free") + 1
    )  # input, slots; and the context's free(0)


def test_the_sizes_of_variables_are_read_from_ptx() -> None:
    declared = """
.visible .global .align 8 .u64 pointer;
.visible .global .align 4 .f32 table[6] = {0f3F000000};
.weak .global .align 4 .b8 grid[2][12];
.const .align 4 .f32 fixed[2];
\t.shared .align 4 .b8 scratch[64];
\tld.global.f32 \t%f1, [%rd1];
"""
    assert cuda.variables(declared) == (("pointer", 8), ("table", 24), ("grid", 24))


def test_scalars_reach_the_kernel_by_their_bytes() -> None:
    def scalar(total: int, value: int) -> None:
        ctypes.c_uint32.from_address(total).value = value & 0xFFFFFFFF

    kernel = with_args(a_kernel(), "total")
    args = (*kernel.stages[0].args, Arg(ArgKind.SCALAR, "scale", "float32", word(1.5)))
    executor, _ = executor_of(scalar, 2)
    samples = run(executor, replace(kernel, stages=(replace(kernel.stages[0], args=args),)), ptx=None)
    assert samples.outputs[0].patterns == (word(1.5),)


def test_slots_never_overlap_and_start_aligned() -> None:
    buffers = (
        Buffer("odd", "uint8", (257,), Role.SCRATCH),
        TOTAL,
        Buffer("wide", "float64", (33,), Role.WITNESS),
        Buffer("empty", "float32", (0,), Role.WITNESS),
    )
    batch = Batch.of(a_case(buffers), 5, {})
    spans = sorted(
        (region.start + slot * region.stride, region.buffer.nbytes)
        for region in batch.regions
        for slot in range(5)
    )
    assert all(start % 256 == 0 for start, _ in spans)
    assert all(start + size + GUARD <= after for (start, size), (after, _) in pairwise(spans))
    assert batch.nbytes == spans[-1][0] + spans[-1][1] + GUARD + (-spans[-1][1]) % 256
    assert [region.buffer.name for region in batch.regions] == ["total", "wide", "empty", "odd"]


def test_inputs_are_uploaded_once_and_the_least_used_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, fake = executor_of()
    for _ in range(3):
        run(executor)
    assert len(executor._inputs) == 1
    monkeypatch.setattr(cuda, "INPUT_BYTES", 40)
    for n in (4, 5, 6):
        run(executor, a_kernel(case=a_case(n=n)))
    assert [wanted.n for wanted in executor._inputs] == [6]
    assert fake.calls.count("malloc") == 4  # three inputs of another size, and the slots


# --- What must not become a stable hash --------------------------------------------------------


def failure(kernel: Kernel | None = None, behave: FakeKernel = total_of, **code: Any) -> ExecutionError:
    executor, _ = executor_of(behave)
    with pytest.raises(ExecutionError) as caught:
        run(executor, kernel, **code)
    return caught.value


def test_a_block_that_is_too_large_is_an_error_launched_and_captured() -> None:
    kernel = a_kernel()
    large = replace(kernel, stages=(replace(kernel.stages[0], block=(1025, 1, 1)),))
    for repetitions in (3, 100):
        error = failure(large, repetitions=repetitions)
        assert "CUDA_ERROR_INVALID_VALUE: invalid argument" in error.problem


def test_code_for_another_architecture_is_an_error() -> None:
    error = failure(arch="sm_80", cubin=b"sm_80")
    assert error.problem == (
        "loading the sm_80 code on Fake GPU (sm_90): "
        "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available"
    )


def test_ptx_is_compiled_by_the_driver_only_for_a_virtual_architecture() -> None:
    executor, _ = executor_of()
    jit = run(executor, arch="compute_90", cubin=None)
    assert jit.origin is CodeOrigin.JIT
    assert jit.notes[0].startswith("PTX for compute_90 compiled by driver ")
    assert run(executor).origin is CodeOrigin.CUBIN
    assert "holds no cubin" in failure(arch="sm_90", cubin=None).problem
    assert "holds no PTX" in failure(arch="compute_90", ptx=None).problem


def test_a_missing_entry_and_a_wrong_number_of_arguments_are_errors() -> None:
    kernel = a_kernel()
    missing = replace(kernel, stages=(replace(kernel.stages[0], entry="none"),))
    assert "looking up entry 'none': CUDA_ERROR_NOT_FOUND" in failure(missing).problem
    assert "takes 3 arguments and the manifest passes 2" in failure(with_args(kernel, "x", "total")).problem


def test_a_write_past_a_buffer_is_an_error() -> None:
    def overrun(x: int, n: int, total: int) -> None:
        floats(total, 2)[1] = 1.0

    assert "wrote past the end of buffer 'total' (4 bytes)" in failure(behave=overrun).problem
    scratch = (TOTAL, Buffer("work", "float32", (64,), Role.SCRATCH, init="zero"))

    def overrun_scratch(work: int, n: int, total: int) -> None:
        floats(work, 65)[64] = 1.0

    kernel = with_args(a_kernel(case=a_case(scratch)), "work", "n", "total")
    assert "past the end of buffer 'work' (256 bytes)" in failure(kernel, overrun_scratch).problem


def test_a_kernel_that_writes_its_input_is_refused_and_the_next_finds_it_whole() -> None:
    def clobber(x: int, n: int, total: int) -> None:
        total_of(x, n, total)
        floats(x, 1)[0] += 1.0

    executor, fake = executor_of(clobber)
    with pytest.raises(ExecutionError, match="changed its input 'x'") as caught:
        run(executor)
    assert "copy:x" in caught.value.remedy
    fake.kernels["sum"] = (3, total_of)
    assert run(executor).outputs[0].patterns == (word(4.0),)


def test_a_result_that_was_never_written_is_noted() -> None:
    executor, _ = executor_of(lambda x, n, total: None)
    samples = run(executor)
    assert samples.outputs[0].patterns == (b"\xa5\xa5\xa5\xa5",)
    assert samples.notes == ("buffer total was never written: it holds its poison",)


def test_an_error_after_which_the_context_is_lost_is_sticky() -> None:
    executor, fake = executor_of()
    fake.lost = True
    with pytest.raises(DeviceError) as caught:
        run(executor)
    assert caught.value.sticky
    assert "cudaErrorIllegalAddress" in caught.value.problem


def test_an_error_that_leaves_the_context_usable_is_not_sticky() -> None:
    executor, fake = executor_of()
    fake.fails["malloc"] = fake.cuda.runtime.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
    with pytest.raises(DeviceError, match="uploading input 'x' of 16 bytes: cudaErrorMemory") as caught:
        run(executor)
    assert not caught.value.sticky
    fake.fails.clear()
    assert run(executor).outputs[0].patterns == (word(4.0),)


def test_dynamic_shared_memory_is_allowed_before_the_launch() -> None:
    kernel = a_kernel()
    executor, fake = executor_of()
    run(executor, replace(kernel, stages=(replace(kernel.stages[0], shared=200 << 10),)))
    assert fake.shared == {"sum": 200 << 10}


def test_no_elements_at_all() -> None:
    executor, _ = executor_of()
    assert run(executor, a_kernel(case=a_case(n=0))).outputs[0].patterns == (word(0.0),)


def test_the_device_is_read_from_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "find_gpus", Gpus)
    executor, _ = executor_of()
    platform = executor.platform()
    assert platform.lane is Lane.MEASURED
    assert platform.device is not None
    assert platform.device.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (platform.device.arch, platform.device.sm_count) == ("sm_90", 132)
    assert (platform.cuda_driver, platform.cuda_runtime) == ("13.0", "12.9")
    assert dict(platform.libraries)["cupy"] == "14.2.0"


def test_the_devices_uuid_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy ends it at the first zero byte: an H200 was recorded as `GPU-b7f4799b-e88b---`."""
    whole = "GPU-b7f4799b-e88b-00aa-bbcc-ddeeff001122"
    monkeypatch.setattr(cuda, "find_gpus", lambda: Gpus((Device("Fake GPU", whole, "9.0", 132, 1, 0),)))
    executor, _ = executor_of()
    device = executor.platform().device
    assert device is not None
    assert device.uuid == whole
