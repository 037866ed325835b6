"""Recording: runs and whole results into rows, inside the caller's transaction."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, func, insert, select, update

from reprodb import codec
from reprodb.digest import content_key, sha256
from reprodb.domain import (
    Artifact,
    Build,
    CanaryOutcome,
    Determinism,
    Field,
    Kernel,
    LeftOut,
    Output,
    Pairs,
    Request,
    Result,
    Role,
    Run,
    SkippedProfile,
    later,
    scope_of,
)
from reprodb.errors import StoreError
from reprodb.store import refs, sequences
from reprodb.store import tables as t
from reprodb.store.intern import Known, intern, intern_blobs, intern_scopes
from reprodb.store.patterns import write_patterns
from reprodb.store.types import microseconds

Pair = tuple[Result, Artifact | None]


@dataclass(frozen=True, slots=True)
class Layout:
    """What an output is, apart from its bits."""

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    determinism: Determinism
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class RunRemark:
    """What a run says that no query asks for."""

    policy: str = ""
    skipped: tuple[SkippedProfile, ...] = ()
    seed: int | None = None
    canaries: tuple[CanaryOutcome, ...] = ()
    left_out: tuple[LeftOut, ...] = later(())
    not_stressed: Pairs = later(())
    request: Request | None = later(None)


def _run_remark(run: Run, canaries: tuple[CanaryOutcome, ...]) -> str:
    return codec.dumps(
        RunRemark(run.policy, run.skipped, run.seed, canaries, run.left_out, run.not_stressed, run.request)
    )


# --- Runs --------------------------------------------------------------------------------------


def next_position(connection: Connection, run: Run) -> int:
    """Where a run that starts now stands among all: its start in microseconds, but after every other.

    The position travels in bundles. It orders the runs of several machines by their clocks, and those of one
    database in the order of recording even where a clock jumped back.
    """
    last = connection.scalar(select(func.max(t.runs.c.position)))
    start = microseconds(run.started_at)
    return start if last is None else max(start, last + 1)


def write_run(connection: Connection, known: Known, run: Run, position: int) -> int:
    """A new run's row; returns its number."""
    environment = codec.dumps(run.environment)
    remark = _run_remark(run, run.canaries)
    key = content_key("reprodb.environment/1", environment)
    environments = intern(connection, known, t.environments, [key], lambda _: {"record": environment})
    remarks = _intern_texts(connection, known, t.remarks, [remark])
    number: int = connection.execute(
        insert(t.runs).returning(t.runs.c.id),
        {
            "uid": run.uid,
            "position": position,
            "suite": run.suite,
            "lane": str(run.lane),
            "kind": run.kind,
            "label": run.label,
            "started_at": run.started_at,
            "finished_at": run.finished_at,
            "exit_code": run.exit_code,
            "environment_id": environments[key],
            "remark_id": remarks[remark],
        },
    ).scalar_one()
    return number


def finish_run(
    connection: Connection,
    known: Known,
    run: Run,
    exit_code: int | None,
    finished_at: datetime,
    *,
    canaries: tuple[CanaryOutcome, ...] | None,
) -> None:
    """Marks the run complete; see Store.finish."""
    values: dict[str, Any] = {"finished_at": run.finished_at or finished_at, "exit_code": exit_code}
    if canaries is not None:
        remark = _run_remark(run, canaries)
        values["remark_id"] = _intern_texts(connection, known, t.remarks, [remark])[remark]
    connection.execute(update(t.runs).where(t.runs.c.id == run.id).values(values))


LONGEST_NAME = 250  # characters: an index of PostgreSQL's holds eight such names
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_run(run: Run) -> None:
    """Refuses a run whose names could not be stored, referred to, or made the name of a bundle's member."""
    if not _UID.fullmatch(run.uid):
        raise StoreError(f"{run.uid[:80]!r} cannot be a run's uid", allowed="letters, digits, ., _ and -")
    if run.label is not None:
        refs.check_label(run.label)
    device = run.environment.device
    check_texts("name", run.suite, run.kind, *([device.name] if device else []), longest=LONGEST_NAME)


def check_texts(what: str, *texts: str, longest: int | None = None) -> None:
    """Refuses names that a database cannot hold: PostgreSQL no NUL, neither of them half a surrogate."""
    for text in texts:
        if _UNSTORABLE.search(text):
            raise StoreError(f"{what} {text!r} holds a character that no database can store")
        if longest is not None and len(text) > longest:
            raise StoreError(f"{what} {text[:80]!r}… has more than {longest} characters")


# --- Results -----------------------------------------------------------------------------------


def check_result(run: Run, result: Result) -> None:
    """Refuses a result that contradicts itself or its run, so that no such row is ever read back."""
    name = f"result {'/'.join(result.row)}"
    if result.lane is not run.lane:
        raise StoreError(f"{name} is {result.lane}, its run is {run.lane}: lanes are never mixed")
    check_texts("name", *result.row, longest=LONGEST_NAME)
    if result.repetitions < 0 or not math.isfinite(result.seconds):
        raise StoreError(f"{name} has {result.repetitions} repetitions in {result.seconds} s")
    names = [output.name for output in result.outputs]
    if len(set(names)) != len(names):
        raise StoreError(f"{name} has two outputs of one name: {', '.join(names)}")
    for output in result.outputs:
        problem = _output_problem(output, result.repetitions)
        if problem:
            raise StoreError(f"{name}, output {output.name}: {problem}")


def _output_problem(output: Output, repetitions: int) -> str:
    if len(output.sequence) != repetitions:
        return f"{len(output.sequence)} indexes for {repetitions} repetitions"
    if not output.patterns or len({p.sha256 for p in output.patterns}) != len(output.patterns):
        return "patterns must be distinct, and one at least"
    try:
        derived = sequences.first_and_count(output.sequence, output.distinct)
    except ValueError as error:
        return str(error)
    for pattern, (first, count) in zip(output.patterns, derived, strict=True):
        if (pattern.first, pattern.count) != (first, count):
            return f"pattern {pattern.sha256} is first at {first}, {count} times, not as it says"
    return ""


def write_results(
    connection: Connection,
    known: Known,
    run: Run,
    run_id: int,
    pairs: Sequence[Pair],
    *,
    keep: bool = False,
    unfinished: bool = False,
) -> list[int]:
    """The results with all that they hold; returns their numbers in order. The whole lot or nothing.

    Raises StoreError where a result contradicts itself, its row is in the run already, or the run is
    finished where it must be `unfinished`.
    """
    results = [result for result, _ in pairs]
    for result in results:
        check_result(run, result)
    scopes = intern_scopes(connection, known, [scope_of(run, result) for result in results])
    places = [scopes[scope_of(run, result)] for result in results]
    _refuse(connection, run_id, places, results, unfinished=unfinished)

    cases = _intern_cases(connection, known, results)
    builds = _intern_builds(connection, known, pairs)
    remarks = _intern_texts(connection, known, t.remarks, [said for said in map(_remark, results) if said])
    layouts = _intern_texts(connection, known, t.layouts, [_layout(o) for r in results for o in r.outputs])
    data: dict[str, bytes | None] = {}
    for pattern in (p for r in results for o in r.outputs for p in o.patterns):
        if pattern.data is not None or pattern.sha256 not in data:
            data[pattern.sha256] = pattern.data
    patterns = write_patterns(connection, known, data, keep=keep)

    rows = [
        {
            "run_id": run_id,
            "scope_id": place,
            "case_id": case,
            "build_id": build,
            "remark_id": remarks.get(_remark(result)),
            "status": str(result.status),
            "origin": None if result.origin is None else str(result.origin),
            "repetitions": result.repetitions,
            "accuracy": str(result.accuracy.verdict),
            "max_rel_err": result.accuracy.max_rel_err,
            "reference": result.accuracy.reference,
            "seconds": result.seconds,
            "accepted": None,
        }
        for result, place, case, build in zip(results, places, cases, builds, strict=True)
    ]
    if not rows:
        return []
    made = connection.execute(_ADDING_RESULTS, rows)
    numbers: dict[int, int] = dict(made.all())
    ids = [numbers[place] for place in places]

    outputs, links = [], []
    for number, result in zip(ids, results, strict=True):
        for place, output in enumerate(result.outputs):
            outputs.append(
                {
                    "result_id": number,
                    "place": place,
                    "layout_id": layouts[_layout(output)],
                    "run_hash": output.run_hash,
                    "first_bits": output.first_bits,
                    "sequence": sequences.pack(output.sequence, output.distinct),
                }
            )
            links += [
                {"result_id": number, "place": place, "number": i, "pattern_id": patterns[p.sha256]}
                for i, p in enumerate(output.patterns)
            ]
    if outputs:
        connection.execute(_ADDING_OUTPUTS, outputs)
        connection.execute(_ADDING_LINKS, links)
    return ids


# The run's end, and which of its results are in the way: asked for at once, as each question is a round trip.
_RUN_END = select(t.runs.c.finished_at, t.results.c.scope_id).where(t.runs.c.id == bindparam("run"))
_MINE = t.results.c.run_id == t.runs.c.id
_THESE = t.results.c.scope_id.in_(bindparam("places", expanding=True))
_ALL_THERE = _RUN_END.select_from(t.runs.outerjoin(t.results, _MINE))
_SOME_THERE = _RUN_END.select_from(t.runs.outerjoin(t.results, and_(_MINE, _THESE)))
_ADDING_RESULTS = insert(t.results).returning(t.results.c.scope_id, t.results.c.id)
_ADDING_OUTPUTS, _ADDING_LINKS = insert(t.outputs), insert(t.output_patterns)


def _refuse(
    connection: Connection,
    run_id: int,
    places: Sequence[int],
    results: Sequence[Result],
    *,
    unfinished: bool,
) -> None:
    """Refuses a second result for a row of the run and, where it must be unfinished, a finished run."""
    # One result a transaction is the usual case: ask for those, not for the whole run.
    if len(places) <= 100:
        rows = connection.execute(_SOME_THERE, {"run": run_id, "places": places}).all()
    else:
        rows = connection.execute(_ALL_THERE, {"run": run_id}).all()
    if not rows:
        raise StoreError(f"the database has no run {run_id} any more")
    if unfinished and rows[0].finished_at is not None:
        raise StoreError(f"run {run_id} is finished: nothing is added to it")
    seen = {place for _, place in rows}
    for place, result in zip(places, results, strict=True):
        if place in seen:
            raise StoreError(f"run {run_id} has a result for {'/'.join(result.row)} already")
        seen.add(place)


def one_case(result: Result) -> Kernel:
    """The kernel with the case at hand alone."""
    return replace(result.kernel, cases=(result.case,))


@lru_cache(maxsize=4096)
def case_key(record: str, input_digest: str) -> str:
    return content_key("reprodb.case/1", record, input_digest)


@lru_cache(maxsize=4096)
def build_key(record: str, ptx: str | None, sass: str | None) -> str:
    """One row a distinct build and its texts, so that rows never change: `ptx` and `sass` are SHA-256."""
    return content_key("reprodb.build/1", record, ptx or "", sass or "")


def _intern_cases(connection: Connection, known: Known, results: Iterable[Result]) -> list[int]:
    keys, rows = [], {}
    for result in results:
        record = known.text(lambda of=result: codec.dumps(one_case(of)), result.kernel, result.case)  # type: ignore[misc]
        key = case_key(record, result.input_digest)
        keys.append(key)
        rows[key] = {
            "kernel": result.kernel.name,
            "name": result.case.name,
            "input_digest": result.input_digest,
            "record": record,
        }
    numbers = intern(connection, known, t.cases, rows.keys(), rows.__getitem__)
    return [numbers[key] for key in keys]


def code(artifact: Artifact | None) -> tuple[str | None, str | None]:
    """PTX and SASS, where they are there."""
    return (None, None) if artifact is None else (artifact.ptx, artifact.sass)


def _add(texts: dict[str, bytes], text: str | None) -> str | None:
    """The text's SHA-256, its bytes put among `texts`."""
    if text is None:
        return None
    data = text_bytes(text)
    digest = sha256(data)
    texts[digest] = data
    return digest


def text_bytes(text: str) -> bytes:
    """A compiler's text as bytes; even half a surrogate survives."""
    return text.encode("utf-8", "surrogatepass")


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _intern_builds(connection: Connection, known: Known, pairs: Sequence[Pair]) -> list[int | None]:
    keys: list[str | None] = []
    found: dict[str, tuple[Build, str, str | None, str | None]] = {}
    texts: dict[str, bytes] = {}
    for result, artifact in pairs:
        if result.build is None:
            keys.append(None)
            continue
        ptx, sass = (_add(texts, text) for text in code(artifact))
        record = known.text(lambda of=result: codec.dumps(of.build), result.build)  # type: ignore[misc]
        key = build_key(record, ptx, sass)
        keys.append(key)
        found[key] = (result.build, record, ptx, sass)
    blobs = intern_blobs(connection, known, texts)

    def columns(key: str) -> dict[str, Any]:
        build, record, ptx, sass = found[key]
        return {
            "key": build.key,
            "record": record,
            "ptx_id": None if ptx is None else blobs[ptx],
            "sass_id": None if sass is None else blobs[sass],
        }

    numbers = intern(connection, known, t.builds, found.keys(), columns)
    return [None if key is None else numbers[key] for key in keys]


def _remark(result: Result) -> str:
    """Error, notes and order as JSON, empty without any. JSON escapes what a database's text cannot hold."""
    said = (result.error, result.notes, result.batches, result.accuracy.note, result.fingerprint)
    if not any(said):
        return ""
    remark: dict[str, Any] = {"error": result.error, "notes": list(result.notes)}
    remark["accuracy"] = result.accuracy.note
    if result.fingerprint is not None:
        remark["fingerprint"] = codec.encode(result.fingerprint)
    if result.batches:
        remark["batches"] = list(result.batches)
    return json.dumps(remark, sort_keys=True)


def _layout(output: Output) -> str:
    return _layout_text(
        Layout(output.name, output.role, output.dtype, output.shape, output.determinism, output.fields)
    )


@lru_cache(maxsize=4096)
def _layout_text(layout: Layout) -> str:
    return codec.dumps(layout)


@lru_cache(maxsize=4096)
def text_key(record: str) -> str:
    return content_key("reprodb.text/1", record)


def _intern_texts(
    connection: Connection, known: Known, table: Table, records: Iterable[str]
) -> dict[str, int]:
    by_key = {text_key(record): record for record in records}
    numbers = intern(connection, known, table, by_key.keys(), lambda key: {"record": by_key[key]})
    return {by_key[key]: number for key, number in numbers.items()}
