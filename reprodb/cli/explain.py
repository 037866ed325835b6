"""`reprodb explain A B [KERNEL]`: which of the changes moved the bits, found by exchanging some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import (
    DatabaseOption,
    DeviceOption,
    JobsOption,
    JsonOption,
    LedgerOption,
    QuietOption,
    StoreOption,
    TimeoutOption,
)
from reprodb.errors import Exit, UsageError

if TYPE_CHECKING:
    from reprodb.conclusions import Explanation
    from reprodb.domain import Run, Toolchain
    from reprodb.findings import Comparison
    from reprodb.recovery import Compilers
    from reprodb.store.store import Store
    from reprodb.store.values import RunRef

    Row = tuple[Comparison, Run | None, Run]


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    baseline: Annotated[
        str, typer.Argument(help="Left side: id, label, latest~N, baseline; RUN:PROFILE[:KERNEL].")
    ],
    candidate: Annotated[str, typer.Argument(help="Right side, likewise.")],
    kernel: Annotated[
        str | None, typer.Argument(metavar="KERNEL", help="Only this kernel (a glob); all by default.")
    ] = None,
    *,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only these cases (repeatable, globs).")
    ] = None,
    suite: Annotated[
        list[Path] | None,
        typer.Option(
            "--suite", metavar="PATH", help="Where sources are looked for (repeatable); the bundled suite."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=4, max=10_000, help="Most experiments a row.")
    ] = 100,
    every: Annotated[
        bool, typer.Option("--every", help="Go on after the candidate's bits were found, to every set.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Install the toolchains that are missing.")
    ] = False,
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-n", min=1, max=1_000_000, help="Executions an experiment.")
    ] = 20,
    device: DeviceOption = "auto",
    database: DatabaseOption = None,
    store: StoreOption = None,
    ledger: LedgerOption = None,
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the smallest changes that move the bits, by executing with some of the differences exchanged.

    Exit 0 where every row whose bits differ is explained (or none differs), 4 where one is not.
    """
    from reprodb.cli.flow import RunOptions, opened_bench, terminated_as_interrupt
    from reprodb.cli.progress import listener
    from reprodb.experiments import Laboratory, Workshop
    from reprodb.explanation import Means, moved
    from reprodb.explanation import explain as explain_row
    from reprodb.recovery import Library
    from reprodb.render import explain as render
    from reprodb.store import open_store
    from reprodb.suite import bundled_suite

    with open_store(database) as opened:
        rows = _rows(opened, baseline, candidate, kernel, tuple(case or ()), ledger)
        differing = [row for row in rows if moved(row[0])]
        found: list[Explanation] = []
        if differing:
            options = RunOptions(device=device, store=store, timeout=timeout, jobs=jobs)
            with (
                listener(quiet=quiet) as said,
                terminated_as_interrupt(),
                opened_bench(options, said) as bench,
            ):
                means = Means(
                    Laboratory(
                        Workshop(bench.store, jobs), bench.pool, bench.platform, repetitions=repetitions
                    ),
                    Library(suite or [bundled_suite()]),
                    _compilers(install, said.said),
                    limit,
                    every,
                    said.said,
                )
                found = [explain_row(*row, means) for row in differing]
    code = Exit.CLEAN if rows and all(one.explained for one in found) else Exit.NO_ANSWER
    names = (baseline, candidate)
    if as_json:
        from reprodb.render.json import dumps

        typer.echo(dumps(render.document(names, len(rows), found, code)), nl=False)
    else:
        for line in render.lines(names, len(rows), found, quiet=quiet):
            typer.echo(line)
    raise typer.Exit(int(code))


def _compilers(install: bool, say: Callable[[str], None]) -> Compilers:
    from reprodb.recovery import Compilers
    from reprodb.toolchains import catalog
    from reprodb.toolchains.install import install as put_in_cache

    def fetch(compiler: str, version: str) -> Toolchain:
        return put_in_cache(compiler, version, say=say)

    return Compilers(catalog.find(), fetch if install else None)


# --- Rows --------------------------------------------------------------------------------------


def _rows(
    store: Store,
    baseline: str,
    candidate: str,
    kernel: str | None,
    cases: tuple[str, ...],
    ledger: Path | None,
) -> list[Row]:
    """The rows that both sides have, each with the runs of its sides."""
    left, right = store.resolve(baseline), store.resolve(candidate)
    if right.run_id is None:
        raise UsageError(
            f"the candidate cannot be {candidate!r}",
            allowed="`baseline` on the left: it is the reference of each row on the right",
            remedy=f"reprodb explain {candidate} {baseline}",
        )
    rows = [row for row in _compared(store, left, right, ledger) if row[0].baseline and row[0].candidate]
    for what, globs, names in (
        ("kernel", (kernel,) if kernel else (), {row[0].kernel for row in rows}),
        ("case", cases, {row[0].case for row in rows}),
    ):
        _check_known(what, globs, names)
    return [
        row
        for row in rows
        if (kernel is None or fnmatchcase(row[0].kernel, kernel))
        and (not cases or any(fnmatchcase(row[0].case, glob) for glob in cases))
    ]


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
