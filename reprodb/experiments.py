"""Carry out experiments: a result for each given setting, built and executed once for each distinct one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from reprodb import codec
from reprodb.build import artifact_key, build_each
from reprodb.deltas import output_delta, representative
from reprodb.digest import content_key, sha256
from reprodb.domain import (
    Artifact,
    BuildRequest,
    Case,
    Kernel,
    Lane,
    Output,
    Profile,
    Result,
    SourceFile,
    Status,
    Toolchain,
)
from reprodb.errors import ReprodbError
from reprodb.executors.task import Outcome, Task
from reprodb.profiles import check_arch

if TYPE_CHECKING:
    from reprodb.artifacts import ArtifactStore
    from reprodb.executors.base import Platform
    from reprodb.executors.pool import Pool

_ERROR_CHARACTERS = 4_000  # kept of a compiler's log in a result's error
# Endings that say something of the code. Others (a crash, a time limit) may be the machine's and are retried.
_LASTING = (Status.OK, Status.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Setting:
    """All that decides bits, of one case: the sources in full, and a toolchain that is installed."""

    kernel: Kernel  # with the one case at hand
    files: tuple[SourceFile, ...]  # the kernel's source first
    profile: Profile
    toolchain: Toolchain
    arch: str

    @property
    def case(self) -> Case:
        return self.kernel.cases[0]

    def request(self) -> BuildRequest:
        return BuildRequest(
            kernel=self.kernel.name,
            entries=tuple(dict.fromkeys(stage.entry for stage in self.kernel.stages)),
            source=self.files[0].path,
            files=self.files,
            defines=self.kernel.defines,
            profile=self.profile,
            toolchain=self.toolchain,
            arch=check_arch(self.arch),
        )


@dataclass(frozen=True, slots=True)
class Experiment:
    """A setting's result. `same_as` names the experiment that was executed where this one was not.

    That is one of the same code, launch and input; 0 stands for an earlier invocation (see `Notebook`).
    """

    number: int
    result: Result
    compiled: bool  # by a compiler now; else the artifact came from the store
    same_as: int | None = None

    @property
    def executed(self) -> bool:
        return self.same_as is None and self.result.status is not Status.BUILD_FAILED


class Notebook(Protocol):
    """Keeps outcomes over invocations, without the data of patterns."""

    def get(self, key: str) -> Outcome | None: ...

    def put(self, key: str, outcome: Outcome) -> None: ...


class Workshop:
    """Builds settings, from the store where it has them; counts what it compiled."""

    def __init__(self, store: ArtifactStore, jobs: int | None = None) -> None:
        self.compiled = 0
        self._store = store
        self._jobs = jobs

    def build(self, settings: Sequence[Setting]) -> list[Artifact | str]:
        """Each setting's artifact, failed builds too, or why nothing could be compiled."""
        made: list[Artifact | str] = []
        wanted: dict[int, tuple[int, BuildRequest]] = {}
        for place, setting in enumerate(settings):
            try:
                request = setting.request()
                artifact_key(request)
            except ReprodbError as error:
                made.append(str(error))
                continue
            made.append("")
            wanted[id(request)] = (place, request)
        compiled = set()
        for request, artifact in build_each([r for _, r in wanted.values()], self._store, self._jobs):
            made[wanted[id(request)][0]] = artifact
            if not artifact.cached:
                compiled.add(artifact.build.key)
        self.compiled += len(compiled)
        return made


class Laboratory:
    """Carries out experiments on one opened device, and remembers what was executed.

    Every experiment has the same repetitions and seed, so that equal code means equal bits on the model.
    Accuracy is not judged.
    """

    def __init__(
        self,
        workshop: Workshop,
        pool: Pool,
        platform: Platform,
        *,
        repetitions: int,
        seed: int = 0,
        notebook: Notebook | None = None,
    ) -> None:
        self.lane: Lane = platform.lane
        self.workshop = workshop
        self.executed = 0  # how many executions it took
        self._pool = pool
        self._platform = platform
        self._repetitions = repetitions
        self._seed = seed
        self._notebook = notebook
        self._number = 0
        self._known: dict[str, tuple[int, Outcome]] = {}

    def carry_out(self, settings: Sequence[Setting], *, afresh: bool = False) -> tuple[Experiment, ...]:
        """One experiment a setting, in their order. `afresh` executes whatever was executed before.

        A failed build or execution is a result with status and error, never an exception.
        """
        made = self.workshop.build(settings)
        numbers = [self._number + place for place in range(1, len(settings) + 1)]
        self._number += len(settings)
        keys = [
            self._key(setting, artifact) if isinstance(artifact, Artifact) else ""
            for setting, artifact in zip(settings, made, strict=True)
        ]
        fresh: dict[str, int] = {}  # what is to be executed: key → its place here
        for place, (key, artifact) in enumerate(zip(keys, made, strict=True)):
            if not isinstance(artifact, Artifact) or artifact.build.status is not Status.OK:
                continue
            if afresh or (key not in self._known and not self._recall(key)):
                fresh.setdefault(key, place)
        self._execute(settings, made, fresh, numbers)
        experiments = []
        for place, (setting, artifact) in enumerate(zip(settings, made, strict=True)):
            experiments.append(self._experiment(numbers[place], setting, artifact, keys[place]))
        for key in fresh:  # what is remembered is not kept in memory whole
            number, outcome = self._known[key]
            self._known[key] = (number, without_data(outcome))
        return tuple(experiments)

    # --- inside

    def _key(self, setting: Setting, artifact: Artifact) -> str:
        """What decides an execution: code, launches, case, device and libraries."""
        code = artifact.build.code
        parts: list[str] = ["lane", self.lane.value]
        if self.lane is Lane.MODELLED:
            # The model fuses what ptxas fuses: it looks at the counts of the SASS, and at -fmad.
            fused = "-fmad=false" not in artifact.build.options
            parts += ["ptx", sha256((artifact.ptx or "").encode()), codec.dumps(code), str(fused)]
        else:
            parts += ["cubin", sha256(artifact.cubin or b""), codec.dumps(self._platform.device)]
            parts += ["driver", self._platform.driver or ""]
        parts += [f"{name} {version}" for name, version in self._platform.libraries]
        kernel = setting.kernel
        parts += ["launch", *(codec.dumps(stage) for stage in kernel.stages), codec.dumps(setting.case)]
        parts += [kernel.determinism, kernel.accumulator, str(self._repetitions), str(self._seed)]
        return content_key("reprodb.experiment/1", *parts)

    def _recall(self, key: str) -> bool:
        outcome = self._notebook.get(key) if self._notebook else None
        if outcome is not None:
            self._known[key] = (0, outcome)
        return outcome is not None

    def _execute(
        self,
        settings: Sequence[Setting],
        made: Sequence[Artifact | str],
        fresh: dict[str, int],
        numbers: Sequence[int],
    ) -> None:
        tasks = []
        for place in fresh.values():
            artifact = made[place]
            if isinstance(artifact, Artifact):
                kernel = _unjudged(settings[place].kernel)
                tasks.append(Task(artifact, kernel, self._repetitions, self._seed))
        self.executed += len(tasks)
        for (key, place), outcome in zip(fresh.items(), self._pool.run(tasks), strict=True):
            self._known[key] = (numbers[place], outcome)
            if self._notebook is not None and outcome.status in _LASTING:
                self._notebook.put(key, without_data(outcome))

    def _experiment(self, number: int, setting: Setting, artifact: Artifact | str, key: str) -> Experiment:
        if isinstance(artifact, str):
            return Experiment(number, self._result(setting, None, _failed(artifact)), False)
        compiled = not artifact.cached
        if artifact.build.status is not Status.OK:
            return Experiment(number, self._result(setting, artifact, _failed(artifact.build.log)), compiled)
        source, outcome = self._known[key]
        same_as = None if source == number else source
        return Experiment(number, self._result(setting, artifact, outcome), compiled, same_as)

    def _result(self, setting: Setting, artifact: Artifact | None, outcome: Outcome) -> Result:
        return Result(
            kernel=setting.kernel,
            case=setting.case,
            profile=setting.profile.name,
            arch=setting.arch,
            lane=self.lane,
            status=outcome.status,
            repetitions=self._repetitions,
            outputs=outcome.outputs,
            accuracy=outcome.accuracy,
            build=artifact.build if artifact else None,
            origin=outcome.origin,
            input_digest=outcome.input_digest,
            error=outcome.error,
            seconds=outcome.seconds,
            notes=outcome.notes,
        )


def _unjudged(kernel: Kernel) -> Kernel:
    """The kernel without its reference, which takes time: experiments are about bits."""
    return replace(kernel, cases=tuple(replace(c, reference=None, rel_tol=None) for c in kernel.cases))


def without_data(outcome: Outcome) -> Outcome:
    """The outcome with its patterns by digest alone."""
    outputs = tuple(
        replace(output, patterns=tuple(replace(p, data=None) for p in output.patterns))
        for output in outcome.outputs
    )
    return replace(outcome, outputs=outputs)


def bits_of(result: Result, outputs: Sequence[str]) -> str | None:
    """The identity of the bits of some outputs, None where there are none.

    An output of several patterns is `several`, whichever they are: what they are is chance.
    """
    if result.status is not Status.OK:
        return None
    by_name = {output.name: output for output in result.outputs}
    parts = []
    for name in outputs:
        output = by_name.get(name)
        if output is None:
            return None
        parts += [name, output.sha256 if output.distinct == 1 else "several"]
    return content_key("reprodb.bits/1", *parts)


def failure(result: Result) -> str:
    """Why a result has no bits, in a line."""
    line = next((line.strip() for line in result.error.splitlines() if line.strip()), "")
    word = "an output is missing" if result.status is Status.OK else result.status.value.replace("_", " ")
    return f"{word}: {line}" if line else word


def changes(before: Result, after: Result, outputs: Sequence[str]) -> str:
    """How the bits of some outputs differ: `73 of 1,024 partials, at most 2 ULP`; empty where they do not."""
    old = {output.name: output for output in before.outputs}
    pairs = [(old[o.name], o) for o in after.outputs if o.name in outputs and o.name in old]
    return ", ".join(phrase for phrase in (_change(a, b) for a, b in pairs) if phrase)


def _change(before: Output, after: Output) -> str:
    if before.distinct > 1 or after.distinct > 1:
        counts = f"{after.name} {before.distinct} → {after.distinct} patterns"
        return counts if before.distinct != after.distinct else ""
    if representative(before).sha256 == representative(after).sha256:
        return ""
    delta = output_delta(before, after, _no_data)
    far = f", at most {delta.max_ulp:,} ULP" if delta.max_ulp is not None else ""
    note = f" ({delta.note})" if delta.note else ""
    return f"{delta.changed:,} of {delta.of:,} {delta.name}{far}{note}"


def _no_data(sha256: str) -> bytes:
    raise LookupError(sha256)


def _failed(error: str) -> Outcome:
    return Outcome(Status.BUILD_FAILED, error=error[:_ERROR_CHARACTERS])
