"""`reprodb code A B KERNEL`: how the generated code of two builds differs, in counts and in text."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import DatabaseOption, JsonOption
from reprodb.errors import UsageError

if TYPE_CHECKING:
    from reprodb.domain import Result
    from reprodb.render.code import Pair
    from reprodb.store.store import Store
    from reprodb.store.values import RunRef


def register(app: typer.Typer) -> None:
    app.command("code")(code)


def code(
    baseline: Annotated[
        str, typer.Argument(metavar="A", help="Left side: number, label, latest~N; RUN:PROFILE[:KERNEL].")
    ],
    candidate: Annotated[str, typer.Argument(metavar="B", help="Right side, likewise.")],
    kernel: Annotated[
        str | None, typer.Argument(metavar="[KERNEL]", help="The kernel; not where both sides name one.")
    ] = None,
    *,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Only this profile of both runs.")
    ] = None,
    ptx: Annotated[bool, typer.Option("--ptx", help="Show the PTX side by side.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Show the SASS side by side.")] = False,
    counts: Annotated[bool, typer.Option("--counts", help="Show the opcode counts (the default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole texts, equal lines too.")] = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the code of a kernel between two runs or two profiles: opcode counts, PTX and SASS.

    Texts are shown as they are compared: without comments, line information, addresses and encodings.
    """
    from reprodb.render import code as view
    from reprodb.render import terminal
    from reprodb.render.json import dumps
    from reprodb.store import open_store

    counts = counts or not (ptx or sass)
    with open_store(database) as store:
        sides = tuple(_side(store, ref, kernel, profile) for ref in (baseline, candidate))
        pairs = _pairs(store, *sides[0], *sides[1])
        if as_json:
            shown = [view.record(p, counts=counts, ptx=ptx, sass=sass, full=full) for p in pairs]
            typer.echo(dumps({"schema": "reprodb.code/1", "pairs": shown}), nl=False)
            return
        for pair in pairs:
            view.show(terminal.console(), pair, counts=counts, ptx=ptx, sass=sass, full=full)


def _side(
    store: Store, ref: str, kernel: str | None, profile: str | None
) -> tuple[RunRef, tuple[Result, ...]]:
    """The results that one side names, those with code alone, one of each build."""
    found = store.resolve(ref)
    if found.run_id is None:
        raise UsageError(
            f"{ref!r} is each row's own reference", allowed="a run's number, label, latest, latest~N"
        )
    if found.kernel is not None and kernel not in (None, found.kernel):
        raise UsageError(f"{ref!r} names a kernel, and so does {kernel!r}", remedy="name it once")
    name = found.kernel or kernel
    if name is None:
        raise UsageError("which kernel?", remedy=f"reprodb code {ref} OTHER KERNEL")
    wanted = found.profile or profile
    if profile is not None and found.profile not in (None, profile):
        raise UsageError(f"{ref!r} names a profile, and so does --profile {profile}", remedy="name it once")
    there = store.results(found.run_id)
    rows = [r for r in there if r.kernel.name == name and wanted in (None, r.profile)]
    if not rows:
        raise _nothing(found.run_id, name, wanted, there)
    built = {r.build.key: r for r in rows if r.build is not None and r.build.code is not None}
    if not built:
        raise UsageError(
            f"run {found.run_id} has no code of {name}: {rows[0].status}",
            allowed="rows that were built",
            remedy=f"reprodb show {found.run_id} has the compiler's words",
        )
    return found, tuple(built.values())


def _nothing(run_id: int, kernel: str, profile: str | None, there: tuple[Result, ...]) -> UsageError:
    kernels = sorted({r.kernel.name for r in there})
    if kernel in kernels:
        profiles = sorted({r.profile for r in there if r.kernel.name == kernel})
        near = difflib.get_close_matches(profile or "", profiles, n=1)
        problem, allowed = f"run {run_id} has no {kernel} under {profile!r}", profiles
    else:
        near = difflib.get_close_matches(kernel, kernels, n=1)
        problem, allowed = f"run {run_id} has no kernel {kernel!r}", kernels
    remedy = f"did you mean {near[0]}?" if near else ""
    return UsageError(problem, allowed=", ".join(allowed), remedy=remedy)


def _pairs(
    store: Store, left: RunRef, olds: tuple[Result, ...], right: RunRef, news: tuple[Result, ...]
) -> tuple[Pair, ...]:
    """Builds that belong together: the only one of each side, else those of one profile and architecture."""
    from reprodb.render.code import Pair, Side

    matched = [
        (old, new) for old in olds for new in news if (old.profile, old.arch) == (new.profile, new.arch)
    ]
    if len(olds) == len(news) == 1:
        matched = [(olds[0], news[0])]
    if not matched:
        sides = [", ".join(sorted({r.profile for r in side})) for side in (olds, news)]
        raise UsageError(
            "the two sides have no profile in common",
            allowed=f"left: {sides[0]}; right: {sides[1]}",
            remedy="name one on each side: RUN:PROFILE",
        )

    def side(ref: RunRef, result: Result) -> Side:
        texts = store.code_texts(result.build.key) if result.build is not None else (None, None)
        return Side(ref.run_id or 0, result, *texts)

    return tuple(Pair(side(left, old), side(right, new)) for old, new in matched)
