"""Comparing two runs of 2,000 results, code diffs of 50 included, against a bare pass over digests."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Row, pair
from reprodb.compare import Side, compare_runs
from reprodb.domain import Result
from tests.builders import ATOMIC_TOTAL, make_build, make_result, make_run, store_of

ROWS = 2000
CHANGED_EVERY = 40


def _changed(result: Result, number: int) -> Result:
    """The result with other bits and other code."""
    other = make_result([ATOMIC_TOTAL] * 100, kernel=result.kernel.name)
    code = result.build.code if result.build else None
    return replace(other, build=make_build(code=replace(code, sass=f"sass-{number}"))) if code else other


def rows() -> list[Row]:
    old = tuple(make_result(kernel=f"k{number}") for number in range(ROWS))
    new = tuple(_changed(r, n) if n % CHANGED_EVERY == 0 else r for n, r in enumerate(old))
    fetch = store_of(*old, *new).__getitem__
    before, after = Side(make_run(1), old), Side(make_run(2), new)

    def digests() -> object:
        return [
            [o.sha256 for o in a.outputs] == [o.sha256 for o in b.outputs]
            for a, b in zip(old, new, strict=True)
        ]

    return [
        pair(
            "diff of 2,000 rows",
            lambda: compare_runs(before, after, fetch),
            "digests compared alone",
            digests,
            lane="-",
            goal=1.0,
        )
    ]
