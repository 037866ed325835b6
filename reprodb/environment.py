"""Read the machine that a run happens on: GPUs without CuPy, versions, and the variables that steer bits."""

from __future__ import annotations

import ctypes
import os
import platform as host_platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reprodb.domain import Device, Environment, Pairs
from reprodb.errors import ExecutionError
from reprodb.executors.base import Platform
from reprodb.version import __version__

# Variables that change what runs on a GPU or in what order, by name, and all of CuPy's.
STEERING = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_INJECTION64_PATH",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
)
STEERING_PREFIX = "CUPY_"

# Packages that all lay their files into the same folder `cupy`.
CUPY_PACKAGES = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")

# Libraries whose versions a run records, where they are installed.
_RECORDED = ("numpy", "llvmlite")

_COMPUTE_MAJOR, _COMPUTE_MINOR, _SM_COUNT = 75, 76, 16  # cuDeviceGetAttribute
_LoadLibrary = Callable[[str], Any]


def format_uuid(raw: bytes) -> str:
    """A device's 16 bytes as NVIDIA's tools print them: `GPU-…`."""
    text = raw.hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def dotted(version: int) -> str:
    """CUDA's version number as people write it: 13000 is 13.0."""
    return f"{version // 1000}.{version % 1000 // 10}"


@dataclass(frozen=True, slots=True)
class Gpus:
    """What the driver shows to this process. `problem` says why there is no device where there is none."""

    devices: tuple[Device, ...] = ()
    cuda_driver: str | None = None
    problem: str = ""


def find_gpus(load: _LoadLibrary = ctypes.CDLL) -> Gpus:
    """Ask the driver library for its devices; CUDA_VISIBLE_DEVICES is the driver's to respect.

    Neither a context nor CuPy (1.5 s) is needed for that.
    """
    try:
        cuda = load("libcuda.so.1")
    except OSError:
        return Gpus(problem="no NVIDIA driver: libcuda.so.1 cannot be loaded")
    if code := cuda.cuInit(0):
        return Gpus(problem=f"the NVIDIA driver does not start: {_error_name(cuda, code)}")
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    count = ctypes.c_int()
    if code := cuda.cuDeviceGetCount(ctypes.byref(count)):
        return Gpus(problem=f"the NVIDIA driver lists no devices: {_error_name(cuda, code)}")
    devices = tuple(_device(cuda, index) for index in range(count.value))
    problem = "" if devices else "the NVIDIA driver shows no device to this process"
    return Gpus(devices, dotted(version.value), problem)


def twins(device: Device) -> tuple[Device, ...]:
    """The other GPUs of a device's model in this machine."""
    return tuple(d for d in find_gpus().devices if d.name == device.name and d.uuid != device.uuid)


def _device(cuda: Any, index: int) -> Device:
    handle = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(handle), index)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), handle)
    uuid = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid(ctypes.byref(uuid), handle)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        return value.value

    return Device(
        name=name.value.decode(errors="replace"),
        uuid=format_uuid(bytes(uuid)),
        compute_capability=f"{attribute(_COMPUTE_MAJOR)}.{attribute(_COMPUTE_MINOR)}",
        sm_count=attribute(_SM_COUNT),
        memory=memory.value,
        index=index,
    )


def _error_name(cuda: Any, code: int) -> str:
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(name))
    return name.value.decode() if name.value else f"error {code}"


def driver_version(
    load: _LoadLibrary = ctypes.CDLL, proc: Path = Path("/proc/driver/nvidia/version")
) -> str | None:
    """The driver's own version (580.159.04), from NVML or from the kernel module; None without a driver."""
    text = ctypes.create_string_buffer(96)
    try:
        nvml = load("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0:
            found = nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
            nvml.nvmlShutdown()
            if found:
                return text.value.decode()
    except (OSError, AttributeError):
        pass
    try:
        match = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", proc.read_text())
    except OSError:
        return None
    return match[0] if match else None


def cupy_packages() -> Pairs:
    """The installed packages that bring CuPy, with their versions."""
    found = []
    for name in CUPY_PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def cupy_extra(cuda_driver: str | None) -> str:
    """The extra that brings a CuPy for the driver at hand."""
    return "cuda12" if cuda_driver is not None and cuda_driver.startswith("12.") else "cuda13"


def check_cupy(packages: Pairs | None = None, cuda_driver: str | None = None) -> None:
    """Raise ExecutionError where CuPy is missing, or there twice so that one overwrote half of the other."""
    found = cupy_packages() if packages is None else packages
    extra = cupy_extra(cuda_driver)
    if len(found) > 1:
        names = " ".join(name for name, _ in found)
        raise ExecutionError(
            f"{len(found)} CuPy packages are installed and overwrite each other's files: {names}",
            allowed="one of them",
            remedy=f"pip uninstall -y {names} && pip install 'reprodb[{extra}]'",
        )
    if not found and (packages is not None or find_spec("cupy") is None):
        raise ExecutionError("CuPy is not installed", remedy=f"pip install 'reprodb[{extra}]'")


def steering_variables(environ: Mapping[str, str]) -> Pairs:
    """The set variables that steer bits, sorted by name."""
    names = (n for n in environ if n in STEERING or n.startswith(STEERING_PREFIX))
    return tuple((name, environ[name]) for name in sorted(names))


def host_environment(
    platform: Platform | None = None, environ: Mapping[str, str] = os.environ
) -> Environment:
    """The environment of a run: this host, and the device and libraries that the executor found."""
    from reprodb.toolchains.base import dropped_variables

    libraries = dict(platform.libraries if platform else ())
    for name in _RECORDED:
        if name not in libraries:
            try:
                libraries[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
    return Environment(
        host=host_platform.node(),
        os=_os_name(),
        python=host_platform.python_version(),
        cpu=cpu_name(),
        reprodb=__version__,
        device=platform.device if platform else None,
        driver=platform.driver if platform else None,
        cuda_driver=platform.cuda_driver if platform else None,
        cuda_runtime=platform.cuda_runtime if platform else None,
        libraries=tuple(sorted(libraries.items())),
        variables=steering_variables(environ),
        dropped=dropped_variables(environ),
    )


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name."""
    try:
        match = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else host_platform.processor() or host_platform.machine()


def _os_name() -> str:
    if sys.platform != "linux":
        return host_platform.platform()
    try:
        name = host_platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        name = "Linux"
    return f"{name} ({host_platform.machine()})"
