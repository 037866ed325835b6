"""Reading the machine: drivers that are absent, broken or there, CuPy twice, and where kernels then run."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from reprodb.domain import Device, Lane
from reprodb.environment import (
    Gpus,
    check_cupy,
    cpu_name,
    dotted,
    driver_version,
    find_gpus,
    format_uuid,
    host_environment,
    steering_variables,
    twins,
)
from reprodb.errors import ExecutionError, Exit, ReprodbError, UsageError
from reprodb.executors.base import Platform
from reprodb.executors.choice import Machine, Where, resolve_device, without_gpu
from reprodb.executors.context import begin_context

H200 = Device("NVIDIA H200", "GPU-1", "9.0", 132, 1 << 37, 0)
T4 = Device("Tesla T4", "GPU-2", "7.5", 40, 1 << 34, 1)
TWO = Gpus((H200, T4), "13.0")
NONE = Gpus(problem="no NVIDIA driver: libcuda.so.1 cannot be loaded")


class FakeCuda:
    """The driver library's calls, answered from a list of devices through the pointers that are given."""

    def __init__(self, devices: tuple[Device, ...], init: int = 0) -> None:
        self.devices = devices
        self.init = init
        self.retained: list[int] = []

    def cuInit(self, flags: int) -> int:
        return self.init

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = 13000
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:
        out._obj.value = index
        return 0

    def cuDevicePrimaryCtxRetain(self, out: Any, device: Any) -> int:
        self.retained.append(device.value)
        return 0

    def cuDeviceGetName(self, out: Any, size: int, device: Any) -> int:
        out.value = self.devices[device.value].name.encode()
        return 0

    def cuDeviceGetUuid(self, out: Any, device: Any) -> int:
        ctypes.memmove(out._obj, bytes([device.value] * 16), 16)
        return 0

    def cuDeviceTotalMem_v2(self, out: Any, device: Any) -> int:
        out._obj.value = self.devices[device.value].memory
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: Any) -> int:
        found = self.devices[device.value]
        major, minor = map(int, found.compute_capability.split("."))
        out._obj.value = {75: major, 76: minor, 16: found.sm_count}[attribute]
        return 0

    def cuGetErrorName(self, code: int, out: Any) -> int:
        out._obj.value = {100: b"CUDA_ERROR_NO_DEVICE", 999: b"CUDA_ERROR_UNKNOWN"}.get(code)
        return 0


def absent(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


# --- The driver --------------------------------------------------------------------------------


def test_without_a_driver_the_problem_is_said() -> None:
    assert find_gpus(absent) == NONE


def test_devices_are_read_without_cupy() -> None:
    found = find_gpus(lambda name: FakeCuda((H200, T4)))
    assert [(d.name, d.arch, d.sm_count, d.memory, d.index) for d in found.devices] == [
        ("NVIDIA H200", "sm_90", 132, 1 << 37, 0),
        ("Tesla T4", "sm_75", 40, 1 << 34, 1),
    ]
    assert found.devices[1].uuid == "GPU-01010101-0101-0101-0101-010101010101"
    assert (found.cuda_driver, found.problem) == ("13.0", "")


@pytest.mark.parametrize(
    ("init", "words"), [(100, "CUDA_ERROR_NO_DEVICE"), (999, "CUDA_ERROR_UNKNOWN"), (34, "error 34")]
)
def test_a_driver_that_does_not_start_is_named_by_its_error(init: int, words: str) -> None:
    found = find_gpus(lambda name: FakeCuda((), init))
    assert found.devices == ()
    assert found.problem == f"the NVIDIA driver does not start: {words}"


def test_hidden_devices_are_a_problem_too() -> None:
    assert find_gpus(lambda name: FakeCuda(())).problem == "the NVIDIA driver shows no device to this process"


def test_the_drivers_version_comes_from_nvml_or_the_kernel_module(tmp_path: Path) -> None:
    class Nvml:
        def nvmlInit_v2(self) -> int:
            return 0

        def nvmlSystemGetDriverVersion(self, out: Any, size: int) -> int:
            out.value = b"580.159.04"
            return 0

        def nvmlShutdown(self) -> int:
            return 0

    proc = tmp_path / "version"
    assert driver_version(lambda name: Nvml(), proc) == "580.159.04"
    assert driver_version(absent, proc) is None
    proc.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    )
    assert driver_version(absent, proc) == "535.183.01"


def test_versions_and_identities_as_people_write_them() -> None:
    assert [dotted(v) for v in (13000, 12060, 12090)] == ["13.0", "12.6", "12.9"]
    assert format_uuid(bytes(range(16))) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


# --- CuPy --------------------------------------------------------------------------------------


def test_two_cupys_are_refused_with_the_way_out() -> None:
    with pytest.raises(ExecutionError, match="overwrite each other's files") as caught:
        check_cupy((("cupy-cuda12x", "14.0"), ("cupy-cuda13x", "14.2.0")), "12.6")
    assert caught.value.remedy == (
        "pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install 'reprodb[cuda12]'"
    )


def test_no_cupy_names_the_extra_for_the_driver() -> None:
    for driver, extra in (("12.4", "cuda12"), ("13.0", "cuda13"), (None, "cuda13")):
        with pytest.raises(ExecutionError) as caught:
            check_cupy((), driver)
        assert caught.value.remedy == f"pip install 'reprodb[{extra}]'"
    check_cupy((("cupy-cuda13x", "14.2.0"),), "13.0")


# --- Where kernels run -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "machine", "executor", "device", "sentence"),
    [
        ("auto", Machine(TWO), "cuda", H200, "measured on NVIDIA H200 (sm_90, GPU-1)"),
        ("gpu", Machine(TWO), "cuda", H200, "measured on NVIDIA H200 (sm_90, GPU-1)"),
        ("1", Machine(TWO), "cuda", T4, "measured on Tesla T4 (sm_75, GPU-2)"),
        ("model", Machine(TWO), "model", None, "modelled on the CPU: asked for"),
        ("auto", Machine(NONE), "model", None, f"modelled on the CPU: {NONE.problem}"),
        (
            "auto",
            Machine(TWO, cupy="CuPy is not installed"),
            "model",
            None,
            "modelled on the CPU: CuPy is not installed",
        ),
    ],
)
def test_the_choice_and_why(
    wanted: str, machine: Machine, executor: str, device: Device | None, sentence: str
) -> None:
    assert resolve_device(wanted, machine) == Where(executor, device, sentence)


def test_the_lane_follows_the_executor() -> None:
    assert resolve_device("gpu", Machine(TWO)).lane is Lane.MEASURED
    assert without_gpu("CUDA_ERROR_UNKNOWN", Machine(TWO)).lane is Lane.MODELLED


def test_a_gpu_that_was_asked_for_and_is_not_there_is_exit_4() -> None:
    for wanted in ("gpu", "0"):
        with pytest.raises(ReprodbError, match="no GPU can be used: no NVIDIA driver") as caught:
            resolve_device(wanted, Machine(NONE))
        assert (caught.value.code, caught.value.remedy) == (Exit.NO_ANSWER, "reprodb doctor")
    lacking = Machine(TWO, "CuPy is not installed", "pip install 'reprodb[cuda13]'")
    with pytest.raises(ReprodbError) as caught:
        resolve_device("gpu", lacking)
    assert caught.value.remedy == "pip install 'reprodb[cuda13]'"


def test_an_index_or_a_word_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="allowed: 0, 1"):
        resolve_device("2", Machine(TWO))
    for word in ("tpu", "-1", "", "cuda:0"):
        with pytest.raises(UsageError, match="auto, gpu, model"):
            resolve_device(word, Machine(TWO))


def test_no_model_says_what_installs_it_and_why_no_gpu_is_used() -> None:
    with pytest.raises(ReprodbError, match="llvmlite is not installed") as caught:
        resolve_device("model", Machine(TWO, llvmlite=False))
    assert caught.value.remedy == "pip install 'reprodb[cpu]'"
    with pytest.raises(ReprodbError, match=r"no GPU can be used \(no NVIDIA driver"):
        resolve_device("auto", Machine(NONE, llvmlite=False))


# --- The record --------------------------------------------------------------------------------


def test_only_variables_that_steer_bits_are_recorded() -> None:
    environ = {
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUPY_ACCELERATORS": "cub",
        "CUDA_LAUNCH_BLOCKING": "1",
        "CUDA_HOME": "/usr/local/cuda",
        "GITHUB_TOKEN": "secret",
    }
    assert steering_variables(environ) == (
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("CUPY_ACCELERATORS", "cub"),
        ("NVIDIA_TF32_OVERRIDE", "0"),
    )


def test_the_environment_of_a_run_is_whole() -> None:
    platform = Platform(Lane.MEASURED, (("cupy", "14.2.0"),), H200, "580.159.04", "13.0", "12.9")
    found = host_environment(platform, {"NVCC_APPEND_FLAGS": "-O0", "NVIDIA_TF32_OVERRIDE": "1"})
    assert (found.device, found.driver, found.cuda_driver, found.cuda_runtime) == (
        H200,
        "580.159.04",
        "13.0",
        "12.9",
    )
    assert {"cupy", "numpy"} <= set(dict(found.libraries))
    assert found.variables == (("NVIDIA_TF32_OVERRIDE", "1"),)
    assert found.dropped == ("NVCC_APPEND_FLAGS",)
    assert all((found.host, found.os, found.python, found.cpu, found.reprodb))


def test_the_processors_name(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC\nprocessor\t: 1\nmodel name\t: other\n")
    assert cpu_name(info) == "AMD EPYC"
    assert cpu_name(tmp_path / "none")


def test_twins_are_the_other_cards_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (Device("NVIDIA H200", f"GPU-{n}", "9.0", 132, 1 << 37, n) for n in range(2))
    other = Device("Tesla T4", "GPU-9", "7.5", 40, 1 << 34, 2)
    monkeypatch.setattr("reprodb.environment.find_gpus", lambda: Gpus((one, two, other)))
    assert twins(one) == (two,)
    assert twins(other) == ()


@pytest.mark.parametrize(("init", "made"), [(0, [1]), (100, [])])
def test_a_devices_context_is_begun_where_the_driver_starts(init: int, made: list[int]) -> None:
    cuda = FakeCuda((H200, T4), init)
    begin_context(1, lambda name: cuda).join()
    assert cuda.retained == made


def test_without_a_driver_no_context_is_begun_and_nobody_hears_of_it() -> None:
    with pytest.MonkeyPatch.context() as patch:
        raised: list[object] = []
        patch.setattr("threading.excepthook", raised.append)
        begin_context(0, absent).join()
    assert raised == []
