"""A long history: diff, history and recording beside 1,000,000 results, against a database of two nights."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from benchmarks.harness import Row, Spread, pair
from reprodb.domain import Result, Run
from reprodb.store import open_store
from reprodb.store.store import Store
from tests.builders import STARTED, make_output, make_result, make_run, word

RESULTS = int(os.environ.get("REPRODB_BENCH_RESULTS", "1000000"))
A_NIGHT = 2000
PROFILES = 10
MOVED_A_NIGHT = 20  # results with bits that nobody has seen before
MOST_BYTES = 400  # a result


def _suite() -> list[Result]:
    """The rows of a night: 200 kernels under 10 profiles, one pattern each."""
    return [
        make_result(
            [word(f"0x{kernel:08x}")] * 100, kernel=f"kernel_{kernel:03}", profile=f"profile_{profile}"
        )
        for kernel in range(A_NIGHT // PROFILES)
        for profile in range(PROFILES)
    ]


def _night(rows: list[Result], number: int) -> list[Result]:
    """The rows as night `number` found them, a few of them moved."""
    found = list(rows)
    for place in range(MOVED_A_NIGHT):
        row = (number * MOVED_A_NIGHT + place) % len(found)
        bits = word(f"0x{0x4B000000 + number * MOVED_A_NIGHT + place:08x}")
        found[row] = replace(found[row], outputs=(make_output([bits] * 100),))
    return found


def _record(store: Store, results: list[Result], number: int) -> int:
    began = STARTED + timedelta(days=number)
    run = replace(make_run(number), uid=f"night-{number:06}", id=None, started_at=began, finished_at=None)
    run_id = store.begin(run)
    store.record_many(run_id, [(result, None) for result in results])
    store.finish(run_id, 0, began + timedelta(hours=1))
    return run_id


def fill(location: str, nights: int) -> None:
    """Nights of 2,000 results, through the store's own interface."""
    rows = _suite()
    with open_store(location, write=True) as store:
        for number in range(nights):
            _record(store, _night(rows, number), number)


def _command(database: str, *words: str) -> Callable[[], object]:
    command = [sys.executable, "-m", "reprodb", *words, "--db", database, "--json"]
    return lambda: subprocess.run(command, check=False, capture_output=True)


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


def _recording(location: str) -> Callable[[], object]:
    """A thousand results of a night that goes on, in transactions of one, as a run records them."""
    store = open_store(location, write=True).__enter__()
    rows = _suite()[:1000]
    numbers = iter(range(100_000, 200_000))

    def thousand() -> None:
        run: Run = replace(make_run(1), uid=f"timed-{next(numbers)}", id=None, finished_at=None)
        run_id = store.begin(run)
        for row in rows:
            store.record(run_id, row)

    return thousand


def rows() -> list[Row]:
    nights = max(2, RESULTS // A_NIGHT)
    with tempfile.TemporaryDirectory() as folder:
        large, small = (str(Path(folder) / name) for name in ("large.db", "small.db"))
        fill(large, nights)
        fill(small, 2)
        size = Path(large).stat().st_size / (nights * A_NIGHT)
        beside = f"beside {nights * A_NIGHT:,} results"
        words = ("history", "kernel_007", "--profile", "profile_3", "--limit", "100")
        alone = "the same on two nights alone"
        return [
            pair(
                f"diff of two runs of 2,000, {beside}",
                _diff(large),
                alone,
                _diff(small),
                lane="-",
                rounds=5,
                goal=1.0,
                goal_ratio=1.3,
            ),
            pair(
                "the same as a command, start-up included",
                _command(large, "diff", "latest~1", "latest"),
                alone,
                _command(small, "diff", "latest~1", "latest"),
                lane="-",
                rounds=5,
            ),
            pair(
                f"history of a kernel and profile, {beside}",
                _history(large),
                alone,
                _history(small),
                lane="-",
                rounds=5,
                goal=0.3,
            ),
            pair(
                "history as a command, start-up included",
                _command(large, *words),
                alone,
                _command(small, *words),
                lane="-",
                rounds=5,
            ),
            pair(
                f"recording 1,000 results, {beside}",
                _recording(large),
                "the same on two nights alone",
                _recording(small),
                lane="-",
                rounds=3,
                goal=1.0,
            ),
            Row(
                f"bytes a result, {beside}",
                "-",
                Spread(size, size, size),
                "allowed",
                Spread(MOST_BYTES, MOST_BYTES, MOST_BYTES),
                Spread(*[size / MOST_BYTES] * 3),
                goal=MOST_BYTES,
                unit="bytes",
            ),
        ]
