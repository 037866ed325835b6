"""`reprodb claim RUN KERNEL`: the claim card of a result, as text, JSON or HTML."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import DatabaseOption, JsonOption
from reprodb.errors import UsageError

if TYPE_CHECKING:
    from reprodb.domain import Result


def register(app: typer.Typer) -> None:
    app.command("claim")(claim)


def claim(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Number, label, latest; RUN:PROFILE picks.")],
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="The kernel's name.")],
    *,
    case: Annotated[str | None, typer.Option("--case", metavar="NAME", help="Only this case.")] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Only this profile.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the card as a page.")
    ] = None,
    db: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what a result promises: everything pinned, the evidence for each scope, what is not covered."""
    from reprodb.claims import claim as card_of
    from reprodb.render import json, terminal
    from reprodb.site import write_whole
    from reprodb.store import open_store

    with open_store(db) as store:
        ref = store.resolve(run)
        if ref.run_id is None:
            raise UsageError(
                "a claim is of one run, and baseline is many", allowed="a run's number or label, latest"
            )
        found = [
            r
            for r in store.results(ref.run_id, profile=profile or ref.profile, kernel=kernel)
            if case in (None, r.case.name)
        ]
        if not found:
            raise _no_result(ref.run_id, kernel, profile or ref.profile, case, store.results(ref.run_id))
        holder = store.run(ref.run_id)
        served = found[0].kernel.composition
        serial = served.serial if served is not None else None
        beside = store.results(ref.run_id, kernel=serial) if serial else ()
        cards = [
            card_of(
                holder,
                r,
                store.history(kernel, case=r.case.name, suite=holder.suite),
                store.code_texts(r.build.key)[1] if r.build else None,
                beside,
            )
            for r in found
        ]
    if html is not None:
        if len(cards) > 1:
            raise UsageError(
                f"{kernel} has {len(cards)} results in run {ref.run_id}, and a page holds one claim",
                allowed=", ".join(f"{c.result.profile} ({c.result.case.name})" for c in cards[:12]),
                remedy="pick one with --profile and --case",
            )
        from reprodb.render.html import claim as page

        write_whole(html, page(cards[0]))
    if as_json:
        typer.echo(json.dumps(json.claims(cards)), nl=False)
    else:
        terminal.claims(terminal.console(), cards)


def _no_result(
    run_id: int, kernel: str, profile: str | None, case: str | None, results: Iterable[Result]
) -> UsageError:
    """The refusal, with what the run has instead: the kernel's own profiles and cases, else its kernels."""
    from reprodb.suite.tables import suggest

    under = f" under profile {profile!r}" if profile else ""
    of = f" in case {case!r}" if case else ""
    every = tuple(results)
    own = [f"{r.profile} ({r.case.name})" for r in every if r.kernel.name == kernel]
    known = own or sorted({r.kernel.name for r in every})
    return UsageError(
        f"run {run_id} has no result of {kernel!r}{under}{of}",
        allowed=", ".join(known[:12]),
        remedy="" if own else suggest(kernel, known),
    )
