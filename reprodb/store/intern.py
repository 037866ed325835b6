"""Interned rows: what is stored once by its digest, looked up or added inside the caller's transaction."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, insert, select

from reprodb.domain import Scope
from reprodb.store import tables as t

T = TypeVar("T")
_BATCH = 1000
_LARGEST_CACHE = 100_000
_MOST_TEXTS = 10_000


@dataclass(slots=True)
class Known:
    """Row numbers that this connection has seen; forgotten whenever a transaction fails."""

    rows: dict[Table, dict[str, int]] = field(default_factory=dict)
    scopes: dict[Scope, int] = field(default_factory=dict)
    kernels: set[str] = field(default_factory=set)  # those whose scopes are known
    # Canonical texts by the identity of what they tell, which is held so that nothing takes its place: the
    # rows of a night share their kernels and builds.
    texts: dict[tuple[int, ...], tuple[tuple[object, ...], str]] = field(default_factory=dict)

    def of(self, table: Table) -> dict[str, int]:
        known = self.rows.setdefault(table, {})
        if len(known) > _LARGEST_CACHE:
            known.clear()
        return known

    def text(self, write: Callable[[], str], *told: object) -> str:
        """What `write` makes of the frozen values `told`, made once for the same objects."""
        key = tuple(map(id, told))
        if key not in self.texts:
            if len(self.texts) > _MOST_TEXTS:
                self.texts.clear()
            self.texts[key] = (told, write())
        return self.texts[key][1]

    def forget(self) -> None:
        self.rows.clear()
        self.scopes.clear()
        self.kernels.clear()


def batches(items: Sequence[T], size: int = _BATCH) -> Iterator[Sequence[T]]:
    """The items in runs of `size`: databases bound the number of bound parameters."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


# Statements are built once: building one costs as much as executing it.
_TABLES: tuple[Table, ...] = (
    t.environments,
    t.cases,
    t.blobs,
    t.builds,
    t.layouts,
    t.remarks,
    t.patterns,
)
_FIND: dict[Table, Any] = {
    table: select(table.c.digest, table.c.id).where(table.c.digest.in_(bindparam("digests", expanding=True)))
    for table in _TABLES
}
_ADD: dict[Table, Any] = {table: insert(table).returning(table.c.digest, table.c.id) for table in _TABLES}


def intern(
    connection: Connection,
    known: Known,
    table: Table,
    digests: Collection[str],
    columns: Callable[[str], dict[str, Any]],
) -> dict[str, int]:
    """The row number of each digest; rows that are not there yet are made of `columns(digest)`."""
    numbers = known.of(table)
    unknown = sorted(digest for digest in digests if digest not in numbers)
    for batch in batches(unknown):
        found = connection.execute(_FIND[table], {"digests": batch})
        numbers.update((digest, number) for digest, number in found)
    missing = [digest for digest in unknown if digest not in numbers]
    for batch in batches(missing, 256):
        rows = [{"digest": digest, **columns(digest)} for digest in batch]
        made = connection.execute(_ADD[table], rows)
        numbers.update((digest, number) for digest, number in made)
    return {digest: numbers[digest] for digest in digests}


def intern_blobs(
    connection: Connection, known: Known, blobs: dict[str, bytes], *, level: int = 6
) -> dict[str, int]:
    """Bytes by their SHA-256; only what is new is compressed."""

    def columns(digest: str) -> dict[str, Any]:
        data = blobs[digest]
        return {"size": len(data), "data": zlib.compress(data, level)}

    return intern(connection, known, t.blobs, blobs.keys(), columns)


def intern_scopes(connection: Connection, known: Known, scopes: Collection[Scope]) -> dict[Scope, int]:
    """The row number of each scope."""
    find_scopes(connection, known, scopes)
    missing = dict.fromkeys(scope for scope in scopes if scope not in known.scopes)
    if missing:
        # Where another process was first, the table refuses; the transaction is tried again from the start.
        made = connection.execute(_ADDING_SCOPES, [_scope_columns(scope) for scope in missing])
        known.scopes.update((scope_from(row[1:]), row[0]) for row in made)
    return {scope: known.scopes[scope] for scope in scopes}


def find_scopes(connection: Connection, known: Known, scopes: Collection[Scope]) -> dict[Scope, int]:
    """The row number of each scope that the database has."""
    if len(known.scopes) > _LARGEST_CACHE:
        known.scopes.clear()
        known.kernels.clear()
    kernels = {scope.kernel for scope in scopes} - known.kernels
    for batch in batches(sorted(kernels)):
        for row in connection.execute(select(*SCOPE_COLUMNS).where(t.scopes.c.kernel.in_(batch))):
            known.scopes[scope_from(row[1:])] = row[0]
    known.kernels |= kernels
    return {scope: known.scopes[scope] for scope in scopes if scope in known.scopes}


SCOPE_COLUMNS = (
    t.scopes.c.id,
    t.scopes.c.suite,
    t.scopes.c.kernel,
    t.scopes.c.case_name,
    t.scopes.c.profile,
    t.scopes.c.arch,
    t.scopes.c.lane,
    t.scopes.c.gpu,
    t.scopes.c.condition_name,
)
_ADDING_SCOPES = insert(t.scopes).returning(*SCOPE_COLUMNS)


def scope_from(columns: Sequence[Any]) -> Scope:
    """The scope of the columns SCOPE_COLUMNS, their number left out."""
    from reprodb.domain import Lane

    suite, kernel, case, profile, arch, lane, gpu, condition = columns
    return Scope(suite, kernel, case, profile, arch, Lane(lane), gpu or None, condition)


def _scope_columns(scope: Scope) -> dict[str, Any]:
    return {
        "suite": scope.suite,
        "kernel": scope.kernel,
        "case_name": scope.case,
        "profile": scope.profile,
        "arch": scope.arch,
        "lane": str(scope.lane),
        "gpu": scope.gpu or "",
        "condition_name": scope.condition,
    }
