"""Carry out the atlas: build its sources under every toolkit, run each function, give a result of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reprodb.atlas.functions import Function
from reprodb.atlas.source import kernel_of, request, sources
from reprodb.build import build_each
from reprodb.digest import content_key
from reprodb.domain import (
    Artifact,
    BuildRequest,
    Code,
    FunctionCounts,
    Lane,
    Profile,
    Result,
    Status,
    Toolchain,
)
from reprodb.executors.task import Outcome, Task
from reprodb.parts import PtxPart, ptx_parts

if TYPE_CHECKING:
    from reprodb.artifacts import ArtifactStore
    from reprodb.executors.pool import Pool

_ERROR_CHARACTERS = 4_000  # kept of a compiler's log in a result's error
_ARTIFACTS_AT_ONCE = 8  # whose functions are executed together, so that no worker waits for the last of one

Made = tuple[Result, Artifact | None]


@dataclass(frozen=True, slots=True)
class Column:
    """One release under one set of flags. `flags` is the name of the profile that they are taken from."""

    flags: str
    profile: Profile  # named FLAGS-VERSION, for this version alone
    toolchain: Toolchain

    @property
    def version(self) -> str:
        return self.toolchain.version


def column(flags: Profile, toolchain: Toolchain) -> Column:
    """The flags of a profile under one exact toolchain."""
    version = toolchain.version
    name = f"{flags.name}-{version}"
    profile = replace(flags, name=name, compiler=toolchain.compiler, toolkit=f"=={version}")
    return Column(flags.name, profile, toolchain)


@dataclass(frozen=True, slots=True)
class Survey:
    """What is to be done: functions, columns, and where. Executions of equal code are shared on the model."""

    rows: tuple[Function, ...]
    columns: tuple[Column, ...]
    arch: str
    repetitions: int = 2

    def requests(self) -> tuple[tuple[Column, BuildRequest], ...]:
        return tuple(
            (column, request(source, column.profile, column.toolchain, self.arch))
            for column in self.columns
            for source in sources(self.rows)
        )

    @property
    def size(self) -> int:
        """How many results there will be."""
        return len(self.rows) * len(self.columns)


def carry_out(
    survey: Survey,
    store: ArtifactStore,
    pool: Pool,
    lane: Lane,
    *,
    jobs: int | None = None,
    no_compile: bool = False,
) -> Iterator[tuple[Made, ...]]:
    """Results with the artifacts of their functions, some at a time.

    What could not be built, or is refused by the model, is a result that says so. With `no_compile` a missing
    artifact raises ToolchainError before any result.
    """
    wanted = survey.requests()
    column_of = {id(request): column for column, request in wanted}
    known: dict[str, Outcome] = {}
    waiting: list[tuple[Column, Artifact, str]] = []
    for request_, artifact in build_each([r for _, r in wanted], store, jobs, no_compile=no_compile):
        waiting.append((column_of[id(request_)], artifact, request_.kernel))
        if len(waiting) == _ARTIFACTS_AT_ONCE:
            yield _execute(survey, waiting, pool, lane, known)
            waiting = []
    if waiting:
        yield _execute(survey, waiting, pool, lane, known)


def _execute(
    survey: Survey,
    built: Sequence[tuple[Column, Artifact, str]],
    pool: Pool,
    lane: Lane,
    known: dict[str, Outcome],
) -> tuple[Made, ...]:
    """The functions of some artifacts. `known` are the model's outcomes by code, and is added to."""
    plan: list[tuple[Column, Function, Artifact, str]] = []
    failed: list[Made] = []
    for column, artifact, source in built:
        rows = [row for row in survey.rows if row.source == source]
        if artifact.build.status is not Status.OK or artifact.ptx is None:
            error = Outcome(Status.BUILD_FAILED, error=artifact.build.log[:_ERROR_CHARACTERS])
            failed += [(_result(survey, column, row, lane, error, artifact), None) for row in rows]
            continue
        parts = ptx_parts(artifact.ptx)
        for row in rows:
            part = function_artifact(artifact, row, parts)
            plan.append((column, row, part, _executed_key(lane, column, part)))
    tasks: dict[str, Task] = {}
    for _, row, part, key in plan:
        if key not in known:
            tasks.setdefault(key, Task(replace(part, sass=None), kernel_of(row), survey.repetitions))
    fresh = dict(zip(tasks, pool.run(tasks.values()), strict=True))
    if lane is Lane.MODELLED:
        known |= fresh
    outcomes = {**known, **fresh}
    done = [(_result(survey, c, row, lane, outcomes[key], part), part) for c, row, part, key in plan]
    return (*failed, *done)


def _executed_key(lane: Lane, column: Column, part: Artifact) -> str:
    """What decides an execution: on the model the code alone, on a GPU every artifact is run."""
    code = part.build.code
    if lane is Lane.MEASURED or code is None:
        return part.build.key
    options = tuple(option for option in part.build.options if not option.startswith("-arch"))
    return content_key("reprodb.atlas.executed/1", code.ptx or "", repr(code.counts[0].sass), *options)


def function_artifact(artifact: Artifact, row: Function, parts: Mapping[str, PtxPart]) -> Artifact:
    """What a unit's artifact is for one function: its PTX, its code and counts; the cubin stays whole."""
    code = artifact.build.code
    counts = next((c for c in code.counts if c.function == row.entry), None) if code else None
    counts = counts or FunctionCounts(row.entry)
    own = Code(counts.ptx_digest, counts.sass_digest, None, (counts,))
    key = content_key("reprodb.atlas.function/1", artifact.build.key, row.entry)
    build = replace(artifact.build, key=key, code=own)
    return Artifact(build, parts[row.entry].text, artifact.cubin, None, artifact.cached)


def _result(
    survey: Survey, column: Column, row: Function, lane: Lane, outcome: Outcome, artifact: Artifact
) -> Result:
    kernel = kernel_of(row)
    return Result(
        kernel=kernel,
        case=kernel.cases[0],
        profile=column.profile.name,
        arch=survey.arch,
        lane=lane,
        status=outcome.status,
        repetitions=survey.repetitions,
        outputs=outcome.outputs,
        accuracy=outcome.accuracy,
        build=replace(artifact.build, profile=column.profile),
        origin=outcome.origin,
        input_digest=outcome.input_digest,
        error=outcome.error,
        seconds=outcome.seconds,
        notes=outcome.notes,
    )
