"""References of scopes: the last accepted result, or the blessed one; and the history of blessings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, insert, select, update

from reprodb.domain import Run, Scope
from reprodb.errors import StoreError, UsageError
from reprodb.store import tables as t
from reprodb.store.intern import SCOPE_COLUMNS, Known, batches, find_scopes, scope_from
from reprodb.store.read import Seen, read_results, result_query
from reprodb.store.values import Blessing, Reference


def accept(connection: Connection, ids: Sequence[int]) -> None:
    """Marks results with their run's position: the index then finds a scope's last one in one step."""
    for batch in batches(ids):
        position = select(t.runs.c.position).where(t.runs.c.id == t.results.c.run_id).scalar_subquery()
        done = connection.execute(
            update(t.results).where(t.results.c.id.in_(batch)).values(accepted=position)
        )
        if done.rowcount != len(set(batch)):
            known = set(connection.scalars(select(t.results.c.id).where(t.results.c.id.in_(batch))))
            raise StoreError(f"the database has no result {min(set(batch) - known)}")


def references(
    connection: Connection,
    known: Known,
    seen: Seen,
    scopes: Sequence[Scope],
    *,
    before: int | None,
    at: datetime | None,
) -> dict[Scope, Reference]:
    """See Store.references."""
    numbers = find_scopes(connection, known, scopes)
    kinds: dict[int, str] = {}  # result number → kind
    by_scope: dict[int, int] = {}
    for batch in batches(sorted(numbers.values())):
        for scope_id, result_id in connection.execute(last_accepted(before, batch)):
            if result_id is not None:
                by_scope[scope_id] = result_id
        if at is None:
            continue
        for blessing, scope_id in _read(connection, t.blessings.c.scope_id.in_(batch)):
            if blessing.active(at):  # oldest first: the newest active one stays
                by_scope[scope_id] = blessing.result_id
                kinds[blessing.result_id] = "blessed"
    found: dict[int, Reference] = {}
    for batch in batches(sorted(by_scope.values())):
        for stored in read_results(connection, seen, result_query().where(t.results.c.id.in_(batch))):
            number = stored.result.id
            assert number is not None  # noqa: S101 -- read from its row
            found[number] = Reference(stored.run_id, stored.result, kinds.get(number, "accepted"))
    return {scope: found[by_scope[n]] for scope, n in numbers.items() if n in by_scope}


def last_accepted(before: int | None, scope_ids: Sequence[int] | None = None) -> Select[Any]:
    """For each scope the number of its last accepted result, in a run before `before` where that is given."""
    query = (
        select(t.results.c.id)
        .join(t.runs, t.runs.c.id == t.results.c.run_id)
        .where(t.results.c.scope_id == t.scopes.c.id, t.results.c.accepted.is_not(None))
        .order_by(t.results.c.accepted.desc(), t.runs.c.uid.desc())
        .limit(1)
    )
    if before is not None:
        bound = select(t.runs.c.position).where(t.runs.c.id == before).scalar_subquery()
        query = query.where(t.results.c.accepted < bound)
    whole = select(t.scopes.c.id, query.correlate(t.scopes).scalar_subquery())
    return whole if scope_ids is None else whole.where(t.scopes.c.id.in_(scope_ids))


def accepted_scopes(connection: Connection, run: Run) -> tuple[Scope, ...]:
    """See Store.scopes."""
    device = run.environment.device
    accepted = select(t.results.c.id).where(
        t.results.c.scope_id == t.scopes.c.id, t.results.c.accepted.is_not(None)
    )  # fmt: skip
    rows = connection.execute(
        select(*SCOPE_COLUMNS).where(
            t.scopes.c.suite == run.suite,
            t.scopes.c.lane == str(run.lane),
            t.scopes.c.gpu == (device.name if device else ""),
            accepted.exists(),
        )
    )
    found = (scope_from(row[1:]) for row in rows)
    return tuple(sorted(found, key=lambda s: (s.kernel, s.case, s.profile, s.arch, s.condition)))


# --- Blessings ---------------------------------------------------------------------------------


def bless(
    connection: Connection,
    ids: Sequence[int],
    *,
    who: str,
    why: str,
    when: datetime,
    expires: datetime | None,
    changed: Mapping[int, str],
) -> tuple[Blessing, ...]:
    """See Store.bless."""
    scopes: dict[int, int] = {}
    for batch in batches(ids):
        query = select(t.results.c.id, t.results.c.scope_id).where(t.results.c.id.in_(batch))
        scopes.update(connection.execute(query).all())
    made = []
    for number in ids:
        if number not in scopes:
            raise StoreError(f"the database has no result {number}")
        values = {
            "scope_id": scopes[number],
            "result_id": number,
            "who": who,
            "why": why,
            "changed": changed[number],
            "blessed_at": when,
            "expires_at": expires,
        }
        made.append(connection.execute(insert(t.blessings).returning(t.blessings.c.id), values).scalar_one())
    return tuple(b for batch in batches(made) for b, _ in _read(connection, t.blessings.c.id.in_(batch)))


def withdraw(connection: Connection, blessing_id: int, who: str, why: str, when: datetime) -> None:
    """See Store.withdraw."""
    found = [blessing for blessing, _ in _read(connection, t.blessings.c.id == blessing_id)]
    if not found:
        raise UsageError(f"there is no blessing {blessing_id}", remedy="reprodb baselines lists them")
    if found[0].withdrawn_at is not None:
        raise UsageError(f"blessing {blessing_id} was withdrawn at {found[0].withdrawn_at:%Y-%m-%d %H:%M}Z")
    connection.execute(
        insert(t.withdrawals), {"blessing_id": blessing_id, "who": who, "why": why, "withdrawn_at": when}
    )


def blessings(connection: Connection, scope: Scope | None) -> list[Blessing]:
    """All blessings, oldest first, or those of one scope."""
    if scope is None:
        return [blessing for blessing, _ in _read(connection, None)]
    number = find_scopes(connection, Known(), [scope]).get(scope)
    return [] if number is None else [b for b, _ in _read(connection, t.blessings.c.scope_id == number)]


def _read(connection: Connection, where: Any) -> list[tuple[Blessing, int]]:
    """Blessings with the number of their scope, in the order of recording."""
    query = (
        select(
            *t.blessings.c,
            t.runs.c.id.label("run_id"),
            t.runs.c.uid.label("run_uid"),
            t.withdrawals.c.withdrawn_at,
            t.withdrawals.c.who.label("withdrawn_by"),
            t.withdrawals.c.why.label("withdrawn_why"),
            *SCOPE_COLUMNS[1:],
        )
        .select_from(t.blessings)
        .join(t.scopes, t.scopes.c.id == t.blessings.c.scope_id)
        .join(t.results, t.results.c.id == t.blessings.c.result_id)
        .join(t.runs, t.runs.c.id == t.results.c.run_id)
        .outerjoin(t.withdrawals, t.withdrawals.c.blessing_id == t.blessings.c.id)
        .order_by(t.blessings.c.id)
    )
    names = [column.name for column in t.blessings.c]
    if where is not None:
        query = query.where(where)
    found = []
    for row in connection.execute(query):
        own = dict(zip(names, row, strict=False))
        run_id, run_uid, withdrawn_at, by, reason, *scope = row[len(names) :]
        blessing = Blessing(
            id=own["id"],
            scope=scope_from(scope),
            run_id=run_id,
            run_uid=run_uid,
            result_id=own["result_id"],
            who=own["who"],
            why=own["why"],
            when=own["blessed_at"],
            changed=own["changed"],
            expires=own["expires_at"],
            withdrawn_at=withdrawn_at,
            withdrawn_by=by or "",
            withdrawn_why=reason or "",
        )
        found.append((blessing, own["scope_id"]))
    return found
