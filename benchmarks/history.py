"""A long history: diff, history and recording beside 1,000,000 results, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

from benchmarks.harness import Row, Spread, pair, seconds
from reprodb.domain import Result, Run
from reprodb.store import open_store
from reprodb.store.opening import upgrade
from reprodb.store.store import Store
from tests.builders import STARTED, make_output, make_result, make_run, word
from tests.store import server

RESULTS = int(os.environ.get("REPRODB_BENCH_RESULTS", "1000000"))
A_NIGHT = 2000
PROFILES = 10
MOVED_A_NIGHT = 20  # results with bits that nobody has seen before
MOST_BYTES = 400  # a result
SITE_NIGHTS = 60
SITE_ROWS = 30  # three kernels under ten profiles


@dataclass(frozen=True, slots=True)
class Database:
    """A kind of database: how rows name it, a new one's place, and the bytes that one takes."""

    name: str
    make: Callable[[str], str]
    size: Callable[[str], int]


def suite_rows() -> list[Result]:
    """The rows of a night: 200 kernels under 10 profiles, one pattern each."""
    rows = []
    for kernel in range(A_NIGHT // PROFILES):
        one = make_result([word(f"0x{kernel:08x}")] * 100, kernel=f"kernel_{kernel:03}")
        rows += [replace(one, profile=f"profile_{profile}") for profile in range(PROFILES)]
    return rows


def _night(rows: list[Result], number: int, moved: int) -> list[Result]:
    """The rows as night `number` found them, so many of them moved."""
    found = list(rows)
    for place in range(number * moved, (number + 1) * moved):
        row = place % len(found)
        bits = word(f"0x{0x4B000000 + place:08x}")
        found[row] = replace(found[row], outputs=(make_output([bits] * 100),))
    return found


def _record(store: Store, results: list[Result], number: int, kind: str = "run") -> int:
    began = STARTED + timedelta(days=number)
    run = replace(make_run(number), uid=f"night-{number:06}", kind=kind, id=None, started_at=began)
    run = replace(run, finished_at=None)
    run_id = store.begin(run)
    store.record_many(run_id, [(result, None) for result in results])
    store.finish(run_id, 0, began + timedelta(hours=1))
    return run_id


def fill(location: str, nights: int, rows: list[Result], moved: int = MOVED_A_NIGHT) -> None:
    """Nights of these results, through the store's own interface."""
    with open_store(location, write=True) as store:
        for number in range(nights):
            _record(store, _night(rows, number, moved), number)


def installed(folder: Path) -> dict[str, str]:
    """The environment with compiled bytecode, as an installation has it, kept in this folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def _night_accepted(location: str, number: int) -> None:
    """One nightly of a site: a few rows, one of them moved, the others accepted."""
    rows = _night(suite_rows()[:SITE_ROWS], number, moved=1)
    with open_store(location, write=True) as store:
        run_id = _record(store, rows, number, kind="nightly")
        seen = number % SITE_ROWS
        store.accept(r.id for place, r in enumerate(store.results(run_id)) if r.id and place != seen)


def _site(kind: Database, folder: Path) -> Row:
    """The site of a folder that is there already after one more night, against the same site from nothing."""
    from reprodb.cli.show import site

    def build(out: Path) -> None:
        with redirect_stdout(StringIO()):
            site(out, db=location)

    location = kind.make("site")
    for number in range(SITE_NIGHTS):
        _night_accepted(location, number)
    kept, anew = [], []
    build(folder / "site")
    for number in range(SITE_NIGHTS, SITE_NIGHTS + 3):
        _night_accepted(location, number)
        kept.append(seconds(lambda: build(folder / "site")))
        anew.append(seconds(lambda out=folder / f"site-{number}": build(out)))  # type: ignore[misc]
    return Row(
        f"{kind.name}: site after one more night of {SITE_ROWS}",
        "-",
        Spread.of(kept),
        f"all {SITE_NIGHTS + 1} nights from nothing",
        Spread.of(anew),
        Spread.of([a / b for a, b in zip(kept, anew, strict=True)]),
    )


def _command(environment: dict[str, str], database: str, *words: str) -> Callable[[], object]:
    command = [sys.executable, "-m", "reprodb", *words, "--db", database, "--json"]
    return lambda: subprocess.run(command, check=False, capture_output=True, env=environment)


def _diff(location: str) -> Callable[[], object]:
    """What `reprodb diff` does once it is loaded: read two runs, compare, judge, and write the JSON."""
    from reprodb.cli.diff import _judged
    from reprodb.render import json

    def work() -> str:
        with open_store(location) as store:
            return json.dumps(json.diff(_judged(store, "latest~1", "latest", None, None, frozenset())))

    return work


def _history(location: str) -> Callable[[], object]:
    """What `reprodb history` does once it is loaded: the newest hundred results of a kernel and profile."""

    def work() -> object:
        with open_store(location) as store:
            return store.history("kernel_007", profile="profile_3", limit=100)

    return work


def _recording(location: str, *, together: bool = False) -> Callable[[], object]:
    """A thousand results of a night: in transactions of one, as a run records them, or of all `together`."""
    store = open_store(location, write=True).__enter__()
    rows = suite_rows()[:1000]
    began = len(store.runs())
    numbers = iter(range(began, began + 100_000))

    def thousand() -> None:
        run: Run = replace(make_run(1), uid=f"timed-{next(numbers)}", id=None, finished_at=None)
        run_id = store.begin(run)
        if together:
            store.record_many(run_id, [(row, None) for row in rows])
        else:
            for row in rows:
                store.record(run_id, row)

    return thousand


@contextmanager
def databases(folder: Path) -> Iterator[tuple[Database, ...]]:
    """Both kinds. PostgreSQL is a server of its own with its own defaults: it waits for its disk."""
    with server.postgresql() as new:

        def upgraded(_: str) -> str:
            url = new()
            upgrade(url)
            return url

        def bytes_of(url: str) -> int:
            """The whole database, indexes and PostgreSQL's own tables included."""
            with open_store(url) as store:
                size: int = store.read(
                    lambda connection, _: connection.exec_driver_sql(
                        "SELECT pg_database_size(current_database())"
                    ).scalar_one()
                )
                return size

        yield (
            Database("SQLite", lambda name: str(folder / f"{name}.db"), lambda p: Path(p).stat().st_size),
            Database("PostgreSQL", upgraded, bytes_of),
        )


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name, databases(folder := Path(name)) as kinds:
        environment = installed(folder)
        filled = [(kind, *_filled(kind)) for kind in kinds]
        found = [row for kind, large, small in filled for row in _rows(kind, large, small, environment)]
        return found + [_site(kind, folder / kind.name) for kind in kinds]


def _filled(kind: Database) -> tuple[str, str]:
    """A database of many nights and one of two."""
    large, small = kind.make("large"), kind.make("small")
    fill(large, _nights(), suite_rows())
    fill(small, 2, suite_rows())
    return large, small


def _nights() -> int:
    return max(2, RESULTS // A_NIGHT)


def _rows(kind: Database, large: str, small: str, environment: dict[str, str]) -> list[Row]:
    nights = _nights()
    size = kind.size(large) / (nights * A_NIGHT)
    beside = f"beside {nights * A_NIGHT:,} results"
    words = ("history", "kernel_007", "--profile", "profile_3", "--limit", "100")

    def row(
        name: str,
        work: Callable[[str], Callable[[], object]],
        goal: float | None = None,
        goal_ratio: float | None = None,
        *,
        rounds: int = 5,
    ) -> Row:
        return pair(
            f"{kind.name}: {name}",
            work(large),
            "the same on two nights alone",
            work(small),
            lane="-",
            rounds=rounds,
            goal=goal,
            goal_ratio=goal_ratio,
        )

    return [
        row(f"diff of two runs of 2,000, {beside}", _diff, 1.0, 1.3),
        row(
            "the same as a command, start-up included",
            lambda at: _command(environment, at, "diff", "latest~1", "latest"),
        ),
        row(f"history of a kernel and profile, {beside}", _history, 0.3),
        row("history as a command, start-up included", lambda at: _command(environment, at, *words)),
        row(f"recording 1,000 results one by one, {beside}", _recording, 1.0, rounds=3),
        row("recording them in one transaction", lambda at: _recording(at, together=True), 1.0, rounds=3),
        Row(
            f"{kind.name}: bytes a result, {beside}",
            "-",
            Spread(size, size, size),
            "allowed",
            Spread(MOST_BYTES, MOST_BYTES, MOST_BYTES),
            Spread(*[size / MOST_BYTES] * 3),
            goal=MOST_BYTES,
            unit="bytes",
        ),
    ]
