"""Choose where kernels run: a GPU where one works, else the model, and say which and why."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from reprodb.domain import Device, Lane, Pairs
from reprodb.environment import Gpus, check_cupy, find_gpus
from reprodb.errors import ExecutionError, ReprodbError, UsageError
from reprodb.executors.base import LANES

CHOICES = "auto, gpu, model, cpu, or a device's index"


@dataclass(frozen=True, slots=True)
class Where:
    """The executor to open and, in one sentence, why that one."""

    executor: str  # a key of executors.base.EXECUTORS
    device: Device | None
    sentence: str

    @property
    def lane(self) -> Lane:
        return LANES[self.executor]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the choice depends on. Read by `look`; tests make their own."""

    gpus: Gpus
    cupy: str = ""  # what is wrong with CuPy; empty where nothing is
    cupy_remedy: str = ""
    llvmlite: bool = True


def look(packages: Pairs | None = None) -> Machine:
    """This machine, without importing CuPy or llvmlite."""
    gpus = find_gpus()
    problem = remedy = ""
    if gpus.devices:
        try:
            check_cupy(packages, gpus.cuda_driver)
        except ExecutionError as error:
            problem, remedy = error.problem, error.remedy
    return Machine(gpus, problem, remedy, find_spec("llvmlite") is not None)


def resolve_device(wanted: str, machine: Machine | None = None) -> Where:
    """What `--device` means here: `auto`, `gpu`, `model`, `cpu` (programs alone) or an index.

    `auto` never fails for want of a GPU. Raises UsageError for another word or an index that is not there,
    and ReprodbError (exit 4) where a GPU or the model was asked for and cannot be had.
    """
    word = wanted.strip().lower()
    if word not in ("auto", "gpu", "model", "cpu") and not word.isdecimal():
        raise UsageError(f"device {wanted!r}", allowed=CHOICES)
    if word == "cpu":
        return Where("host", None, "programs on the CPU: asked for")
    found = machine or look()
    if word == "model":
        return _model(found, "asked for")
    lacking = found.gpus.problem or found.cupy
    if word == "auto" and lacking:
        return _model(found, lacking)
    if lacking:
        raise ReprodbError(f"no GPU can be used: {lacking}", remedy=found.cupy_remedy or "reprodb doctor")
    devices = {str(device.index): device for device in found.gpus.devices}
    index = word if word.isdecimal() else min(devices, key=int)
    if index not in devices:
        raise UsageError(f"no device {wanted}", allowed=", ".join(devices), remedy="reprodb doctor")
    device = devices[index]
    return Where("cuda", device, f"measured on {device.name} ({device.arch}, {device.uuid})")


def _model(machine: Machine, reason: str) -> Where:
    if not machine.llvmlite:
        why = "" if reason == "asked for" else f" and no GPU can be used ({reason})"
        raise ReprodbError(
            f"the model cannot run: llvmlite is not installed{why}", remedy="pip install 'reprodb[cpu]'"
        )
    return Where("model", None, f"modelled on the CPU: {reason}")


def without_gpu(problem: str, machine: Machine | None = None) -> Where:
    """The model in place of a GPU that `auto` chose and that then did not work."""
    return _model(machine or look(), problem)
