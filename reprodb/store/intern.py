"""Interned rows: what is stored once by its digest, looked up or added inside the caller's transaction."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, insert, select

from reprodb.domain import Scope
from reprodb.store.tables import BlobRow, Interned, ScopeRow

T = TypeVar("T")
_BATCH = 1000
_LARGEST_CACHE = 100_000


@dataclass(slots=True)
class Known:
    """Row numbers that this connection has seen; forgotten whenever a transaction fails."""

    rows: dict[type, dict[str, int]] = field(default_factory=dict)
    scopes: dict[Scope, int] = field(default_factory=dict)

    def of(self, table: type) -> dict[str, int]:
        known = self.rows.setdefault(table, {})
        if len(known) > _LARGEST_CACHE:
            known.clear()
        return known

    def forget(self) -> None:
        self.rows.clear()
        self.scopes.clear()


def batches(items: Sequence[T], size: int = _BATCH) -> Iterator[Sequence[T]]:
    """The items in runs of `size`: databases bound the number of bound parameters."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def intern(
    connection: Connection,
    known: Known,
    table: type[Interned],
    digests: Collection[str],
    columns: Callable[[str], dict[str, Any]],
) -> dict[str, int]:
    """The row number of each digest; rows that are not there yet are made of `columns(digest)`."""
    cache = known.of(table)
    unknown = sorted(digest for digest in digests if digest not in cache)
    for batch in batches(unknown):
        found = connection.execute(select(table.digest, table.id).where(table.digest.in_(batch)))
        cache.update((digest, number) for digest, number in found)
    missing = [digest for digest in unknown if digest not in cache]
    for batch in batches(missing, 256):
        rows = [{"digest": digest, **columns(digest)} for digest in batch]
        made = connection.execute(insert(table).returning(table.digest, table.id), rows)
        cache.update((digest, number) for digest, number in made)
    return {digest: cache[digest] for digest in digests}


def intern_blobs(
    connection: Connection, known: Known, blobs: dict[str, bytes], *, level: int = 6
) -> dict[str, int]:
    """Bytes by their SHA-256; only what is new is compressed."""

    def columns(digest: str) -> dict[str, Any]:
        data = blobs[digest]
        return {"size": len(data), "data": zlib.compress(data, level)}

    return intern(connection, known, BlobRow, blobs.keys(), columns)


def intern_scopes(connection: Connection, known: Known, scopes: Collection[Scope]) -> dict[Scope, int]:
    """The row number of each scope."""
    find_scopes(connection, known, scopes)
    missing = list(dict.fromkeys(scope for scope in scopes if scope not in known.scopes))
    if missing:
        connection.execute(insert(ScopeRow), [_scope_columns(scope) for scope in missing])
        find_scopes(connection, known, missing)
    return {scope: known.scopes[scope] for scope in scopes}


def find_scopes(connection: Connection, known: Known, scopes: Collection[Scope]) -> dict[Scope, int]:
    """The row number of each scope that the database has."""
    kernels = sorted({scope.kernel for scope in scopes if scope not in known.scopes})
    if len(known.scopes) > _LARGEST_CACHE:
        known.scopes.clear()
    for batch in batches(kernels):
        for row in connection.execute(select(*SCOPE_COLUMNS).where(ScopeRow.kernel.in_(batch))):
            known.scopes[scope_from(row[1:])] = row[0]
    return {scope: known.scopes[scope] for scope in scopes if scope in known.scopes}


SCOPE_COLUMNS = (
    ScopeRow.id,
    ScopeRow.suite,
    ScopeRow.kernel,
    ScopeRow.case_name,
    ScopeRow.profile,
    ScopeRow.arch,
    ScopeRow.lane,
    ScopeRow.gpu,
    ScopeRow.condition_name,
)


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
