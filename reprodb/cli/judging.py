"""What `nightly` and `diff` share: policy, ledger and references in; the judged diff out, in every form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reprodb.errors import ReprodbError, StoreError

if TYPE_CHECKING:
    from reprodb.compare import Earlier
    from reprodb.domain import Kernel, Result, Run, Scope, Suite
    from reprodb.findings import Diff
    from reprodb.ledger import Blessing, Ledger
    from reprodb.matrix import References
    from reprodb.policy import Policy
    from reprodb.store.store import Store

POLICY_FILE = Path("reprodb.toml")
LEDGER_FILE = Path("reprodb.lock")
# Results of a row that are pooled at most, this run's aside.
POOLED_RESULTS = 40


def policy_at(path: Path | None) -> Policy:
    """The named policy file, else the folder's own where there is one, else the defaults."""
    from reprodb.policy import load_policy

    if path is None and POLICY_FILE.exists():
        path = POLICY_FILE
    return load_policy(path)


def policy_then(run: Run) -> tuple[Policy, tuple[str, ...]]:
    """The policy that a run was made under, else the defaults with a note: one that this reprodb cannot read.

    A database holds runs of other versions and of other machines; none of them may keep the rest from being
    shown.
    """
    from reprodb.errors import UsageError
    from reprodb.policy import Policy, parse_policy

    try:
        return parse_policy(run.policy), ()
    except UsageError as error:
        problem = error.problem.splitlines()[0]
        return Policy(), (f"the policy of this run cannot be read here, and the defaults count: {problem}",)


def ledger_at(path: Path | None) -> Ledger:
    """The named ledger, else the folder's own; an empty one where there is no file yet."""
    from reprodb.ledger import load_ledger

    return load_ledger(path or LEDGER_FILE)


def load_references(
    store: Store,
    run: Run,
    results: Iterable[Result],
    ledger: Ledger,
    now: datetime,
    *,
    everything: bool = False,
    before: int | None = None,
) -> References:
    """Each row's reference, from the ledger and from what was accepted before the run numbered `before`.

    With `everything` also the references of rows that the run does not have.
    """
    from reprodb.domain import scope_of
    from reprodb.review import references_of

    rows = tuple(results)
    scopes = [scope_of(run, row) for row in rows]
    if everything:
        scopes += [scope for scope in store.scopes(run) if scope not in set(scopes)]
    found = store.references(scopes, before=before, blessed=False)
    runs = {number: store.run(number) for number in {reference.run_id for reference in found.values()}}
    accepted = {scope: (reference.result, runs[reference.run_id]) for scope, reference in found.items()}
    step_back(store, accepted, ledger, now)
    here = blessed_here(store, accepted, ledger, now)
    references = references_of(run, rows, accepted, ledger, now, here)
    if everything:
        return references
    asked = {row.row for row in rows}
    return {row: reference for row, reference in references.items() if row in asked}


def step_back(store: Store, accepted: dict[Scope, tuple[Result, Run]], ledger: Ledger, now: datetime) -> None:
    """Take out of `accepted` what counted only by a blessing that has ended, in place.

    Such a scope goes back to what was accepted before the blessed run, or, where that run is not known here,
    to the last result with other bits or from before the blessing.
    """
    for scope, blessings in ledger.ended(now).items():
        for blessing in blessings:
            blessed_run = run_of(store, blessing)
            since = blessed_run.started_at if blessed_run else blessing.when
            while scope in accepted and blessing.holds(accepted[scope][0]):
                run = accepted[scope][1]
                if run.started_at < since:
                    break
                before = blessed_run or run
                earlier = store.references([scope], before=before.id, blessed=False).get(scope)
                if earlier is None:
                    del accepted[scope]
                else:
                    accepted[scope] = (earlier.result, store.run(earlier.run_id))
                if blessed_run:
                    break


def blessed_here(
    store: Store, accepted: Mapping[Scope, tuple[Result, Run]], ledger: Ledger, now: datetime
) -> dict[str, tuple[Result, Run]]:
    """The blessed results that this database has, by the blessing's id, where the accepted one is another."""
    from reprodb.domain import scope_of

    found = {}
    for scope, blessing in ledger.active(now).items():
        if scope in accepted and blessing.holds(accepted[scope][0]):
            continue
        run = run_of(store, blessing)
        if run is not None and run.id is not None:
            rows = store.results(run.id, profile=scope.profile, kernel=scope.kernel)
            for row in rows:
                if scope_of(run, row) == scope and blessing.holds(row):
                    found[blessing.id] = (row, run)
    return found


def run_of(store: Store, blessing: Blessing) -> Run | None:
    """The run of a blessing, None where this database does not have it."""
    from reprodb.errors import UsageError

    try:
        number = store.resolve(blessing.run).run_id
    except UsageError:
        return None
    run = store.run(number) if number is not None else None
    return run if run is not None and run.uid == blessing.run else None


def earlier_results(store: Store, run: Run) -> Earlier:
    """What other runs recorded in the scope of a row, newest first: on a GPU, where they can be counted."""
    from reprodb.domain import Lane, scope_of

    def earlier(result: Result) -> tuple[tuple[Run, Result], ...]:
        # Without a guarantee a bound on its breaches has no meaning.
        if run.lane is not Lane.MEASURED or not any(o.determinism.guaranteed for o in result.outputs):
            return ()
        scope = scope_of(run, result)
        rows = store.history(
            result.kernel.name,
            case=result.case.name,
            profile=result.profile,
            suite=run.suite,
            limit=POOLED_RESULTS,
        )
        return tuple(
            (other, row)
            for other, row in rows
            if other.uid != run.uid and other.started_at <= run.started_at and scope_of(other, row) == scope
        )

    return earlier


def at_home(diff: Diff) -> Diff:
    """The diff with the commands to try as they run in this folder, where its own suite is the run's.

    Elsewhere they keep SUITE_FOLDER, for whoever runs them to fill in.
    """
    from reprodb.cli.options import own_profiles, own_suite
    from reprodb.errors import UsageError
    from reprodb.review import located

    if not any(row.loss is not None and row.loss.advice for row in diff.comparisons):
        return diff
    try:
        root, profiles = own_suite(None) or Path("kernels"), own_profiles(None)
    except UsageError:  # a reprodb.toml that cannot be read is not a reader's matter
        return diff
    return diff if _suite_of(root, diff.candidate.suite) is None else located(diff, root, profiles)


def show_diff(diff: Diff, *, as_json: bool, quiet: bool) -> None:
    """The judged diff on standard output."""
    if as_json:
        from reprodb.render import json

        typer.echo(json.dumps(json.diff(diff)), nl=False)
    else:
        from reprodb.render import terminal

        terminal.diff(terminal.console(), diff, quiet=quiet)


def write_junit(diff: Diff, path: Path) -> None:
    from reprodb.render import junit
    from reprodb.site import write_whole

    write_whole(path, junit.diff(diff))


def write_github(
    diff: Diff,
    suite: Suite | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    report: Path | None = None,
) -> None:
    """Step summary, outputs and annotations, where GitHub runs the command.

    Annotations stand on the kernel's line where its suite is given, or lies in the checkout's `kernels` under
    the run's name. The step's outputs are `verdict` (the
    headline), `exit-code` and `report` (the page's path, or empty).
    """
    if environ.get("GITHUB_ACTIONS") != "true":
        return
    from reprodb.render import github

    _append(environ.get("GITHUB_STEP_SUMMARY"), github.summary(diff), "step summary")
    _append(environ.get("GITHUB_OUTPUT"), github.outputs(diff, str(report or "")), "file of outputs")
    folder = ""
    workspace = Path(environ.get("GITHUB_WORKSPACE", ".")).resolve()
    suite = suite or _suite_of(workspace / "kernels", diff.candidate.suite)
    if suite is not None:
        root = suite.root.resolve()
        folder = str(root.relative_to(workspace)) if root.is_relative_to(workspace) else ""
    for line in github.annotations(diff, folder, _line_finder(suite)):
        typer.echo(line, err=True)


def _append(file: str | None, text: str, what: str) -> None:
    if not file:
        return
    try:
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise StoreError(f"the {what} {file} cannot be written: {error.strerror}") from None


def _suite_of(folder: Path, name: str) -> Suite | None:
    """The suite in that folder where it has that name: what `diff` annotates, which is given runs alone."""
    from reprodb.suite import load_suite

    try:
        found = load_suite(folder)
    except ReprodbError:
        return None
    return found if found.name == name else None


def _line_finder(suite: Suite | None) -> Callable[[Kernel], int | None] | None:
    """Finds the line of a kernel's first stage in its source, as the suite has it now."""
    if suite is None:
        return None

    def line(kernel: Kernel) -> int | None:
        from reprodb.render.github import entry_line
        from reprodb.suite import source_files

        try:
            source = source_files(suite, kernel)[0]
        except ReprodbError:  # the kernel has left the suite, or its source does not read
            return None
        return entry_line(source.text, kernel.stages[0].entry)

    return line
