"""Retention: old runs go whole, with what they alone held; blessed runs and references never."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, select

from reprodb.store import tables as t
from reprodb.store.intern import batches
from reprodb.store.patterns import split_digests
from reprodb.store.references import last_accepted
from reprodb.store.values import Pruned


def prune(
    connection: Connection,
    keep_runs: int,
    older_than: datetime | None,
    *,
    dry_run: bool,
    blessed: Iterable[str] = (),
) -> Pruned:
    """See Store.prune."""
    old = _old_runs(connection, keep_runs, older_than)
    held = (_held_runs(connection) | _named(connection, blessed)) & set(old)
    dropped = [number for number in old if number not in held]
    results = sum(
        connection.scalar(select(func.count()).where(t.results.c.run_id.in_(batch))) or 0
        for batch in batches(dropped)
    )
    patterns = 0
    if dry_run:
        patterns = _only_in(connection, dropped)
    elif dropped:
        before = connection.scalar(select(func.count()).select_from(t.patterns)) or 0
        with _indexes(connection):
            for batch in batches(dropped):
                _drop(connection, list(batch))
            _drop_unused(connection)
        patterns = before - (connection.scalar(select(func.count()).select_from(t.patterns)) or 0)
    return Pruned(tuple(sorted(dropped)), tuple(sorted(held)), results, patterns)


def _old_runs(connection: Connection, keep_runs: int, older_than: datetime | None) -> list[int]:
    """Runs behind the newest `keep_runs` of their suite that started before `older_than`."""
    rank = func.row_number().over(
        partition_by=t.runs.c.suite, order_by=(t.runs.c.position.desc(), t.runs.c.uid.desc())
    )
    ranked = select(t.runs.c.id, t.runs.c.started_at, rank.label("rank")).subquery()
    query = select(ranked.c.id).where(ranked.c.rank > keep_runs)
    if older_than is not None:
        query = query.where(ranked.c.started_at < older_than)
    return sorted(connection.scalars(query))


def _held_runs(connection: Connection) -> set[int]:
    """Runs with a result that was ever blessed, or is the last accepted one of its scope."""
    references = last_accepted(None).subquery()
    blessed = select(t.results.c.run_id).join(t.blessings, t.blessings.c.result_id == t.results.c.id)
    accepted = select(t.results.c.run_id).join(references, references.c[1] == t.results.c.id)
    return {*connection.scalars(blessed), *connection.scalars(accepted)}


def _named(connection: Connection, uids: Iterable[str]) -> set[int]:
    """The runs of these identities that the database has."""
    queries = (select(t.runs.c.id).where(t.runs.c.uid.in_(batch)) for batch in batches(sorted(set(uids))))
    return {number for query in queries for number in connection.scalars(query)}


def _only_in(connection: Connection, runs: list[int]) -> int:
    """How many patterns no other run has."""
    gone = set(runs)
    users: dict[int, bool] = {}
    query = select(t.output_patterns.c.pattern_id, t.results.c.run_id).join(
        t.results, t.results.c.id == t.output_patterns.c.result_id
    )
    for pattern, run in connection.execute(query.distinct()):
        users[pattern] = users.get(pattern, True) and run in gone
    return sum(users.values())


def _drop(connection: Connection, runs: list[int]) -> None:
    results = select(t.results.c.id).where(t.results.c.run_id.in_(runs))
    connection.execute(delete(t.output_patterns).where(t.output_patterns.c.result_id.in_(results)))
    connection.execute(delete(t.outputs).where(t.outputs.c.result_id.in_(results)))
    connection.execute(delete(t.results).where(t.results.c.run_id.in_(runs)))
    connection.execute(delete(t.runs).where(t.runs.c.id.in_(runs)))


def _drop_unused(connection: Connection) -> None:
    """Interned rows that nothing refers to any more."""
    users: tuple[tuple[Any, tuple[Any, ...]], ...] = (
        (t.cases, (t.results.c.case_id,)),
        (t.builds, (t.results.c.build_id,)),
        (t.remarks, (t.results.c.remark_id, t.runs.c.remark_id)),
        (t.environments, (t.runs.c.environment_id,)),
        (t.layouts, (t.outputs.c.layout_id,)),
        (t.patterns, (t.output_patterns.c.pattern_id,)),
    )
    for table, columns in users:
        statement = delete(table)
        for column in columns:
            statement = statement.where(table.c.id.not_in(select(column).where(column.is_not(None))))
        connection.execute(statement)
    pages = connection.scalars(
        select(t.patterns.c.pages).where(t.patterns.c.pages.is_not(None), t.patterns.c.kept)
    )
    used = {digest for stored in pages if stored is not None for digest in split_digests(stored)}
    texts = select(t.builds.c.ptx_id).where(t.builds.c.ptx_id.is_not(None))
    both = texts.union(select(t.builds.c.sass_id).where(t.builds.c.sass_id.is_not(None)))
    blobs = connection.execute(select(t.blobs.c.id, t.blobs.c.digest).where(t.blobs.c.id.not_in(both))).all()
    for batch in batches([number for number, digest in blobs if digest not in used]):
        connection.execute(delete(t.blobs).where(t.blobs.c.id.in_(batch)))


_INDEXES = (
    ("results", "case_id"),
    ("results", "build_id"),
    ("results", "remark_id"),
    ("outputs", "layout_id"),
    ("output_patterns", "pattern_id"),
)


@contextmanager
def _indexes(connection: Connection) -> Iterator[None]:
    """Indexes for as long as rows are dropped: each one that goes is looked for among those that refer to it.

    Recording never needs them, so a result does not pay for them.
    """
    for table, column in _INDEXES:
        connection.exec_driver_sql(f"CREATE INDEX prune_{table}_{column} ON {table} ({column})")
    yield  # where this fails, the transaction takes the indexes with it
    for table, column in _INDEXES:
        connection.exec_driver_sql(f"DROP INDEX prune_{table}_{column}")
