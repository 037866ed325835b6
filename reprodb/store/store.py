"""The database as the other steps see it: runs and results in, dataclasses out, each call one transaction."""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, Select, case, func, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from reprodb.domain import Artifact, CanaryOutcome, Result, Run, Scope
from reprodb.errors import StoreError, UsageError
from reprodb.store import patterns as patterns_
from reprodb.store import references as references_
from reprodb.store import refs
from reprodb.store import tables as t
from reprodb.store.faults import store_error, translated
from reprodb.store.intern import Known, batches
from reprodb.store.location import Location
from reprodb.store.read import Seen, read_results, read_runs, result_query, run_query, whole
from reprodb.store.values import Blessing, Pruned, Reference, RunRef
from reprodb.store.write import (
    Pair,
    check_run,
    check_texts,
    finish_run,
    next_position,
    text_of,
    write_results,
    write_run,
)

T = TypeVar("T")
_MOST_HELD = 100_000  # small patterns kept in memory
_TRIES = 3  # of a transaction that found the database locked, or a row it knew pruned by another process


class Store:
    """An open database; a context manager. Not for several threads. Every method raises StoreError."""

    def __init__(
        self, location: Location, engine: Engine, *, write: bool, notes: tuple[str, ...] = ()
    ) -> None:
        self.location = location
        self.notes = notes  # what opening did or found that a person should read
        self._engine = engine
        self._writable = write
        self._known = Known()
        self._seen = Seen()
        self._begun: dict[int, Run] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    # --- Transactions --------------------------------------------------------------------------

    def read(self, work: Callable[[Connection, Seen], T]) -> T:
        """What `work` reads, all of it from one moment."""
        options = {"reprodb_write": False}
        with (
            translated(self.location),
            whole("what the database holds"),
            self._engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            return work(connection, self._seen)

    def write(self, work: Callable[[Connection, Known], T], *, durable: bool = True) -> T:
        """What `work` writes, whole or not at all. Waits for other writers, a bounded time.

        What is not `durable` by itself is so with the next durable write: PostgreSQL then answers before
        its disk has it.
        """
        if not self._writable:
            raise StoreError(f"{self.location} was opened for reading", remedy="open it for writing")
        for left in reversed(range(_TRIES)):
            try:
                with (
                    self._engine.connect().execution_options(reprodb_durable=durable) as connection,
                    connection.begin(),
                ):
                    return work(connection, self._known)
            except DBAPIError as error:
                self._known.forget()
                busy = isinstance(error, IntegrityError) or "locked" in str(error.orig)
                if not (left and busy):
                    raise store_error(self.location, error) from error
            except BaseException:
                self._known.forget()
                raise
        raise AssertionError  # the last try returned or raised

    # --- Recording -----------------------------------------------------------------------------

    def begin(self, run: Run) -> int:
        """Starts a run; returns its number. Until `finish` it is incomplete."""
        if run.finished_at is not None:
            raise StoreError(f"run {run.uid} is finished before it began")
        check_run(run)

        def work(connection: Connection, known: Known) -> int:
            if connection.scalar(select(t.runs.c.id).where(t.runs.c.uid == run.uid)) is not None:
                raise StoreError(f"{self.location} has a run {run.uid} already")
            return write_run(connection, known, run, next_position(connection, run))

        return self.write(work)

    def record(
        self, run_id: int, result: Result, artifact: Artifact | None = None, *, keep: bool = False
    ) -> int:
        """Records one result in a transaction; returns its number. See record_many."""
        return self.record_many(run_id, [(result, artifact)], keep=keep)[0]

    def record_many(self, run_id: int, pairs: Iterable[Pair], *, keep: bool = False) -> tuple[int, ...]:
        """Records results in one transaction, in order; returns their numbers.

        A result's patterns carry their data, unless the database has them already. `keep` keeps patterns
        larger than 16 MiB whole. The artifact's texts are stored for code diffs; its cubin never is.
        """
        pairs = list(pairs)

        def work(connection: Connection, known: Known) -> tuple[int, ...]:
            run = self._open_run(connection, run_id)
            return tuple(write_results(connection, known, run, run_id, pairs, keep=keep, unfinished=True))

        return self.write(work, durable=False)

    def finish(
        self,
        run_id: int,
        exit_code: int | None,
        finished_at: datetime,
        *,
        canaries: tuple[CanaryOutcome, ...] | None = None,
    ) -> None:
        """Marks the run complete. An exit code that was left out may be set later, once."""

        def work(connection: Connection, known: Known) -> None:
            run = self._one_run(connection, run_id)
            if run.complete and (run.exit_code is not None or exit_code is None):
                raise StoreError(f"run {run_id} is finished already")
            finish_run(connection, known, run, exit_code, finished_at, canaries=canaries)

        self.write(work)

    def completed_rows(self, run_id: int) -> set[tuple[str, str, str, str, str]]:
        """The rows (Result.row) that the run has: what a resumed run need not repeat."""
        query = (
            select(
                t.scopes.c.kernel,
                t.scopes.c.case_name,
                t.scopes.c.profile,
                t.scopes.c.arch,
                t.scopes.c.condition_name,
            )
            .join(t.results, t.results.c.scope_id == t.scopes.c.id)
            .where(t.results.c.run_id == run_id)
        )

        def work(connection: Connection, seen: Seen) -> set[tuple[str, str, str, str, str]]:
            self._one_run(connection, run_id)
            return {
                (kernel, case, profile, arch, condition)
                for kernel, case, profile, arch, condition in connection.execute(query)
            }

        return self.read(work)

    # --- Reading -------------------------------------------------------------------------------

    def run(self, run_id: int) -> Run:
        """The run of that number."""
        return self.read(lambda connection, _: self._one_run(connection, run_id))

    def runs(self, limit: int | None = None, suite: str | None = None) -> tuple[Run, ...]:
        """Runs, newest first, incomplete ones too."""
        query = run_query().limit(limit)
        if suite is not None:
            query = query.where(t.runs.c.suite == suite)
        return self.read(lambda connection, seen: tuple(run for run, _ in read_runs(connection, seen, query)))

    def marks(self) -> dict[int, tuple[int, int, int]]:
        """Of each run with results: how many they are, how many are references, the sum of those' numbers.

        A run's marks move when it grows, when its results are accepted, and when it is imported anew.
        """
        accepted = t.results.c.accepted.is_not(None)
        query = select(
            t.results.c.run_id,
            func.count(),
            func.count(t.results.c.accepted),
            func.coalesce(func.sum(case((accepted, t.results.c.id), else_=0)), 0),
        ).group_by(t.results.c.run_id)

        def work(connection: Connection, seen: Seen) -> dict[int, tuple[int, int, int]]:
            return {number: (count, some, total) for number, count, some, total in connection.execute(query)}

        return self.read(work)

    def resolve(self, ref: str, suite: str | None = None) -> RunRef:
        """The run that people mean by `ref`: number, label, uid prefix, `latest`, `latest~N`, `baseline`.

        `:PROFILE` and `:PROFILE:KERNEL` may follow and must be in the run. `latest` counts complete runs,
        those of `suite` where it is given. Raises UsageError with what there is instead.
        """
        parsed = refs.parse(ref)
        if parsed.name == refs.BASELINE:
            return RunRef(None, parsed.profile, parsed.kernel)

        def work(connection: Connection, seen: Seen) -> RunRef:
            run_id = self._find_run(connection, parsed, suite)
            self._check_part(connection, run_id, parsed)
            return RunRef(run_id, parsed.profile, parsed.kernel)

        return self.read(work)

    def results(
        self, run_id: int, *, profile: str | None = None, kernel: str | None = None
    ) -> tuple[Result, ...]:
        """The run's results in the order of recording, patterns without their data."""
        query = result_query().where(t.results.c.run_id == run_id).order_by(t.results.c.id)
        if profile is not None:
            query = query.where(t.scopes.c.profile == profile)
        if kernel is not None:
            query = query.where(t.scopes.c.kernel == kernel)

        def work(connection: Connection, seen: Seen) -> tuple[Result, ...]:
            self._one_run(connection, run_id)
            return tuple(stored.result for stored in read_results(connection, seen, query))

        return self.read(work)

    def pattern(self, sha256: str) -> bytes:
        """The bytes of a pattern. Raises StoreError where it is unknown, or was too large to keep.

        Small patterns of results that were read together come together, and are held for the next call.
        """
        held = self._seen.held
        if sha256 in held:
            return held[sha256]
        group = self._seen.together.get(sha256)
        if group is None:
            return self.patterns([sha256])[sha256]
        try:
            found = self.patterns(group)
        except StoreError:  # another one of them is damaged
            return self.patterns([sha256])[sha256]
        if len(held) > _MOST_HELD:
            held.clear()
        held.update(found)
        return found[sha256]

    def patterns(self, sha256s: Iterable[str]) -> dict[str, bytes]:
        """The bytes of several patterns."""
        wanted = list(sha256s)
        return self.read(lambda connection, _: patterns_.read_patterns(connection, wanted))

    def pages(self, sha256: str) -> tuple[str, ...]:
        """The SHA-256 of each 64 KiB page of a large pattern, kept or not; empty for a smaller one."""

        def work(connection: Connection, seen: Seen) -> tuple[str, ...]:
            query = select(t.patterns.c.id, t.patterns.c.pages).where(t.patterns.c.digest == sha256)
            row = connection.execute(query).one_or_none()
            if row is None:
                raise StoreError(f"the database has no pattern {sha256}")
            return patterns_.split_digests(row.pages or b"")

        return self.read(work)

    def history(
        self,
        kernel: str,
        *,
        case: str | None = None,
        profile: str | None = None,
        suite: str | None = None,
        limit: int | None = None,
    ) -> tuple[tuple[Run, Result], ...]:
        """The kernel's results over all runs, the newest run first; within a run as recorded."""
        query = (
            result_query().join(t.runs, t.runs.c.id == t.results.c.run_id).where(t.scopes.c.kernel == kernel)
        )
        for column, value in (
            (t.scopes.c.case_name, case),
            (t.scopes.c.profile, profile),
            (t.scopes.c.suite, suite),
        ):
            if value is not None:
                query = query.where(column == value)
        query = query.order_by(t.runs.c.position.desc(), t.runs.c.uid.desc(), t.results.c.id).limit(limit)

        def work(connection: Connection, seen: Seen) -> tuple[tuple[Run, Result], ...]:
            found = read_results(connection, seen, query)
            runs: dict[int, Run] = {}
            for batch in batches(sorted({stored.run_id for stored in found})):
                some = read_runs(connection, seen, run_query().where(t.runs.c.id.in_(batch)))
                runs.update((number, run) for run, _ in some if (number := run.id) is not None)
            return tuple((runs[stored.run_id], stored.result) for stored in found)

        return self.read(work)

    def code_texts(self, build_key: str) -> tuple[str | None, str | None]:
        """PTX and SASS of an artifact by its key (Build.key); None for what was not recorded."""

        def work(connection: Connection, seen: Seen) -> tuple[str | None, str | None]:
            texts: list[str | None] = []
            for column in (t.builds.c.ptx_id, t.builds.c.sass_id):
                query = (
                    select(t.blobs.c.digest, t.blobs.c.size, t.blobs.c.data)
                    .join(t.builds, column == t.blobs.c.id)
                    .where(t.builds.c.key == build_key)
                    .order_by(t.blobs.c.digest)
                    .limit(1)
                )
                row = connection.execute(query).one_or_none()
                texts.append(None if row is None else text_of(patterns_.inflate(*row)))
            return texts[0], texts[1]

        return self.read(work)

    # --- References and blessings --------------------------------------------------------------

    def accept(self, result_ids: Iterable[int]) -> None:
        """Makes results references of their scopes: the last accepted one is what the next meets."""
        ids = list(result_ids)
        self.write(lambda connection, _: references_.accept(connection, ids))

    def references(
        self,
        scopes: Iterable[Scope],
        *,
        before: int | None = None,
        now: datetime | None = None,
        blessed: bool = True,
    ) -> dict[Scope, Reference]:
        """Each scope's blessed result, else its last accepted one; scopes with neither are left out.

        `before` leaves out what was accepted in that run or a later one. A blessing counts where it is
        active at `now`; without `blessed` none does, for callers whose ledger decides.
        """
        wanted = list(dict.fromkeys(scopes))
        at = (now or datetime.now(UTC)) if blessed else None

        def work(connection: Connection, seen: Seen) -> dict[Scope, Reference]:
            return references_.references(connection, self._known, seen, wanted, before=before, at=at)

        return self.read(work)

    def scopes(self, run: Run) -> tuple[Scope, ...]:
        """Every scope of the run's suite, lane and GPU model that has an accepted result, sorted."""

        def work(connection: Connection, seen: Seen) -> tuple[Scope, ...]:
            return references_.accepted_scopes(connection, run)

        return self.read(work)

    def bless(
        self,
        result_ids: Iterable[int],
        *,
        who: str,
        why: str,
        when: datetime,
        expires: datetime | None = None,
        changed: str | Mapping[int, str] = "",
        accept: bool = False,
        seal: Callable[[], None] = lambda: None,
    ) -> tuple[Blessing, ...]:
        """Records that these results are the baselines of their scopes from `when` on.

        `changed` says in words what changed, for all or by result number. `accept` makes them references as
        well. `seal` is called last within the transaction, perhaps more than once: if it raises, nothing is
        recorded.
        """
        ids = list(result_ids)
        if not why.strip() or not who.strip():
            raise UsageError("a blessing needs who and why", remedy='give --reason "…"')
        words = {number: changed if isinstance(changed, str) else changed.get(number, "") for number in ids}
        check_texts("text", who, why, *words.values())

        def work(connection: Connection, known: Known) -> tuple[Blessing, ...]:
            made = references_.bless(
                connection, ids, who=who, why=why, when=when, expires=expires, changed=words
            )
            if accept:
                references_.accept(connection, ids)
            seal()
            return made

        return self.write(work)

    def withdraw(
        self, blessing_id: int, *, who: str, why: str, when: datetime, seal: Callable[[], None] = lambda: None
    ) -> None:
        """Ends a blessing; the row stays. `seal` as in `bless`."""
        check_texts("text", who, why)

        def work(connection: Connection, known: Known) -> None:
            references_.withdraw(connection, blessing_id, who, why, when)
            seal()

        self.write(work)

    def blessings(
        self, scope: Scope | None = None, *, active_at: datetime | None = None
    ) -> tuple[Blessing, ...]:
        """The history of blessings, oldest first; of one scope, or those active at a time."""
        found = self.read(lambda connection, _: references_.blessings(connection, scope))
        return tuple(b for b in found if active_at is None or b.active(active_at))

    # --- Operating it --------------------------------------------------------------------------

    def check(self) -> tuple[str, ...]:
        """What is wrong with the database, one sentence a problem; empty where all is well.

        Reads everything: the engine's own check, every digest, hash and sequence, every reference.
        """
        from reprodb.store.check import check

        return self.read(check)

    def backup(self, path: Path) -> None:
        """A consistent copy of a SQLite database at a path where nothing is yet."""
        from reprodb.store import sqlite

        if self.location.path is None:
            raise StoreError(
                f"{self.location} is backed up by PostgreSQL's own tools",
                remedy="pg_dump --format=custom; or `reprodb export` for single runs",
            )
        sqlite.copy(self.location.path, path)

    def prune(
        self,
        *,
        keep_runs: int,
        older_than: datetime | None = None,
        dry_run: bool = False,
        blessed: Iterable[str] = (),
    ) -> Pruned:
        """Drops old runs whole, and what they alone held.

        Of each suite the newest `keep_runs` runs stay, those that started after `older_than`, and every run
        with a result that was ever blessed or is the last accepted one of its scope. `blessed` are the uids
        of runs that a ledger names: a blessing that came with the suite's commit is in no table here.
        """
        from reprodb.store.prune import prune

        if keep_runs < 1:
            raise UsageError(f"keeping {keep_runs} runs", allowed="1 or more")
        if dry_run:
            return self.read(
                lambda connection, _: prune(connection, keep_runs, older_than, dry_run=True, blessed=blessed)
            )
        pruned = self.write(
            lambda connection, _: prune(connection, keep_runs, older_than, dry_run=False, blessed=blessed)
        )
        self._known.forget()
        self._seen = Seen()
        self._begun.clear()
        if pruned.runs and self.location.path is not None:
            self._shrink()
        return pruned

    def _shrink(self) -> None:
        """Gives the space of dropped rows back to the disk, where no other process is writing just then."""
        with self._engine.connect() as connection, suppress(sqlite3.OperationalError):
            connection.connection.cursor().execute("VACUUM")  # which no transaction may hold

    # --- Finding runs --------------------------------------------------------------------------

    def _open_run(self, connection: Connection, run_id: int) -> Run:
        """A run that results are added to. All but its end is as it was when it began."""
        if run_id not in self._begun:
            self._begun[run_id] = self._one_run(connection, run_id)
        return self._begun[run_id]

    def _one_run(self, connection: Connection, run_id: int) -> Run:
        found = read_runs(connection, self._seen, run_query().where(t.runs.c.id == run_id))
        if not found:
            raise UsageError(f"{self.location} has no run {run_id}", remedy="reprodb history lists the runs")
        return found[0][0]

    def _find_run(self, connection: Connection, parsed: refs.Parsed, suite: str | None) -> int:
        def first(query: Select[Any]) -> int | None:
            number: int | None = connection.scalar(query.limit(1))
            return number

        newest = select(t.runs.c.id).order_by(t.runs.c.position.desc(), t.runs.c.uid.desc())
        if suite is not None:
            newest = newest.where(t.runs.c.suite == suite)
        complete = newest.where(t.runs.c.finished_at.is_not(None))
        if parsed.back is not None:
            found = first(complete.offset(parsed.back))
            if found is None:
                count = connection.scalar(select(func.count()).select_from(complete.subquery()))
                told = f"no run {parsed.name!r}: {self.location} has {count} complete run{'s' * (count != 1)}"
                if count:
                    raise UsageError(told, remedy="reprodb runs lists them")
                begun = connection.execute(newest.add_columns(t.runs.c.kind).limit(1)).first()
                if begun is None:
                    raise UsageError(told, remedy="record one first: reprodb run")
                raise UsageError(
                    f"{told}, and run {begun.id} is incomplete",
                    remedy=f"go on with it: reprodb {begun.kind} --resume {begun.id}",
                )
            return found
        named = [select(t.runs.c.id).where(t.runs.c.id == parsed.number)] if parsed.number is not None else []
        named += [query.where(t.runs.c.label == parsed.name) for query in (complete, newest)]
        named.append(select(t.runs.c.id).where(t.runs.c.uid == parsed.name))
        for query in named:
            found = first(query)
            if found is not None:
                return found
        prefix = parsed.uid_prefix
        if prefix is not None:
            matches: Sequence[int] = connection.scalars(
                newest.where(t.runs.c.uid.startswith(prefix, autoescape=True))
            ).all()
            if len(matches) == 1:
                return matches[0]
            if matches:
                numbers = ", ".join(map(str, sorted(matches)))
                raise UsageError(f"{parsed.name!r} begins the uid of several runs: {numbers}")
        labels = [label for label in connection.scalars(select(t.runs.c.label).distinct()) if label]
        near = difflib.get_close_matches(parsed.name, [*labels, "latest", refs.BASELINE], 1)
        raise UsageError(
            f"{self.location} has no run {parsed.name!r}",
            allowed=refs.ALLOWED,
            remedy=f"did you mean {near[0]!r}?" if near else "",
        )

    def _check_part(self, connection: Connection, run_id: int, parsed: refs.Parsed) -> None:
        if parsed.profile is None:
            return
        query = (
            select(t.scopes.c.profile, t.scopes.c.kernel)
            .join(t.results, t.results.c.scope_id == t.scopes.c.id)
            .where(t.results.c.run_id == run_id)
            .distinct()
        )
        there = connection.execute(query).all()
        _must_have("profile", parsed.profile, sorted({profile for profile, _ in there}), run_id)
        if parsed.kernel is not None:
            kernels = sorted({kernel for profile, kernel in there if profile == parsed.profile})
            _must_have("kernel", parsed.kernel, kernels, run_id)


def _must_have(what: str, name: str, there: Sequence[str], run_id: int) -> None:
    if name not in there:
        near = difflib.get_close_matches(name, there, 1)
        raise UsageError(
            f"run {run_id} has no {what} {name!r}",
            allowed=", ".join(there) or "nothing: the run has no results",
            remedy=f"did you mean {near[0]!r}?" if near else "",
        )
