"""What travels between the pool and its workers, and how one task is done."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from reprodb.domain import (
    Accuracy,
    Artifact,
    Case,
    CodeOrigin,
    Fingerprint,
    Judgement,
    Kernel,
    Output,
    Pairs,
    Samples,
    SourceFile,
    Status,
)
from reprodb.errors import ExecutionError, ReprodbError, UnsupportedError
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import DeviceError, Executor, output_of
from reprodb.stress import NO_PRESSURE, PLAIN, pressure_of, stressed

UNJUDGED = Judgement(Accuracy.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a program needs to run: its files, the source first, and the folder of its build."""

    files: tuple[SourceFile, ...]
    place: str


UNPREPARED = Prepared((), "")  # of kernels that are no programs


@dataclass(frozen=True, slots=True)
class Task:
    """One result to make. `kernel` has only the case at hand; named patterns travel, arrays do not."""

    artifact: Artifact
    kernel: Kernel
    repetitions: int
    seed: int = 0
    probing: bool = False  # ask for the order fingerprint alone
    every_pair: bool = False  # also of a kernel that guarantees no order
    prepared: Prepared = UNPREPARED
    condition: str = PLAIN

    @property
    def case(self) -> Case:
        return self.kernel.cases[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended. `sticky`: the process that made it is of no more use."""

    status: Status
    outputs: tuple[Output, ...] = ()
    accuracy: Judgement = UNJUDGED
    origin: CodeOrigin | None = None
    input_digest: str = ""
    error: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    sticky: bool = False
    batches: tuple[int, ...] = ()  # as Samples has them
    fingerprint: Fingerprint | None = None
    libraries: Pairs = ()  # as Samples has them


def perform(executor: Executor, task: Task, arrays: Arrays) -> Outcome:
    """Execute, judge and summarise one task. Never raises: what went wrong becomes the outcome."""
    try:
        return _perform(executor, task, arrays)
    except UnsupportedError as error:
        return Outcome(Status.UNSUPPORTED, error=str(error))
    except DeviceError as error:
        return Outcome(Status.LAUNCH_FAILED, error=str(error), sticky=error.sticky)
    except ReprodbError as error:
        return Outcome(Status.LAUNCH_FAILED, error=str(error))
    except MemoryError as error:
        return Outcome(Status.LAUNCH_FAILED, error=f"out of memory: {error}", sticky=True)
    except Exception as error:
        detail = "".join(traceback.format_exception(error)[-8:])
        problem = f"the executor failed with {type(error).__name__}: {error}"
        return Outcome(Status.CRASHED, error=f"{problem}\n{detail}", sticky=True)


def _perform(executor: Executor, task: Task, arrays: Arrays) -> Outcome:
    from reprodb.executors.programs import executor_of
    from reprodb.inputs import digest

    executor = executor_of(executor, task)
    if task.probing:
        from reprodb.executors.probing import probe

        return Outcome(Status.OK, fingerprint=probe(executor, task))
    kernel, case = task.kernel, task.case
    executor.pressure = pressure_of(task.condition)
    try:
        samples = executor.execute(
            task.artifact, kernel, stressed(case, task.condition), task.repetitions, seed=task.seed
        )
    finally:
        executor.pressure = NO_PRESSURE
    _check_complete(task, samples)
    return Outcome(
        status=Status.OK,
        outputs=tuple(output_of(kernel, output) for output in samples.outputs),
        accuracy=_judged(task, samples, arrays),
        origin=samples.origin,
        input_digest=digest(case.inputs),
        seconds=samples.seconds,
        notes=(*samples.notes, *_friendly(task, arrays)),
        batches=samples.batches,
        libraries=samples.libraries,
    )


def _judged(task: Task, samples: Samples, arrays: Arrays) -> Judgement:
    """The accuracy column. What goes wrong here leaves it unknown and keeps the bits."""
    from reprodb.accuracy import judge

    try:
        return judge(task.kernel, task.case, arrays.of(task.case.inputs), samples.outputs)
    except (ReprodbError, ArithmeticError, MemoryError, ValueError) as error:
        return Judgement(Accuracy.UNKNOWN, note=f"could not be judged: {type(error).__name__}: {error}")


def _friendly(task: Task, arrays: Arrays) -> tuple[str, ...]:
    """The note of an input that hides every order of its sums; none where that cannot be told."""
    from reprodb.friendly import judged, remark

    if not judged(task.kernel, task.case):
        return ()
    try:
        return tuple(filter(None, (remark(task.kernel, task.case, arrays.of(task.case.inputs)),)))
    except (ReprodbError, ArithmeticError, MemoryError, ValueError):
        return ()


def _check_complete(task: Task, samples: Samples) -> None:
    """Refuse samples that lack a recorded buffer or a repetition: a gap must not look like a result."""
    lengths = {output.buffer.name: len(output.sequence) for output in samples.outputs}
    for buffer in task.case.recorded:
        got = lengths.get(buffer.name, 0)
        if got != task.repetitions:
            raise ExecutionError(
                f"the executor returned {got} of {task.repetitions} repetitions of buffer {buffer.name!r}"
            )
