"""`reprodb trace A B KERNEL`: down to the first instruction whose value differs between two builds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import (
    DatabaseOption,
    JobsOption,
    JsonOption,
    LedgerOption,
    QuietOption,
    StoreOption,
    TimeoutOption,
    own_suites,
)
from reprodb.errors import Exit, UsageError

if TYPE_CHECKING:
    from reprodb.findings import Comparison
    from reprodb.tracing import Choice, Trace


def register(app: typer.Typer) -> None:
    app.command("trace")(trace)


def trace(
    baseline: Annotated[
        str,
        typer.Argument(metavar="A", help="Left side: id, label, latest~N, baseline; RUN:PROFILE[:KERNEL]."),
    ],
    candidate: Annotated[str, typer.Argument(metavar="B", help="Right side, likewise.")],
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="The kernel.")],
    *,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Only this profile of both runs.")
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only these cases (repeatable, globs).")
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option("--buffer", metavar="NAME", help="The output; the first differing witness by default."),
    ] = None,
    element: Annotated[
        int | None,
        typer.Option(
            "--element", metavar="I", min=0, help="Its element; the first differing one by default."
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=1, max=20_000_000, help="Most values recorded of a block."),
    ] = 1_000_000,
    suite: Annotated[
        list[Path] | None,
        typer.Option(
            "--suite",
            metavar="PATH",
            callback=own_suites,
            help="Where sources are looked for (repeatable); reprodb.toml's, else the bundled suite.",
        ),
    ] = None,
    database: DatabaseOption = None,
    store: StoreOption = None,
    ledger: LedgerOption = None,
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Name the first value that differs between two builds: source line, thread, both instructions, bits.

    Both builds are made again with line information and one block of each is executed on the model with
    every value recorded, whatever device the runs were on. Exit 0 where the value is named or nothing
    differs, 4 where it cannot be told.
    """
    from reprodb.cli.rows import common_rows
    from reprodb.explanation import moved
    from reprodb.render import trace as render
    from reprodb.store import open_store
    from reprodb.tracing import Choice, nothing

    with open_store(database) as opened:
        rows = common_rows("trace", opened, baseline, candidate, kernel, tuple(case or ()), ledger)
        comparisons = [row[0] for row in rows if profile is None or _is_of(row[0], profile)]
        if not comparisons:
            raise UsageError(
                f"no row of {kernel} under {profile!r} is on both sides",
                allowed=", ".join(sorted({row[0].either.profile for row in rows})) or "nothing",
            )
    differing = [comparison for comparison in comparisons if moved(comparison)]
    found: Trace | None = None
    silence = "" if differing else nothing(comparisons[0])
    if differing:
        found = _traced(
            differing[0], Choice(buffer, element), suite, store, timeout, jobs, limit=limit, quiet=quiet
        )
    code = Exit.CLEAN if found is None or found.found else Exit.NO_ANSWER
    if as_json:
        from reprodb.render.json import dumps

        shown = render.document(
            (baseline, candidate), (differing or comparisons)[0], found, differing[1:], code
        )
        typer.echo(dumps(shown), nl=False)
    elif found is None:
        typer.echo(silence)
    else:
        for line in render.lines(found, differing[1:], quiet=quiet):
            typer.echo(line)
    raise typer.Exit(int(code))


def _is_of(comparison: Comparison, profile: str) -> bool:
    sides = (comparison.baseline, comparison.candidate)
    return all(side is not None and side.profile == profile for side in sides)


def _traced(
    comparison: Comparison,
    choice: Choice,
    suite: list[Path] | None,
    store: Path | None,
    timeout: float,
    jobs: int | None,
    *,
    limit: int,
    quiet: bool,
) -> Trace:
    from reprodb.cli.flow import RunOptions, opened_bench
    from reprodb.cli.progress import listener
    from reprodb.experiments import Laboratory, Workshop
    from reprodb.recovery import Compilers, Library
    from reprodb.suite import bundled_suite
    from reprodb.toolchains import catalog
    from reprodb.tracing import Means
    from reprodb.tracing import trace as trace_row

    options = RunOptions(device="model", store=store, timeout=timeout, jobs=jobs)
    with listener(quiet=quiet) as said, opened_bench(options, said) as bench:
        workshop = Workshop(bench.store, jobs)
        means = Means(
            Laboratory(workshop, bench.pool, bench.platform, repetitions=1),
            Library(suite or [bundled_suite()]),
            Compilers(catalog.find()),
            limit,
            bench.store.root.absolute() / "model",
            said.said,
        )
        return trace_row(comparison, choice, means)
