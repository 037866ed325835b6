"""The rows that two sides have in common, for commands that look into differences."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from reprodb.errors import UsageError
from reprodb.stress import PLAIN

if TYPE_CHECKING:
    from reprodb.domain import Run
    from reprodb.findings import Comparison
    from reprodb.store.store import Store
    from reprodb.store.values import RunRef

    Row = tuple[Comparison, Run | None, Run]


def common_rows(
    command: str,
    store: Store,
    baseline: str,
    candidate: str,
    kernel: str | None,
    cases: tuple[str, ...],
    ledger: Path | None,
) -> list[Row]:
    """The rows that both sides have, each with the runs of its sides. `command` is who asks.

    Rows under a stress are left out, and programs, which reprodb does not compile; UsageError where a program
    is all that was asked for.
    """
    left, right = store.resolve(baseline), store.resolve(candidate)
    if right.run_id is None:
        raise UsageError(
            f"the candidate cannot be {candidate!r}",
            allowed="`baseline` on the left: it is the reference of each row on the right",
            remedy=f"reprodb {command} {candidate} {baseline}",
        )
    rows = [row for row in _compared(store, left, right, ledger) if row[0].baseline and row[0].candidate]
    for what, globs, names in (
        ("kernel", (kernel,) if kernel else (), {row[0].kernel for row in rows}),
        ("case", cases, {row[0].case for row in rows}),
    ):
        _check_known(what, globs, names)
    asked = [
        row
        for row in rows
        if (kernel is None or fnmatchcase(row[0].kernel, kernel))
        and (not cases or any(fnmatchcase(row[0].case, glob) for glob in cases))
        and row[0].either.condition == PLAIN
    ]
    compiled = [row for row in asked if row[0].either.kernel.program is None]
    if asked and not compiled:
        programs = ", ".join(dict.fromkeys(row[0].kernel for row in asked))
        raise UsageError(
            f"{command} builds kernels again in other ways, and {programs} is a program of its own",
            allowed="kernels that reprodb compiles",
            remedy=f"reprodb diff {baseline} {candidate} has its measured order and its libraries' versions",
        )
    return compiled


def _check_known(what: str, globs: Iterable[str], names: set[str]) -> None:
    from difflib import get_close_matches

    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            near = get_close_matches(glob, names, n=3, cutoff=0.5)
            raise UsageError(
                f"no {what} {glob!r} is on both sides",
                allowed=", ".join(sorted(names)) or "nothing: the two sides have no row in common",
                remedy=f"did you mean {' or '.join(near)}?" if near else "",
            )


def _compared(store: Store, left: RunRef, right: RunRef, ledger: Path | None) -> list[Row]:
    """Every row, whatever keeps `diff` from comparing it: another lane, GPU or input is a cause here."""
    from reprodb.cli.judging import ledger_at, load_references
    from reprodb.compare import ACROSS, Side, compare_references, compare_runs

    def side(ref: RunRef) -> Side:
        number = ref.run_id or 0
        return Side(store.run(number), store.results(number, profile=ref.profile, kernel=ref.kernel))

    new = side(right)
    if left.run_id is None:
        references = load_references(store, new.run, new.results, ledger_at(ledger), datetime.now(UTC))
        comparisons = compare_references(references, new, store.pattern, across=ACROSS)
        runs = {row: run for row, (_, run, _) in references.items()}
        return [(c, runs.get(c.either.row), new.run) for c in comparisons]
    old = side(left)
    comparisons = compare_runs(
        old,
        new,
        store.pattern,
        by_profile=not (left.profile and right.profile),
        by_kernel=not (left.kernel and right.kernel),
        across=ACROSS,
    )
    return [(c, old.run, new.run) for c in comparisons]
