"""Bundles: runs with all that a diff or a report needs, in one file that merges into any database."""

from __future__ import annotations

import base64
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Connection, select, update

from reprodb import codec
from reprodb.digest import sha256
from reprodb.domain import Run
from reprodb.errors import StoreError, UsageError
from reprodb.files import put_in_place
from reprodb.store import bundle_format as form
from reprodb.store import tables as t
from reprodb.store.bundle_read import Bundle, Row
from reprodb.store.intern import Known, batches
from reprodb.store.patterns import read_blobs, split_digests, write_patterns, write_unkept
from reprodb.store.read import Seen, read_results, read_runs, result_query, run_query
from reprodb.store.store import Store
from reprodb.store.write import finish_run, one_case, write_results, write_run

_PAGES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Imported:
    """What importing did: counts of what was new, and of what the database had already."""

    new_runs: int
    known_runs: int
    new_results: int
    known_results: int


# --- Export ------------------------------------------------------------------------------------


def export(store: Store, run_ids: Iterable[int], path: Path) -> int:
    """Writes the runs into a bundle; returns its size in bytes.

    The same content gives the same bytes. An existing file is replaced, whole or not at all.
    Raises UsageError where there is no such run, StoreError where the bundle would be too large.
    """
    numbers = sorted(set(run_ids))
    if not numbers:
        raise UsageError("no run to export", remedy="name one: reprodb export latest -o FILE")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}", remedy="make the folder first")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            new = Path(folder) / "new"
            store.read(lambda connection, seen: _write(connection, seen, numbers, new))
            size = new.stat().st_size
            if size > form.LARGEST_FILE:
                raise _too_large(f"{size} bytes")
            with new.open("rb") as file:
                os.fsync(file.fileno())
            put_in_place(new, path)
    except zipfile.LargeZipFile:
        raise _too_large("more than a zip file holds") from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}", remedy="free space, or name another"
        ) from None
    return size


def _too_large(what: str) -> StoreError:
    return StoreError(f"the bundle would have {what}", remedy="export fewer runs at a time")


def _write(connection: Connection, seen: Seen, numbers: Sequence[int], path: Path) -> None:
    members: dict[str, bytes] = {}
    cases: dict[str, form.CaseLine] = {}
    builds: dict[str, str | None] = {}
    digests: set[str] = set()
    uids = []
    for number in numbers:
        found = read_runs(connection, seen, run_query().where(t.runs.c.id == number))
        if not found:
            raise UsageError(f"there is no run {number}")
        run, position = found[0]
        uids.append(run.uid)
        lines = []
        stored = read_results(connection, seen, result_query().where(t.results.c.run_id == number))
        for one in sorted(stored, key=lambda s: s.result.row):
            case = form.CaseLine(one_case(one.result), one.result.input_digest)
            key = case.key
            cases[key] = case
            if one.build is not None:
                builds[one.build] = None
            digests.update(p.sha256 for output in one.result.outputs for p in output.patterns)
            lines.append(form.result_line(one.result, key, one.build, accepted=one.accepted))
        head = form.RunLine(form.plain_run(run), position)
        members[f"runs/{run.uid}.jsonl"] = _lines([head, *lines])
    build_lines = _build_lines(connection, seen, list(builds))
    pattern_lines = _pattern_lines(connection, sorted(digests))
    for name, values in (
        (form.CASES, [cases[key] for key in sorted(cases)]),
        (form.BUILDS, build_lines),
        (form.PATTERNS, pattern_lines),
    ):
        if values:
            members[name] = _lines(values)
    texts = {d for line in build_lines for d in (line.ptx, line.sass) if d is not None}
    large = {line.sha256: line for line in pattern_lines if line.kept and line.data is None}
    _write_zip(connection, path, uids, members=members, texts=texts, large=large)


def _lines(values: Iterable[object]) -> bytes:
    return "".join(codec.dumps(value) + "\n" for value in values).encode()


def _build_lines(connection: Connection, seen: Seen, keys: list[str]) -> list[form.BuildLine]:
    by_key = dict(seen.builds.values())
    ptx, sass = select(t.blobs).subquery(), select(t.blobs).subquery()
    lines = {}
    for batch in batches(keys):
        query = (
            select(t.builds.c.digest, ptx.c.digest.label("ptx"), sass.c.digest.label("sass"))
            .outerjoin(ptx, ptx.c.id == t.builds.c.ptx_id)
            .outerjoin(sass, sass.c.id == t.builds.c.sass_id)
            .where(t.builds.c.digest.in_(batch))
        )
        for row in connection.execute(query):
            lines[row.digest] = form.BuildLine(by_key[row.digest], row.ptx, row.sass)
    return [lines[key] for key in sorted(lines)]


def _pattern_lines(connection: Connection, digests: list[str]) -> list[form.PatternLine]:
    lines = []
    for batch in batches(digests):
        query = select(
            t.patterns.c.digest, t.patterns.c.size, t.patterns.c.data, t.patterns.c.pages, t.patterns.c.kept
        )
        for row in connection.execute(
            query.where(t.patterns.c.digest.in_(batch)).order_by(t.patterns.c.digest)
        ):
            data = None if row.data is None else base64.b64encode(row.data).decode()
            pages = split_digests(row.pages or b"")
            lines.append(form.PatternLine(row.digest, row.size, data, pages, row.kept))
    return lines


def _write_zip(
    connection: Connection,
    path: Path,
    uids: Iterable[str],
    *,
    members: dict[str, bytes],
    texts: Iterable[str],
    large: dict[str, form.PatternLine],
) -> None:
    """The archive, manifest first, then members by name, all with one date and one set of rights."""
    sizes = dict.fromkeys((f"texts/{d}" for d in texts), 0)
    for batch in batches(sorted(texts)):
        query = select(t.blobs.c.digest, t.blobs.c.size).where(t.blobs.c.digest.in_(batch))
        sizes.update((f"texts/{d}", size) for d, size in connection.execute(query))
    sizes |= {f"large/{d}": line.size for d, line in large.items()}
    listed = {name: form.Member(sha256(data), len(data)) for name, data in members.items()}
    listed |= {name: form.Member(name.partition("/")[2], size) for name, size in sizes.items()}
    if len(listed) >= form.MOST_MEMBERS:
        raise _too_large(f"{len(listed)} members")
    total = sum(member.size for member in listed.values())
    lines = max((len(data) for data in members.values()), default=0)
    if total > form.LARGEST_TOTAL or lines > form.LARGEST_LINES:
        raise _too_large(f"{total} bytes unpacked")
    manifest = form.Manifest(form.SCHEMA, tuple(sorted(uids)), listed)
    with zipfile.ZipFile(path, "w", allowZip64=False) as archive:
        archive.writestr(_info(form.MANIFEST), codec.dumps(manifest))
        for name in sorted(listed):
            if name in members:
                archive.writestr(_info(name), members[name])
                continue
            info = _info(name)
            info.file_size = listed[name].size
            digest = name.partition("/")[2]
            pages = large[digest].pages if name.startswith("large/") else (digest,)
            with archive.open(info, "w") as member:
                for start in range(0, len(pages), _PAGES_AT_ONCE):
                    some = pages[start : start + _PAGES_AT_ONCE]
                    blobs = read_blobs(connection, some)
                    for page in some:
                        if page not in blobs:
                            raise StoreError(f"{name} lacks its page {page}", remedy="reprodb db check")
                        member.write(blobs[page])


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # of 1980, as a date that is always the same
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = 0o100644 << 16
    return info


# --- Import ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """Bundles that passed every check, and the runs that they hold together."""

    bundles: tuple[Bundle, ...]
    merged: dict[str, _Merged]


@contextmanager
def checked(paths: Iterable[Path]) -> Iterator[Checked]:
    """Bundles, each checked whole and against the others; needs no database, which then need not be there.

    Raises StoreError for one that fails any check, and where one run has two different results for a row: it
    names both sources.
    """
    with ExitStack() as stack:
        bundles = tuple(stack.enter_context(Bundle(path)) for path in paths)
        if not bundles:
            raise UsageError("no bundle to import", remedy="name one: reprodb import FILE")
        yield Checked(bundles, _merge(bundles))


def merge(store: Store, whole: Checked) -> Imported:
    """Merges checked bundles into the database in one transaction; again is no change.

    Raises StoreError where the database has another result for a row: it names both sources.
    """
    return store.write(
        lambda connection, known: _import(connection, known, str(store.location), whole.bundles, whole.merged)
    )


def import_bundle(store: Store, paths: Iterable[Path]) -> Imported:
    """Checks bundles and merges them into an open database. Raises as both steps do."""
    with checked(paths) as whole:
        return merge(store, whole)


@dataclass(slots=True)
class _Merged:
    """A run as all bundles of one import have it, each row with the bundle that it is from."""

    head: form.RunLine
    source: str
    rows: dict[tuple[str, ...], tuple[Row, str]]
    accepted: set[tuple[str, ...]]


def _merge(bundles: Iterable[Bundle]) -> dict[str, _Merged]:
    merged: dict[str, _Merged] = {}
    for bundle in bundles:
        source = f"bundle {bundle.path}"
        for uid, bundled in bundle.runs.items():
            one = merged.setdefault(uid, _Merged(bundled.head, source, {}, set()))
            one.head = _merge_heads(one.head, one.source, bundled.head, source)
            for row in bundled.rows:
                place = row.result.row
                other, whence = one.rows.setdefault(place, (row, source))
                if _bits(other.line) != _bits(row.line):
                    raise _conflict(uid, place, whence, source)
                if row.accepted:
                    one.accepted.add(place)
    return merged


def _bits(line: form.ResultLine) -> str:
    """All that must be the same for two results to be one. Acceptance may come later."""
    return codec.dumps(replace(line, accepted=False))


def _merge_heads(a: form.RunLine, a_source: str, b: form.RunLine, b_source: str) -> form.RunLine:
    """The run as the bundle knows it that was written later: finished, with its exit code and canaries."""
    if _begun(a.run) != _begun(b.run) or a.position != b.position:
        raise _conflict(a.run.uid, (), a_source, b_source)
    for one, other in ((a, b), (b, a)):
        if one.run.finished_at is None:
            return other
    if a.run.finished_at != b.run.finished_at or a.run.canaries != b.run.canaries:
        raise _conflict(a.run.uid, (), a_source, b_source)
    for one, other in ((a, b), (b, a)):
        if one.run.exit_code is None:
            return other
    if a.run.exit_code != b.run.exit_code:
        raise _conflict(a.run.uid, (), a_source, b_source)
    return a


def _begun(run: Run) -> Run:
    """What of a run is known when it begins."""
    return replace(run, id=None, finished_at=None, exit_code=None, canaries=())


def _conflict(uid: str, place: Sequence[str], a: str, b: str) -> StoreError:
    row = "/".join(place)
    what = f"other bits for {row}" if row else "other settings"
    return StoreError(
        f"run {uid} has {what} in {a} and in {b}",
        remedy="nothing was imported; one of the two is not what it says it is",
    )


def _import(
    connection: Connection, known: Known, location: str, bundles: Sequence[Bundle], merged: dict[str, _Merged]
) -> Imported:
    for bundle in bundles:
        _import_patterns(connection, known, bundle)
    counts = [0, 0, 0, 0]
    for uid in sorted(merged, key=lambda uid: (merged[uid].head.position, uid)):
        one = merged[uid]
        existing = _existing(connection, uid)
        if existing is None:
            counts[0] += 1
            run_id = write_run(connection, known, one.head.run, one.head.position)
            there: dict[tuple[str, ...], tuple[int, str]] = {}
        else:
            counts[1] += 1
            head, run_id = existing
            here = f"{location} (run {run_id})"
            whole = _merge_heads(head, here, one.head, one.source).run
            if whole.finished_at is not None and whole != head.run:
                finish_run(
                    connection,
                    known,
                    replace(head.run, id=run_id),
                    whole.exit_code,
                    whole.finished_at,
                    canaries=whole.canaries,
                )
            there = _rows(connection, run_id)
            for place, (row, source) in one.rows.items():
                if place in there and there[place][1] != _bits(row.line):
                    raise _conflict(uid, place, here, source)
        fresh = [(place, row) for place, (row, _) in sorted(one.rows.items()) if place not in there]
        numbers = write_results(
            connection, known, one.head.run, run_id, [(row.result, row.artifact) for _, row in fresh]
        )
        counts[2] += len(fresh)
        counts[3] += len(one.rows) - len(fresh)
        ids = {place: number for (place, _), number in zip(fresh, numbers, strict=True)}
        ids |= {place: number for place, (number, _) in there.items()}
        for batch in batches(sorted(ids[place] for place in one.accepted)):
            connection.execute(
                update(t.results).where(t.results.c.id.in_(batch)).values(accepted=one.head.position)
            )
    return Imported(*counts)


def _import_patterns(connection: Connection, known: Known, bundle: Bundle) -> None:
    write_patterns(connection, known, bundle.data)
    unkept = {}
    for line in bundle.patterns.values():
        if line.data is None and line.kept:
            write_patterns(connection, known, {line.sha256: bundle.large(line.sha256)}, keep=True)
        elif line.data is None:
            unkept[line.sha256] = (line.size, bytes.fromhex("".join(line.pages)))
    write_unkept(connection, known, unkept)


def _existing(connection: Connection, uid: str) -> tuple[form.RunLine, int] | None:
    found = read_runs(connection, Seen(), run_query().where(t.runs.c.uid == uid))
    if not found:
        return None
    run, position = found[0]
    assert run.id is not None  # noqa: S101 -- read from its row
    return form.RunLine(form.plain_run(run), position), run.id


def _rows(connection: Connection, run_id: int) -> dict[tuple[str, ...], tuple[int, str]]:
    """The run's results as the database has them: number and bits by row."""
    found: dict[tuple[str, ...], tuple[int, str]] = {}
    for one in read_results(connection, Seen(), result_query().where(t.results.c.run_id == run_id)):
        key = form.CaseLine(one_case(one.result), one.result.input_digest).key
        line = form.result_line(one.result, key, one.build, accepted=False)
        assert one.result.id is not None  # noqa: S101 -- read from its row
        found[one.result.row] = (one.result.id, _bits(line))
    return found
