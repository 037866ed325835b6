"""`reprodb check --against REF`: do these commits move bits? Both sides are built, executed and compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.flow import RunOptions
from reprodb.cli.options import (
    ArchOption,
    JobsOption,
    JsonOption,
    JunitOption,
    KernelOption,
    PolicyOption,
    ProfileOption,
    ProfilesFileOption,
    QuietOption,
    StoreOption,
    SuiteOption,
    TagOption,
    TimeoutOption,
)
from reprodb.cli.run import CaseOption
from reprodb.errors import ReprodbError, UsageError

if TYPE_CHECKING:
    from reprodb.cli.flow import RecordedRun
    from reprodb.cli.progress import Listener
    from reprodb.findings import Diff
    from reprodb.policy import Policy
    from reprodb.repository import Commit, Repository
    from reprodb.store.store import Store


@dataclass(frozen=True, slots=True)
class Place:
    """One side: a suite folder with the profiles that stand beside it, and what people call it."""

    label: str
    suite: Path
    profiles: Path


def register(app: typer.Typer) -> None:
    app.command("check")(check)


def check(
    *,
    against: Annotated[
        str,
        typer.Option("--against", metavar="REF", help="A branch, tag or commit: compare where HEAD left it."),
    ],
    working: Annotated[
        bool, typer.Option("--working", help="The folder as it is, instead of the commit HEAD.")
    ] = False,
    suite: SuiteOption = None,
    kernel: KernelOption = None,
    tag: TagOption = None,
    case: CaseOption = None,
    profile: ProfileOption = None,
    profiles_file: ProfilesFileOption = None,
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-n", min=1, max=1_000_000, help="Executions of each case.")
    ] = 20,
    device: Annotated[
        str, typer.Option("--device", metavar="auto|gpu|model|INDEX", help="Where kernels run.")
    ] = "model",
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Keep both runs there; by default they are thrown away."),
    ] = None,
    store: StoreOption = None,
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = None,
    arch: ArchOption = None,
    policy: PolicyOption = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page too.")] = None,
    junit: JunitOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build and execute the suite as it was where HEAD left REF and as it is now, and compare the two.

    Both come from git, in temporary worktrees: the checkout is read and never touched. Exit codes are those
    of `diff`; a suite that is new in these commits has nothing to compare with, and exits 0.
    """
    from reprodb.cli import judging
    from reprodb.cli.progress import listener
    from reprodb.profiles import bundled_profiles
    from reprodb.repository import Repository
    from reprodb.store import open_store
    from reprodb.suite import bundled_suite, load_suite

    root = suite or bundled_suite()
    rules = judging.policy_at(policy)
    repository = Repository(root)
    now_at = repository.commit("HEAD")
    base = repository.merge_base(repository.commit(against), now_at)
    if base.sha == now_at.sha and not working:
        raise ReprodbError(
            f"nothing compared: HEAD is commit {base.label}, which {against} has already",
            remedy="check out the branch to look at, or take the folder as it is with --working",
        )
    options = RunOptions(
        kernels=tuple(kernel or ()),
        tags=tuple(tag or ()),
        profiles=tuple(profile or ()),
        cases=tuple(case or ()),
        repetitions=repetitions,
        device=device,
        store=store,
        timeout=timeout,
        jobs=jobs,
        arch=arch,
        seed=0,  # equal code has equal arrival orders on both sides
    )
    known = profiles_file or bundled_profiles()
    with _database(db) as url, open_store(url, write=True) as database:
        with listener(quiet=quiet or as_json) as said:
            if not working and repository.changed():
                said.said("what is not committed is not looked at; --working takes the folder as it is")
            with _at(repository, base, known) as place:
                before = _recorded(options, place, database, said, old=True)
            if working:
                after = _recorded(options, Place("working folder", root, known), database, said)
            else:
                with _at(repository, now_at, known) as place:
                    after = _recorded(options, place, database, said)
        assert after is not None  # noqa: S101 -- the new side raises where it has nothing
        found = _compared(before, after, database, rules)
        judging.show_diff(found, as_json=as_json, quiet=quiet)
        if html is not None:
            from reprodb.cli.pages import single
            from reprodb.render.html import diff as page
            from reprodb.site import write_whole

            write_whole(html, page(found, single(database, found.candidate)))
        if junit is not None:
            judging.write_junit(found, junit)
        # Annotations stand on the lines of the checkout, not of a worktree that is gone.
        judging.write_github(found, replace(load_suite(root), root=root), report=html)
    raise typer.Exit(found.exit_code)


@contextmanager
def _database(named: str | None) -> Iterator[str]:
    """The database that was named, else one that is gone afterwards."""
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="reprodb-check-") as folder:
        yield str(Path(folder, "check.db"))


@contextmanager
def _at(repository: Repository, commit: Commit, profiles: Path) -> Iterator[Place]:
    """The suite at a commit, with the profiles of that commit where the file is the repository's own."""
    with repository.worktree(commit) as folder:
        top = folder
        for _ in repository.inside.parts:
            top = top.parent
        there = profiles
        if profiles.resolve().is_relative_to(repository.root):
            old = top / profiles.resolve().relative_to(repository.root)
            # Through a link it would be a file of no commit.
            if old.resolve().is_relative_to(top.resolve()) and old.is_file():
                there = old
        yield Place(f"commit {commit.label}", folder, there)


def _recorded(
    options: RunOptions, place: Place, database: Store, said: Listener, *, old: bool = False
) -> RecordedRun | None:
    """One side's run. None where the old side has nothing of what was asked for, which is said."""
    from reprodb.cli.flow import record_run
    from reprodb.profiles import load_profiles
    from reprodb.suite import load_suite

    if old and not place.suite.is_dir():
        said.said(f"{place.label} has no suite: everything is new")
        return None
    try:
        suite, profiles = load_suite(place.suite), load_profiles(place.profiles)
        if old:
            known = {
                "kernels": [kernel.name for kernel in suite.kernels],
                "tags": [tag for kernel in suite.kernels for tag in kernel.tags],
                "cases": [case.name for kernel in suite.kernels for case in kernel.cases],
                "profiles": list(profiles),
            }
            narrowed = {what: _matching(getattr(options, what), names) for what, names in known.items()}
            if any(getattr(options, what) and not now for what, now in narrowed.items()):
                said.said(f"{place.label} has nothing of what was asked for: it is new")
                return None
            options = replace(
                options,
                kernels=narrowed["kernels"],
                tags=narrowed["tags"],
                cases=narrowed["cases"],
                profiles=narrowed["profiles"],
            )
    except UsageError as error:
        if not old:
            raise
        raise ReprodbError(
            f"{place.label} cannot be compared with: {error.problem}",
            remedy="name a commit whose suite can be read with --against",
            detail=error.detail,
        ) from None
    said.said(f"{place.label}:")
    sided = replace(options, suite=place.suite, profiles_file=place.profiles, label=place.label)
    return record_run(sided, database, said)


def _matching(globs: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(glob for glob in globs if any(fnmatchcase(name, glob) for name in names))


def _compared(before: RecordedRun | None, after: RecordedRun, database: Store, rules: Policy) -> Diff:
    """The judged diff, and what the runs' exit codes are with it."""
    from reprodb.cli.flow import utc_now
    from reprodb.compare import Side
    from reprodb.review import review_night, review_runs

    now = utc_now()
    new = Side(after.run, after.results)
    if before is None:
        found = review_night(new, {}, database.pattern, rules, now=now)
    else:
        old = Side(before.run, before.results)
        found = review_runs(old, new, database.pattern, rules, now=now)
        database.finish(before.run.id or 0, 0, now)
    database.finish(after.run.id or 0, found.exit_code, now)
    return found
