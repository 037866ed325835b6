"""What is wrong with a database: everything that can be recomputed is, and compared with what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from reprodb import codec, digest
from reprodb.domain import Accuracy, Build, CodeOrigin, Environment, Kernel, Status
from reprodb.errors import StoreError
from reprodb.store import sequences
from reprodb.store import tables as t
from reprodb.store.patterns import PAGE, inflate, join_pages, page_digests
from reprodb.store.read import Seen, read_runs, run_query
from reprodb.store.write import Layout, build_key, case_key, text_key

LARGEST_CACHE = 50_000  # entries
MOST = 100  # problems told; a file that is damaged all over needs no longer list


def check(connection: Connection, seen: Seen) -> tuple[str, ...]:
    """See Store.check."""
    problems: list[str] = []
    for look in (_engine, _tables, _records, _blobs, _patterns, _runs, _results, _outputs):
        try:
            for problem in look(connection):
                problems.append(problem)
                if len(problems) == MOST:
                    return (*problems, f"and more: the check stopped after {MOST} problems")
        except SQLAlchemyError:
            raise
        except Exception as error:  # a value of a kind that its column never holds
            problems.append(f"the check of {look.__name__.strip('_')} could not go on: {error!r}"[:300])
        if problems and look in (_engine, _tables):
            return tuple(problems)  # what follows would only stumble over the same damage
    return tuple(problems)


def _engine(connection: Connection) -> Iterator[str]:
    """What the database's own check finds. PostgreSQL checks its constraints and pages as it goes."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({MOST})"):
        if line != "ok":
            yield f"SQLite: {line}"
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"{table} row {row} refers to a row that {parent} does not have"
    foreign = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
    for kind, name in connection.exec_driver_sql(foreign):
        yield f"{kind} {name} is none of reprodb's"


def _tables(connection: Connection) -> Iterator[str]:
    """Whether every table and column is there."""
    inspector = inspect(connection)
    for table in t.METADATA.sorted_tables:
        if not inspector.has_table(table.name):
            yield f"table {table.name} is missing"
            continue
        there = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                yield f"column {table.name}.{column.name} is missing"


def _rows(connection: Connection, query: Any) -> Iterator[Any]:
    """Rows as they come: a large database is never in memory whole."""
    yield from connection.execution_options(yield_per=500).execute(query)


def _records(connection: Connection) -> Iterator[str]:
    """Every interned record: its digest, and that it is the canonical form of the value that it says."""
    for row in _rows(connection, select(*t.environments.c)):
        key = digest.content_key("reprodb.environment/1", row.record)
        yield from _record("environments", row, key, Environment)
    for row in _rows(connection, select(*t.cases.c)):
        yield from _record("cases", row, case_key(row.record, row.input_digest), Kernel)
    for row in _rows(connection, select(*t.layouts.c)):
        yield from _record("layouts", row, text_key(row.record), Layout)
    for row in _rows(connection, select(*t.remarks.c)):
        yield from _record("remarks", row, text_key(row.record), None)
    ptx, sass = select(t.blobs).subquery(), select(t.blobs).subquery()
    builds = (
        select(*t.builds.c, ptx.c.digest.label("ptx"), sass.c.digest.label("sass"))
        .outerjoin(ptx, ptx.c.id == t.builds.c.ptx_id)
        .outerjoin(sass, sass.c.id == t.builds.c.sass_id)
    )
    for row in _rows(connection, builds):
        yield from _record("builds", row, build_key(row.record, row.ptx, row.sass), Build)


def _record(table: str, row: Any, key: str, kind: type | None) -> Iterator[str]:
    if row.digest != key:
        yield f"{table} row {row.id} does not have the digest of its record"
    elif kind is not None:
        try:
            whole = codec.dumps(codec.loads(kind, row.record)) == row.record
        except Exception as error:  # whatever a damaged record makes a converter raise
            yield f"{table} row {row.id} cannot be read: {error}"
        else:
            if not whole:
                yield f"{table} row {row.id} is not in canonical form"


def _blobs(connection: Connection) -> Iterator[str]:
    for row in _rows(connection, select(*t.blobs.c)):
        try:
            raw = inflate(row.digest, row.size, row.data)
        except StoreError as error:
            yield error.problem
        else:
            if digest.sha256(raw) != row.digest:
                yield f"blob {row.digest} has other data than its SHA-256 says"


def _patterns(connection: Connection) -> Iterator[str]:
    # Pages are fetched while the patterns are read: take the large ones' numbers first.
    small = select(t.patterns.c.digest, t.patterns.c.size, t.patterns.c.data, t.patterns.c.kept)
    for row in _rows(connection, small.where(t.patterns.c.pages.is_(None))):
        if row.data is None or not row.kept or len(row.data) != row.size or row.size > PAGE:
            yield f"pattern {row.digest} has no data, or not as much as it says"
        elif digest.sha256(row.data) != row.digest:
            yield f"pattern {row.digest} has other data than its SHA-256 says"
    columns = (
        t.patterns.c.digest,
        t.patterns.c.size,
        t.patterns.c.data,
        t.patterns.c.pages,
        t.patterns.c.kept,
    )
    for number in connection.scalars(select(t.patterns.c.id).where(t.patterns.c.pages.is_not(None))).all():
        row = connection.execute(select(*columns).where(t.patterns.c.id == number)).one()
        if row.data is not None or row.size <= PAGE or len(row.pages) != 32 * -(-row.size // PAGE):
            yield f"pattern {row.digest} has not the pages of {row.size} bytes"
        elif row.kept:
            try:
                data = join_pages(connection, row.digest, row.pages)
            except StoreError as error:
                yield error.problem
                continue
            if digest.sha256(data) != row.digest or page_digests(data) != row.pages:
                yield f"pattern {row.digest} has other data than its SHA-256 says"


def _runs(connection: Connection) -> Iterator[str]:
    for number in connection.scalars(select(t.runs.c.id)).all():
        try:
            read_runs(connection, Seen(), run_query().where(t.runs.c.id == number))
        except StoreError as error:
            yield f"run {number}: {error.problem}"


def _results(connection: Connection) -> Iterator[str]:
    """Results against their scope, case and run, and their words against those that there are."""
    status, accuracy, origin = set(Status), set(Accuracy), {None, *CodeOrigin}
    query = (
        select(t.results.c.id, t.scopes.c.kernel, t.scopes.c.case_name, t.scopes.c.lane, t.scopes.c.suite)
        .add_columns(t.cases.c.kernel.label("k"), t.cases.c.name.label("c"), t.runs.c.lane.label("l"))
        .add_columns(t.runs.c.suite.label("s"), t.runs.c.position, t.results.c.accepted)
        .add_columns(t.results.c.status, t.results.c.accuracy, t.results.c.origin)
        .join(t.scopes, t.scopes.c.id == t.results.c.scope_id)
        .join(t.cases, t.cases.c.id == t.results.c.case_id)
        .join(t.runs, t.runs.c.id == t.results.c.run_id)
    )
    for row in _rows(connection, query):
        number, *scope = row[:5]
        if tuple(scope) != (row.k, row.c, row.l, row.s):
            yield f"result {number} has the scope of another kernel, case, lane or suite"
        if row.status not in status or row.accuracy not in accuracy or row.origin not in origin:
            yield f"result {number} has an unknown status, accuracy or origin"
        if row.accepted is not None and row.accepted != row.position:
            yield f"result {number} is accepted at another position than its run's"


def _outputs(connection: Connection) -> Iterator[str]:
    """Every sequence and run hash, from the patterns; results that say ok have outputs."""
    bare = (
        select(t.results.c.id)
        .outerjoin(t.outputs, t.outputs.c.result_id == t.results.c.id)
        .where(t.outputs.c.result_id.is_(None), t.results.c.status == "ok")
    )
    for number in connection.scalars(bare):
        yield f"result {number} is ok and has no outputs"
    hashes = RunHashes(connection)
    last = 0
    while numbers := _next_results(connection, last):
        last = numbers[-1]
        links: dict[tuple[int, int], list[int]] = {}
        columns = t.output_patterns.c
        query = (
            select(*columns).where(t.output_patterns.c.result_id.in_(numbers)).order_by(*list(columns)[:3])
        )
        for result_id, place, _, pattern_id in connection.execute(query):
            links.setdefault((result_id, place), []).append(pattern_id)
        outputs = (
            select(t.outputs.c.result_id, t.outputs.c.place, t.outputs.c.run_hash, t.outputs.c.sequence)
            .add_columns(t.results.c.repetitions)
            .join(t.results, t.results.c.id == t.outputs.c.result_id)
            .where(t.outputs.c.result_id.in_(numbers))
        )
        for row in connection.execute(outputs):
            where = f"result {row.result_id}, output {row.place}"
            patterns = tuple(links.get((row.result_id, row.place), ()))
            try:
                expected = hashes.of(patterns, row.sequence, row.repetitions)
            except ValueError as error:
                yield f"{where}: {error}"
            else:
                if expected not in (None, row.run_hash):
                    yield f"{where}: the run hash is not that of its patterns"


def _next_results(connection: Connection, last: int) -> Sequence[int]:
    query = select(t.results.c.id).where(t.results.c.id > last).order_by(t.results.c.id).limit(500)
    return connection.scalars(query).all()


class RunHashes:
    """Run hashes from stored patterns; the nights repeat each other, so nearly all are known already."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[tuple[int, ...], bytes | None, int], int | None] = {}
        self._words: dict[int, bytes | None] = {}

    def of(self, patterns: tuple[int, ...], stored: bytes | None, repetitions: int) -> int | None:
        """The run hash; None where a pattern was not kept. Raises ValueError for a wrong sequence."""
        key = (patterns, stored, repetitions)
        if key not in self._known:
            if len(self._known) > LARGEST_CACHE:
                self._known.clear()
            sequence = sequences.unpack(stored, repetitions)
            sequences.first_and_count(sequence, len(patterns))
            words = [self._word(number) for number in patterns]
            whole = [word for word in words if word is not None]
            self._known[key] = digest.run_hash(whole, sequence) if len(whole) == len(words) else None
        return self._known[key]

    def _word(self, number: int) -> bytes | None:
        """What a pattern feeds to the run hash: itself up to 8 bytes, else its own hash."""
        if number not in self._words:
            if len(self._words) > LARGEST_CACHE:
                self._words.clear()
            row = self._connection.execute(
                select(t.patterns.c.digest, t.patterns.c.data, t.patterns.c.pages, t.patterns.c.kept).where(
                    t.patterns.c.id == number
                )
            ).one()
            try:
                data = row.data if row.pages is None else self._joined(row)
            except StoreError:
                data = None  # told by the check of patterns
            if data is not None and len(data) > digest.WORD_BYTES:
                data = digest.fnv1a64(data).to_bytes(8, "little")
            self._words[number] = data
        return self._words[number]

    def _joined(self, row: Any) -> bytes | None:
        return join_pages(self._connection, row.digest, row.pages) if row.kept else None
