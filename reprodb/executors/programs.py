"""Executors of kernels that are programs: chosen by the task, each beside the device's own executor."""

from __future__ import annotations

from reprodb.domain import Artifact, Case, Kernel, Lane, Pairs, Samples
from reprodb.errors import UnsupportedError
from reprodb.executors.base import Executor
from reprodb.executors.task import Task
from reprodb.stress import NO_PRESSURE

_NEEDS = {"gpu": Lane.MEASURED, "cpu": Lane.HOST}


def executor_of(executor: Executor, task: Task) -> Executor:
    """What executes the task: the device's own executor, or that of its program.

    Raises UnsupportedError where the program does not run on this lane.
    """
    kernel = task.kernel
    program = kernel.program
    if program is None:
        return executor
    if executor.lane is not _NEEDS[program.device]:
        where = "a GPU" if program.device == "gpu" else "the CPU as a program"
        what = "calls libraries that run" if program.kind == "python" else "is a program that runs"
        raise UnsupportedError(
            f"{kernel.name} {what} on {where}, which the {executor.lane} lane has not",
            allowed="the model executes PTX alone" if executor.lane is Lane.MODELLED else "",
            remedy=f"--device {program.device}",
        )
    if program.kind == "python":
        from reprodb.executors.callables import CallableExecutor

        return CallableExecutor(executor, task.prepared)
    from reprodb.executors.commands import CommandExecutor

    return CommandExecutor(executor, task.prepared)


class HostExecutor:
    """The lane of programs on this machine's CPU: it executes nothing else."""

    lane = Lane.HOST
    pressure = NO_PRESSURE

    def libraries(self) -> Pairs:
        import numpy

        return (("numpy", str(numpy.__version__)),)

    def execute(
        self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int = 0
    ) -> Samples:
        raise UnsupportedError(
            f"{kernel.name} is GPU code, and on the host lane programs run",
            remedy="--device gpu, or --device model",
        )
