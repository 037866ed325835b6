"""Reading: rows back into runs and whole results, few queries for many of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, select
from sqlalchemy.exc import SQLAlchemyError

from reprodb import codec
from reprodb.domain import (
    Accuracy,
    Build,
    CodeOrigin,
    Environment,
    Fingerprint,
    Judgement,
    Kernel,
    Lane,
    Output,
    Pattern,
    Result,
    Run,
    Status,
)
from reprodb.errors import ReprodbError, StoreError
from reprodb.store import sequences
from reprodb.store import tables as t
from reprodb.store.intern import batches
from reprodb.store.write import Layout, RunRemark

T = TypeVar("T")

# Patterns of outputs with up to so many elements are fetched together, so many at a time: a diff that needs
# one of them needs many.
_SMALL_ELEMENTS = 16
_TOGETHER = 1000
# Results of runs that were recorded at the same time lie among each other, so many at most to one of a run's.
_SPREAD = 4


@dataclass(slots=True)
class Seen:
    """Interned values already decoded, by row number: they never change, and runs share nearly all."""

    environments: dict[int, Environment] = field(default_factory=dict)
    cases: dict[int, tuple[str, Kernel]] = field(default_factory=dict)
    builds: dict[int, tuple[str, Build]] = field(default_factory=dict)
    layouts: dict[int, Layout] = field(default_factory=dict)
    remarks: dict[int, dict[str, Any]] = field(default_factory=dict)
    # Small patterns that outputs read together have, by each of their digests; and those fetched so far.
    together: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """A result with what else its row says: `build` is the digest of its builds row."""

    run_id: int
    result: Result
    accepted: bool
    build: str | None


@contextmanager
def whole(what: str) -> Iterator[None]:
    """A row that says what no row of ours says is a damaged database, not a crash."""
    try:
        yield
    except (ReprodbError, SQLAlchemyError, OSError):  # a full disk is no damage
        raise
    except Exception as error:  # whatever such a row makes enums, converters and unpackers raise
        raise StoreError(f"{what} cannot be read: {error}"[:300], remedy="reprodb db check") from error


# --- Runs --------------------------------------------------------------------------------------


def read_runs(connection: Connection, seen: Seen, query: Select[Any] | None = None) -> list[tuple[Run, int]]:
    """Runs with their positions, newest first; `query` narrows `run_query()`."""
    with whole("a run"):
        rows = connection.execute(query if query is not None else run_query()).all()
    _fill(connection, seen.environments, t.environments, [r.environment_id for r in rows], _environment)
    _fill(connection, seen.remarks, t.remarks, [r.remark_id for r in rows], _remark)
    runs = []
    for row in rows:
        with whole(f"run {row.id}"):
            runs.append((_run(seen, row), row.position))
    return runs


def run_query() -> Select[Any]:
    return select(*t.runs.c).order_by(t.runs.c.position.desc(), t.runs.c.uid.desc())


def _run(seen: Seen, row: Row[Any]) -> Run:
    told = codec.decode(RunRemark, seen.remarks[row.remark_id])
    return Run(
        uid=row.uid,
        suite=row.suite,
        lane=Lane(row.lane),
        environment=seen.environments[row.environment_id],
        started_at=row.started_at,
        label=row.label,
        finished_at=row.finished_at,
        skipped=told.skipped,
        policy=told.policy,
        kind=row.kind,
        exit_code=row.exit_code,
        id=row.id,
        seed=told.seed,
        canaries=told.canaries,
        left_out=told.left_out,
        not_stressed=told.not_stressed,
        request=told.request,
    )


# --- Results -----------------------------------------------------------------------------------


def result_query() -> Select[Any]:
    """Every result with its scope; the caller narrows and orders it."""
    return select(
        *t.results.c,
        t.scopes.c.profile,
        t.scopes.c.arch,
        t.scopes.c.lane,
        t.scopes.c.condition_name.label("condition"),
    ).join(t.scopes, t.scopes.c.id == t.results.c.scope_id)


def read_results(connection: Connection, seen: Seen, query: Select[Any]) -> list[Stored]:
    """The results of the narrowed `result_query()`, in its order, patterns without their data."""
    with whole("a result"):
        rows = connection.execute(query).all()
    _fill(connection, seen.cases, t.cases, [r.case_id for r in rows], _case)
    _fill(connection, seen.builds, t.builds, [r.build_id for r in rows], _build)
    _fill(
        connection, seen.remarks, t.remarks, [r.remark_id for r in rows if r.remark_id is not None], _remark
    )
    outputs = _read_outputs(connection, seen, {r.id: r.repetitions for r in rows})
    results = []
    for row in rows:
        with whole(f"result {row.id}"):
            results.append(_stored(seen, row, outputs.get(row.id, ())))
    return results


def _stored(seen: Seen, row: Row[Any], outputs: tuple[Output, ...]) -> Stored:
    input_digest, kernel = seen.cases[row.case_id]
    digest, build = seen.builds[row.build_id] if row.build_id is not None else (None, None)
    remark = seen.remarks[row.remark_id] if row.remark_id is not None else _NO_REMARK
    result = Result(
        kernel=kernel,
        case=kernel.cases[0],
        profile=row.profile,
        arch=row.arch,
        lane=Lane(row.lane),
        status=Status(row.status),
        repetitions=row.repetitions,
        outputs=outputs,
        accuracy=Judgement(Accuracy(row.accuracy), row.max_rel_err, row.reference, remark["accuracy"]),
        build=build,
        origin=None if row.origin is None else CodeOrigin(row.origin),
        input_digest=input_digest,
        condition=row.condition,
        error=remark["error"],
        seconds=row.seconds,
        notes=tuple(remark["notes"]),
        batches=tuple(remark.get("batches", ())),
        id=row.id,
        fingerprint=codec.decode(Fingerprint, remark["fingerprint"]) if "fingerprint" in remark else None,
    )
    return Stored(row.run_id, result, row.accepted is not None, digest)


_NO_REMARK: dict[str, Any] = {"accuracy": "", "error": "", "notes": ()}


def _read_outputs(
    connection: Connection, seen: Seen, repetitions: dict[int, int]
) -> dict[int, tuple[Output, ...]]:
    """The outputs of each result, in order."""
    found: dict[int, list[Output]] = {}
    for numbers in _stretches(sorted(repetitions)):
        digests: dict[tuple[int, int], list[str]] = {}
        links = (
            select(t.output_patterns.c.result_id, t.output_patterns.c.place, t.patterns.c.digest)
            .join(t.patterns, t.patterns.c.id == t.output_patterns.c.pattern_id)
            .where(_of(t.output_patterns.c.result_id, numbers))
            .order_by(t.output_patterns.c.result_id, t.output_patterns.c.place, t.output_patterns.c.number)
        )
        for result_id, place, digest in connection.execute(links):
            digests.setdefault((result_id, place), []).append(digest)
        query = (
            select(t.outputs)
            .where(_of(t.outputs.c.result_id, numbers))
            .order_by(t.outputs.c.result_id, t.outputs.c.place)
        )
        with whole("an output"):
            rows = [row for row in connection.execute(query) if row.result_id in repetitions]
        _fill(connection, seen.layouts, t.layouts, [r.layout_id for r in rows], _layout)
        small: dict[str, None] = {}
        for row in rows:
            own = digests.get((row.result_id, row.place), [])
            output = _output(seen.layouts[row.layout_id], row, own, repetitions[row.result_id])
            found.setdefault(row.result_id, []).append(output)
            if output.elements <= _SMALL_ELEMENTS:
                small.update(dict.fromkeys(own))
        for group in batches(list(small), _TOGETHER):
            seen.together.update(dict.fromkeys(group, tuple(group)))
    return {number: tuple(outputs) for number, outputs in found.items()}


def _dense(numbers: Sequence[int]) -> bool:
    return numbers[-1] - numbers[0] < _SPREAD * len(numbers)


def _stretches(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Sorted numbers in parts, one query each: those of a run lie together and are one part."""
    return iter((numbers,)) if numbers and _dense(numbers) else batches(numbers)


def _of(column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
    """The rows of these sorted numbers, and of others between them where they lie close together.

    A list of a thousand numbers makes PostgreSQL read the whole table: a range is a stretch of its index.
    """
    return column.between(numbers[0], numbers[-1]) if _dense(numbers) else column.in_(numbers)


def _output(layout: Layout, row: Row[Any], digests: Sequence[str], repetitions: int) -> Output:
    with whole(f"result {row.result_id}, output {layout.name}"):
        sequence = sequences.unpack(row.sequence, repetitions)
        derived = sequences.first_and_count(sequence, len(digests))
    return Output(
        name=layout.name,
        role=layout.role,
        dtype=layout.dtype,
        shape=layout.shape,
        determinism=layout.determinism,
        patterns=tuple(
            Pattern(digest, count, first) for digest, (first, count) in zip(digests, derived, strict=True)
        ),
        sequence=sequence,
        run_hash=row.run_hash,
        fields=layout.fields,
        first_bits=row.first_bits,
    )


# --- Interned values ---------------------------------------------------------------------------


def _fill(
    connection: Connection, known: dict[int, T], table: Table, numbers: Iterable[int | None], decode: Any
) -> None:
    """Decodes the rows that are not known yet, in as few queries as their number allows."""
    missing = sorted({number for number in numbers if number is not None and number not in known})
    for batch in batches(missing):
        query = select(table).where(table.c.id.in_(batch))
        for row in connection.execute(query):
            with whole(f"{table.name} row {row.id}"):
                known[row.id] = decode(row)


def _environment(row: Row[Any]) -> Environment:
    return codec.loads(Environment, row.record)


def _case(row: Row[Any]) -> tuple[str, Kernel]:
    return row.input_digest, codec.loads(Kernel, row.record)


def _build(row: Row[Any]) -> tuple[str, Build]:
    return row.digest, codec.loads(Build, row.record)


def _layout(row: Row[Any]) -> Layout:
    return codec.loads(Layout, row.record)


def _remark(row: Row[Any]) -> dict[str, Any]:
    remark: dict[str, Any] = json.loads(row.record)
    return remark
