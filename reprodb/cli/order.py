"""`reprodb order KERNEL`: measure the order of a kernel's sum, and draw its tree where it is small."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reprodb.cli.options import (
    ArchOption,
    DeviceOption,
    JobsOption,
    JsonOption,
    ProfileOption,
    ProfilesFileOption,
    StoreOption,
    SuiteOption,
    TimeoutOption,
)
from reprodb.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprodb.campaign import Plan, PlannedBuild
    from reprodb.cli.flow import RunOptions
    from reprodb.domain import Fingerprint, Kernel, Result

SCHEMA = "reprodb.order/1"


def register(app: typer.Typer) -> None:
    app.command("order")(order)


def order(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="The kernel's name.")],
    *,
    n: Annotated[
        int | None,
        typer.Option("--n", min=2, help="Elements, instead of its cases'; up to 64 draw a tree."),
    ] = None,
    every_pair: Annotated[
        bool,
        typer.Option("--every-pair", help="Ask an arrival order about all pairs too, not until it differs."),
    ] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the tree's drawing.")
    ] = None,
    profile: ProfileOption = None,
    suite: SuiteOption = None,
    profiles_file: ProfilesFileOption = None,
    device: DeviceOption = "auto",
    store: StoreOption = None,
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = None,
    arch: ArchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the order in which a kernel adds its elements up, under the default profile or those named.

    A kernel that is a program is measured under the profiles that it has.

    Nothing is recorded. Exit 4 where an order could not be measured.
    """
    from reprodb.cli.flow import RunOptions
    from reprodb.errors import UsageError

    options = RunOptions(
        suite=suite,
        profiles_file=profiles_file,
        kernels=(kernel,),
        profiles=tuple(profile or ()),
        repetitions=1,
        device=device,
        store=store,
        timeout=timeout,
        jobs=jobs,
        arch=arch,
    )
    results = measured(options, n, every_pair=every_pair)
    trees = [r for r in results if r.fingerprint and r.fingerprint.tree]
    if svg is not None and len(trees) != 1:
        raise UsageError(
            f"{len(trees)} trees for one drawing" + f": {told(results[0])}" * (len(results) == 1),
            allowed="one kernel, case and profile, of a fixed order and at most 64 elements",
            remedy="--n 16, or up to 64" if n is None else "name one profile",
        )
    if svg is not None:
        _draw(svg, trees[0])
    if as_json:
        from reprodb.render.json import dumps

        typer.echo(dumps(document(results)), nl=False)
    else:
        for result in results:
            typer.echo(told(result))
    known = all(r.fingerprint is not None and r.fingerprint.digest for r in results)
    raise typer.Exit(int(Exit.CLEAN if known else Exit.NO_ANSWER))


def measured(options: RunOptions, n: int | None, *, every_pair: bool = False) -> list[Result]:
    """A result with its fingerprint for each kernel, case and profile, sorted by them."""
    from dataclasses import replace

    from reprodb.cli.flow import make_plan, opened_bench
    from reprodb.cli.progress import listener
    from reprodb.suite import bundled_suite, resized

    with opened_bench(options, listener(quiet=True)) as bench:
        plan = make_plan(options, bench)
        root = options.suite or bundled_suite()
        builds = []
        for build in _usual(plan, options):
            kernel = build.kernel if n is None else _held(resized(root, build.kernel, n), n)
            kernel = replace(kernel, fingerprint=kernel.fingerprint or _asked(kernel))
            builds.append(replace(build, kernel=kernel, cases=kernel.cases))
        asked = replace(plan, builds=tuple(builds), every_pair=every_pair)
        with closing(bench.results(asked, "order")) as made:
            return sorted((result for result, _ in made), key=lambda r: r.row)


def _held(kernel: Kernel, n: int) -> Kernel:
    """The kernel, whose arrays this machine's memory holds: the host makes and reads them on every lane."""
    from reprodb.domain import DTYPE_BYTES
    from reprodb.errors import UsageError
    from reprodb.limits import machine_memory

    case, room = kernel.cases[0], machine_memory()
    taken = sum(i.n * DTYPE_BYTES[i.dtype] for i in case.inputs) + sum(b.nbytes for b in case.buffers)
    if taken > room:
        raise UsageError(
            f"{kernel.name} with n = {n:,} takes {taken / 2**30:,.1f} GiB of arrays",
            allowed=f"what this machine's memory of {room / 2**30:,.1f} GiB holds",
            remedy="a smaller --n",
        )
    return kernel


def _usual(plan: Plan, options: RunOptions) -> Sequence[PlannedBuild]:
    """What is measured: `default` where no profile is named, or all that there is without it."""
    from reprodb.errors import UsageError

    if not plan.builds:
        wanted = " or ".join(options.profiles) or "any profile"
        skipped = [f"{s.profile}: {s.reason}; {s.remedy}" for s in plan.skipped]
        raise UsageError(
            f"{' and '.join(options.kernels)} cannot be built under {wanted}",
            remedy="\n".join(skipped) or "leave --profile out: a program has profiles of its own",
        )
    return [b for b in plan.builds if not options.profiles and b.profile.name == "default"] or plan.builds


def _asked(kernel: Kernel) -> Any:
    """A probe of a kernel whose manifest has none: its first input and its first result."""
    from reprodb.domain import OrderProbe, Role

    case = kernel.cases[0]
    return OrderProbe(case.inputs[0].name, next(b.name for b in case.buffers if b.role is Role.RESULT))


def told(result: Result) -> str:
    """What was measured, for people: the fingerprint in a line, and the tree of few elements."""
    from reprodb import ordering

    found = result.fingerprint
    where = f"{result.kernel.name}, {result.case.name}, {result.profile}, {result.lane.value}"
    if found is None:
        return f"{where}: {result.status.value.replace('_', ' ')}: {result.error}"
    line = f"{where}: {ordering.phrase(found)}"
    if found.tree:
        return f"{line}\n{ordering.drawn(ordering.read(found.tree))}"
    return f"{line}\n{ordering.UNDRAWN}" if ordering.undrawn(found) else line


def document(results: list[Result]) -> dict[str, Any]:
    """The JSON document, schema `reprodb.order/1`."""
    return {"schema": SCHEMA, "orders": [_record(r, r.fingerprint) for r in results]}


def _record(result: Result, found: Fingerprint | None) -> dict[str, Any]:
    from reprodb.render.json import fingerprint_record

    return {
        "kernel": result.kernel.name,
        "case": result.case.name,
        "profile": result.profile,
        "arch": result.arch,
        "lane": result.lane.value,
        "status": result.status.value,
        "error": result.error,
        "fingerprint": fingerprint_record(found) if found else None,
        "answers": [list(triple) for triple in found.pairs] if found else [],
    }


def _draw(file: Path, result: Result) -> None:
    from reprodb import ordering
    from reprodb.site import write_whole

    text = ordering.svg(ordering.read(result.fingerprint.tree if result.fingerprint else ""))
    write_whole(file, text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n")
