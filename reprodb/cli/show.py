"""`show`, `runs`, `history`, `report` and `site`: what a database has recorded, in tables, JSON and HTML."""

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import (
    DatabaseOption,
    JsonOption,
    KernelOption,
    OutOption,
    ProfileOption,
    QuietOption,
)
from reprodb.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprodb.domain import Result, Run
    from reprodb.findings import Diff
    from reprodb.store.store import Store

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Number, label, latest, latest~N; RUN:PROFILE[:KERNEL] picks.")
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, max=1_000_000_000, help="Only the newest N; all by default."),
]


def register(app: typer.Typer) -> None:
    app.command("show")(show)
    app.command("runs")(runs)
    app.command("history")(history)
    app.command("report")(report)
    app.command("site")(site)


def show(
    run: RunArgument = "latest",
    *,
    kernel: KernelOption = None,
    profile: ProfileOption = None,
    db: DatabaseOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print a run: its results and its profile matrix."""
    from reprodb.matrix import matrix
    from reprodb.render import json, terminal
    from reprodb.store import open_store

    with open_store(db) as store:
        found, results = _run(store, run, kernel, profile)
    rows = matrix(results)
    if as_json:
        _print(json.dumps(json.show(found, results, rows)))
    else:
        terminal.show(terminal.console(), found, results, rows, quiet=quiet)


def runs(limit: LimitOption = None, db: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List the runs of a database, newest first."""
    from reprodb.render import json, terminal
    from reprodb.store import open_store

    with open_store(db) as store:
        found = store.runs(limit=limit)
        missing = missing_nights(store, found)
    if as_json:
        _print(json.dumps(json.runs(found)))
    else:
        terminal.runs(terminal.console(), found)
        _print(missing)


def history(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="The kernel's name.")],
    *,
    case: Annotated[str | None, typer.Option("--case", metavar="NAME", help="Only this case.")] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Only this profile.")
    ] = None,
    limit: LimitOption = None,
    db: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print one kernel's results over the runs, newest first, and what changed at each step."""
    from reprodb.render import json, terminal
    from reprodb.render.timeline import moments
    from reprodb.store import open_store

    with open_store(db) as store:
        entries = store.history(kernel, case=case, profile=profile, limit=limit)
        if not entries:
            raise _unknown_kernel(store, kernel, case, profile)
        missing = missing_nights(store, [run for run, _ in entries])
    if as_json:
        _print(json.dumps(json.history(kernel, entries)))
    else:
        terminal.history(terminal.console(), kernel, moments(entries))
        _print(missing)


def report(
    run: RunArgument = "latest",
    *,
    out: OutOption = Path("reports"),
    kernel: KernelOption = None,
    profile: ProfileOption = None,
    db: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the HTML page of a run, one self-contained file, and its JSON beside it."""
    from reprodb.cli.pages import single
    from reprodb.matrix import matrix
    from reprodb.render import html, json
    from reprodb.site import write_whole
    from reprodb.store import open_store

    with open_store(db) as store:
        found, results = _run(store, run, kernel, profile)
        rows = matrix(results)
        diff = night_of(store, found, results)
        page = html.report(
            found,
            results,
            diff,
            matrix=diff.matrix if diff else rows,
            sources=single(store, found),
        )
    document = json.show(found, results, rows)
    files = (out / f"run-{found.id}.html", out / f"run-{found.id}.json")
    write_whole(files[0], page)
    write_whole(files[1], json.dumps(document))
    if as_json:
        _print(json.dumps({"schema": "reprodb.report/1", "files": [str(file) for file in files]}))
    else:
        _print(f"{files[0]}\n")


def site(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the site is written.")] = Path(
        "reports/site"
    ),
    *,
    db: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a static site: an index, a page a run, a kernel and an upgrade; only what is new is made."""
    from reprodb.cli.dossier import upgrade_of
    from reprodb.cli.judging import ledger_at
    from reprodb.cli.pages import Archive
    from reprodb.render import json
    from reprodb.site import build
    from reprodb.store import open_store

    ledger = ledger_at(None)
    with open_store(db) as store:
        built = build(
            store,
            out,
            lambda run, results: night_of(store, run, results),
            lambda run, results: upgrade_of(store, run, results),
            Archive(store).sources,
            lambda run: ledger.until(run.finished_at or run.started_at).text(),
        )
    if as_json:
        written = {"schema": "reprodb.site.built/1", "written": list(built.written), "kept": len(built.kept)}
        _print(json.dumps(written))
    else:
        _print(f"{out / 'index.html'}: {len(built.written)} written, {len(built.kept)} up to date\n")


def missing_nights(store: "Store", shown: "Sequence[Run]") -> str:
    """Lines about the nights that did not happen between the oldest run that is shown and now."""
    from datetime import UTC, datetime

    from reprodb import nights
    from reprodb.cli.judging import policy_at
    from reprodb.render.text import visible

    if not shown:
        return ""
    began = min(run.started_at for run in shown)
    since = [run for run in store.runs() if run.started_at >= began]
    try:
        every = policy_at(None).every
    except UsageError:  # a policy that cannot be read is the next nightly's matter, not a reader's
        every = None
    lines = nights.told(since, every, datetime.now(UTC))
    return "".join(f"⋯ {visible(line)}\n" for line in lines)


def night_of(store: "Store", run: "Run", results: "tuple[Result, ...]") -> "Diff | None":
    """The diff of a nightly with the references that it met; None for a run that compared nothing."""
    if run.kind != "nightly":
        return None
    from reprodb.cli.judging import at_home, earlier_results, ledger_at, load_references, policy_then
    from reprodb.compare import Side
    from reprodb.review import review_night

    then = run.finished_at or run.started_at
    policy, notes = policy_then(run)
    ledger = ledger_at(None)
    references = load_references(store, run, results, ledger, then, before=run.id)
    diff = review_night(
        Side(run, results),
        references,
        store.pattern,
        policy,
        now=then,
        earlier=earlier_results(store, run),
        ledger=ledger,
    )
    return at_home(replace(diff, notes=(*diff.notes, *notes)))


def _run(
    store: "Store", ref: str, kernels: list[str] | None, profiles: list[str] | None
) -> "tuple[Run, tuple[Result, ...]]":
    """A run by its reference, and its results that the reference and the globs pick."""
    found = store.resolve(ref)
    if found.run_id is None:
        raise UsageError(
            "baseline is not one run: it is each row's own reference",
            allowed="a run's number or label, latest, latest~N",
            remedy="reprodb diff baseline RUN compares a run with it",
        )
    results = store.results(found.run_id, profile=found.profile, kernel=found.kernel)
    kept = tuple(r for r in results if _matches(r.kernel.name, kernels) and _matches(r.profile, profiles))
    if results and not kept:
        raise UsageError(
            f"run {found.run_id} has no result for {_asked(kernels, profiles)}",
            allowed=", ".join(sorted({f"{r.kernel.name} under {r.profile}" for r in results})[:12]),
        )
    return store.run(found.run_id), kept


def _matches(name: str, globs: list[str] | None) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def _asked(kernels: list[str] | None, profiles: list[str] | None) -> str:
    asked = [*(f"kernel {k!r}" for k in kernels or ()), *(f"profile {p!r}" for p in profiles or ())]
    return " and ".join(asked)


def _unknown_kernel(store: "Store", kernel: str, case: str | None, profile: str | None) -> UsageError:
    from difflib import get_close_matches

    under = f" under profile {profile}" if profile else ""
    of = f" in case {case}" if case else ""
    results = [r for run in store.runs(limit=20) if run.id is not None for r in store.results(run.id)]
    own = {f"{r.profile} ({r.case.name})" for r in results if r.kernel.name == kernel}
    known = sorted(own or {r.kernel.name for r in results})
    close = [] if own else get_close_matches(kernel, known, n=1)
    return UsageError(
        f"the database has no result of {kernel}{under}{of}",
        allowed=", ".join(known[:12]),
        remedy=f"did you mean {close[0]}?" if close else "reprodb runs lists the runs",
    )


def _print(text: str) -> None:
    typer.echo(text, nl=False)
