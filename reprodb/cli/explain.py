"""`reprodb explain A B [KERNEL]`: which of the changes moved the bits, found by exchanging some of them."""

from __future__ import annotations

from collections.abc import Callable
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
    own_suites,
)
from reprodb.errors import Exit

if TYPE_CHECKING:
    from reprodb.conclusions import Explanation
    from reprodb.domain import Toolchain
    from reprodb.recovery import Compilers


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
            "--suite",
            metavar="PATH",
            callback=own_suites,
            help="Where sources are looked for (repeatable); reprodb.toml's, else the bundled suite.",
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
    from reprodb.cli.flow import RunOptions, opened_bench
    from reprodb.cli.progress import listener
    from reprodb.cli.rows import common_rows
    from reprodb.experiments import Laboratory, Workshop
    from reprodb.explanation import Means, moved
    from reprodb.explanation import explain as explain_row
    from reprodb.recovery import Library
    from reprodb.render import explain as render
    from reprodb.store import open_store
    from reprodb.suite import bundled_suite

    with open_store(database) as opened:
        rows = common_rows("explain", opened, baseline, candidate, kernel, tuple(case or ()), ledger)
        differing = [row for row in rows if moved(row[0])]
        found: list[Explanation] = []
        if differing:
            options = RunOptions(device=device, store=store, timeout=timeout, jobs=jobs)
            with (
                listener(quiet=quiet) as said,
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
