"""Carry out the atlas: build its sources under every toolkit, run each function, give a result of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

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
from reprodb.parts import ptx_texts

if TYPE_CHECKING:
    from reprodb.artifacts import ArtifactStore
    from reprodb.executors.pool import Pool

_ERROR_CHARACTERS = 4_000  # kept of a compiler's log in a result's error
_FUNCTIONS_AT_ONCE = 8  # executed together: more wait in memory with their outputs

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

    def requests(self, source: str) -> tuple[BuildRequest, ...]:
        """The compilations of a source, one a column, in their order."""
        return tuple(request(source, c.profile, c.toolchain, self.arch) for c in self.columns)

    @property
    def sources(self) -> tuple[str, ...]:
        return sources(self.rows)

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
    """Results with the artifacts of their functions: all columns of some functions at a time.

    What could not be built, or is refused by the model, is a result that says so. With `no_compile` an
    artifact that is not in the store raises ToolchainError.
    """
    for source in survey.sources:
        requests = survey.requests(source)
        column_of = {id(r): c for r, c in zip(requests, survey.columns, strict=True)}
        units = {
            column_of[id(r)]: _Unit.of(artifact)
            for r, artifact in build_each(requests, store, jobs, no_compile=no_compile)
        }
        rows = [row for row in survey.rows if row.source == source]
        for start in range(0, len(rows), _FUNCTIONS_AT_ONCE):
            cells = [
                _Cell(survey, column, row, units[column])
                for row in rows[start : start + _FUNCTIONS_AT_ONCE]
                for column in survey.columns
            ]
            yield _execute(cells, pool, lane)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What a source became under one column, and its functions on their own."""

    artifact: Artifact
    texts: Mapping[str, str]  # the PTX of each function

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        built = artifact.build.status is Status.OK and artifact.ptx is not None
        return cls(replace(artifact, sass=None), ptx_texts(artifact.ptx or "") if built else {})


@dataclass(frozen=True, slots=True)
class _Cell:
    """One function in one column."""

    survey: Survey
    column: Column
    row: Function
    unit: _Unit

    def part(self) -> Artifact | None:
        """The function's own artifact; None where it is not in the unit, or that was not built."""
        if self.row.entry not in self.unit.texts:
            return None
        return function_artifact(self.unit.artifact, self.row, self.unit.texts)

    def result(self, outcome: Outcome, part: Artifact | None, lane: Lane) -> Result:
        kernel = kernel_of(self.row)
        build = (part or self.unit.artifact).build
        return Result(
            kernel=kernel,
            case=kernel.cases[0],
            profile=self.column.profile.name,
            arch=self.survey.arch,
            lane=lane,
            status=outcome.status,
            repetitions=self.survey.repetitions,
            outputs=outcome.outputs,
            accuracy=outcome.accuracy,
            build=replace(build, profile=self.column.profile),
            origin=outcome.origin,
            input_digest=outcome.input_digest,
            error=outcome.error,
            seconds=outcome.seconds,
            notes=outcome.notes,
        )


def _execute(cells: Sequence[_Cell], pool: Pool, lane: Lane) -> tuple[Made, ...]:
    """Each cell's result. Cells of equal key are executed once."""
    done: list[Made] = []
    tasks: dict[str, Task] = {}
    plan: list[tuple[_Cell, Artifact, str]] = []
    for cell in cells:
        part = cell.part()
        if part is None:
            log = cell.unit.artifact.build.log[:_ERROR_CHARACTERS]
            done.append((cell.result(Outcome(Status.BUILD_FAILED, error=log), None, lane), None))
            continue
        key = _executed_key(lane, part)
        plan.append((cell, part, key))
        if key not in tasks:
            tasks[key] = Task(part, kernel_of(cell.row), cell.survey.repetitions)
    outcomes = dict(zip(tasks, pool.run(tasks.values()), strict=True))
    done += [(cell.result(outcomes[key], part, lane), part) for cell, part, key in plan]
    return tuple(done)


def _executed_key(lane: Lane, part: Artifact) -> str:
    """What decides an execution: on the model the code alone, on a GPU every artifact is run."""
    code = part.build.code
    if lane is Lane.MEASURED or code is None:
        return part.build.key
    options = tuple(option for option in part.build.options if not option.startswith("-arch"))
    return content_key("reprodb.atlas.executed/1", code.ptx or "", repr(code.counts[0].sass), *options)


def function_artifact(artifact: Artifact, row: Function, texts: Mapping[str, str]) -> Artifact:
    """What a unit's artifact is for one function: its PTX, its code and counts; the cubin stays whole."""
    code = artifact.build.code
    counts = next((c for c in code.counts if c.function == row.entry), None) if code else None
    counts = counts or FunctionCounts(row.entry)
    own = Code(counts.ptx_digest, counts.sass_digest, None, (counts,))
    key = content_key("reprodb.atlas.function/1", artifact.build.key, row.entry)
    build = replace(artifact.build, key=key, code=own)
    return Artifact(build, texts[row.entry], artifact.cubin, None, artifact.cached)
