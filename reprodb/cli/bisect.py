"""`reprodb bisect KERNEL`: the first compiler version, or commit of the suite, whose bits or code differ."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.flow import RunOptions
from reprodb.cli.options import (
    ArchOption,
    DeviceOption,
    JobsOption,
    JsonOption,
    ProfilesFileOption,
    QuietOption,
    StoreOption,
    SuiteOption,
    TimeoutOption,
)
from reprodb.errors import Exit, ToolchainError, UsageError

if TYPE_CHECKING:
    from reprodb.cli.progress import Listener
    from reprodb.domain import Device, Lane, Profile, Toolchain
    from reprodb.experiments import Laboratory, Workshop
    from reprodb.hunt import Places
    from reprodb.lenses import Lens
    from reprodb.recovery import Compilers


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is hunted for, as the command line says it."""

    kernel: str
    good: str | None
    bad: str | None
    commits: str | None
    cases: tuple[str, ...]
    profile: Profile
    suite: Path
    arch: str | None
    patches: bool
    code: bool


def register(app: typer.Typer) -> None:
    app.command("bisect")(bisect)


def bisect(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="The kernel's name.")],
    *,
    good: Annotated[
        str | None, typer.Option("--good", metavar="VERSION", help="A version whose bits are right: 12.4.")
    ] = None,
    bad: Annotated[
        str | None, typer.Option("--bad", metavar="VERSION", help="A version whose bits differ: 13.5.")
    ] = None,
    commits: Annotated[
        str | None,
        typer.Option("--commits", metavar="GOOD..BAD", help="Commits of the suite instead of versions."),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="Whose flags every build has.")
    ] = "default",
    compiler: Annotated[
        str | None,
        typer.Option("--compiler", metavar="nvrtc|nvcc", help="Instead of the profile's compiler."),
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only these cases (repeatable, globs).")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="Try every version or commit and list every change.")
    ] = False,
    code: Annotated[
        bool, typer.Option("--code", help="Look at the code that is built; execute nothing.")
    ] = False,
    patches: Annotated[
        bool, typer.Option("--patches", help="Every published version, not the newest of each release.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install/--no-install", help="Install versions as they are needed.")
    ] = True,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Execute again what an earlier bisect executed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    suite: SuiteOption = None,
    profiles_file: ProfilesFileOption = None,
    arch: ArchOption = None,
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-n", min=1, max=1_000_000, help="Executions of each case.")
    ] = 20,
    device: DeviceOption = "auto",
    store: StoreOption = None,
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the compiler version, or the commit of the suite, at which a kernel's bits (or code) change.

    Exit 0 with an answer, 4 without: the ends show the same, or one nothing, or a change does not come again.
    """
    from reprodb.cli.progress import listener
    from reprodb.hunt import hunt
    from reprodb.render import bisect as render
    from reprodb.suite import bundled_suite

    wanted = Wanted(
        kernel, good, bad, commits, tuple(case or ()), _profile(profiles_file, profile, compiler),
        suite or bundled_suite(), arch, patches, code,
    )  # fmt: skip
    _check(wanted)
    options = RunOptions(device=device, store=store, timeout=timeout, jobs=jobs, repetitions=repetitions)
    with listener(quiet=quiet) as said, ExitStack() as stack:
        tools = _without_device(options, said) if code else _opened(stack, options, said, fresh)
        compilers = _compilers(install, said)
        series, plan = _series(wanted, tools, compilers)
        for line in plan:
            said.said(line)
        if dry_run:
            raise typer.Exit(int(Exit.CLEAN))
        started = monotonic()
        try:
            found = hunt(series.places, tools.lens, whole=whole, say=said.said)
        except KeyboardInterrupt:
            kept = "what was built and executed is kept; the same command goes on from there"
            raise KeyboardInterrupt(kept) from None
        executed = tools.laboratory.executed if tools.laboratory else 0
        spent = render.Spent(len(found.looks), tools.workshop.compiled, executed, len(compilers.installed))
        said.said(f"{spent.words()} in {monotonic() - started:.1f} s")
    exit_code = Exit.CLEAN if found.answered else Exit.NO_ANSWER
    head = render.Head(kernel, series.kind, wanted.profile.name, tools.lane, series.details, bool(series.gap))
    found = replace(found, notes=(*found.notes, *([series.gap] if series.gap else [])))
    if as_json:
        from reprodb.render.json import dumps

        typer.echo(dumps(render.document(head, found, spent, exit_code)), nl=False)
    else:
        for line in render.lines(head, found, spent, quiet=quiet):
            typer.echo(line)
    raise typer.Exit(int(exit_code))


# --- What is asked for -------------------------------------------------------------------------


def _profile(file: Path | None, name: str, compiler: str | None) -> Profile:
    """The one profile of that name, under another compiler where one is given."""
    from reprodb.profiles import bundled_profiles, load_profiles, select
    from reprodb.toolchains.flags import ALLOWED, check

    (chosen,) = select(load_profiles(file or bundled_profiles()), [name])[:1]
    if compiler is None or compiler == chosen.compiler:
        return chosen
    if compiler not in ALLOWED:
        raise UsageError(f"no compiler {compiler!r}", allowed=", ".join(ALLOWED))
    return replace(chosen, compiler=compiler, extra=check(compiler, chosen.extra))


def _check(wanted: Wanted) -> None:
    versions = wanted.good is not None and wanted.bad is not None
    if wanted.commits is not None and (wanted.good or wanted.bad):
        raise UsageError("--commits goes without --good and --bad", allowed="versions, or commits")
    if wanted.commits is None and not versions:
        raise UsageError(
            "it is not said between what to look",
            allowed="--good VERSION --bad VERSION, or --commits GOOD..BAD",
        )
    if wanted.commits is not None:
        good, dots, bad = wanted.commits.partition("..")
        if not (good and dots and bad) or bad.startswith("."):
            raise UsageError(f"--commits {wanted.commits!r}", allowed="GOOD..BAD, such as v1.2..HEAD")


# --- What it is done with ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tools:
    """An opened device with its laboratory; or, to look at code alone, a workshop."""

    workshop: Workshop
    lens: Lens
    device: Device | None  # the GPU, where there is one: its architecture and its multiprocessors
    laboratory: Laboratory | None = None

    @property
    def lane(self) -> Lane | None:
        return self.laboratory.lane if self.laboratory else None


def _opened(stack: ExitStack, options: RunOptions, said: Listener, fresh: bool) -> Tools:
    from reprodb.cli.flow import opened_bench
    from reprodb.experiments import Laboratory, Workshop
    from reprodb.lenses import BitsLens
    from reprodb.notebook import FileNotebook
    from reprodb.toolchains.places import cache_folder

    bench = stack.enter_context(opened_bench(options, said))
    workshop = Workshop(bench.store, options.jobs)
    laboratory = Laboratory(
        workshop,
        bench.pool,
        bench.platform,
        repetitions=options.repetitions,
        notebook=FileNotebook(cache_folder() / "bisect", reading=not fresh),
    )
    return Tools(workshop, BitsLens(laboratory), bench.where.device, laboratory)


def _without_device(options: RunOptions, said: Listener) -> Tools:
    from reprodb.artifacts import DEFAULT_ROOT, ArtifactStore
    from reprodb.environment import find_gpus
    from reprodb.experiments import Workshop
    from reprodb.lenses import CodeLens

    workshop = Workshop(ArtifactStore(options.store or DEFAULT_ROOT, said.said), options.jobs)
    devices = () if options.device == "model" else find_gpus().devices
    return Tools(workshop, CodeLens(workshop), devices[0] if devices else None)


def _compilers(install: bool, said: Listener) -> Compilers:
    from reprodb.recovery import Compilers
    from reprodb.toolchains import catalog
    from reprodb.toolchains.install import install as put_in_cache

    def fetch(compiler: str, version: str) -> Toolchain:
        return put_in_cache(compiler, version, say=said.said)

    return Compilers(catalog.find(), fetch if install else None)


# --- What it goes along ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Series:
    """The places, what they are (`nvrtc`, `commit`), and a word about each that has one."""

    places: Places
    kind: str
    details: tuple[str, ...] = ()
    gap: str = ""  # why others between these are not looked at: the answer is a span then


def _series(wanted: Wanted, tools: Tools, compilers: Compilers) -> tuple[Series, list[str]]:
    """Where to look, and the plan in words."""
    from reprodb.bisection import most_probes
    from reprodb.profiles import architecture, check_arch

    arch = (
        check_arch(wanted.arch)
        if wanted.arch
        else architecture(wanted.profile, tools.device.arch if tools.device else None)
    )
    along = _versions if wanted.commits is None else _commits
    series, words = along(wanted, arch, compilers, tools.device.sm_count if tools.device else None)
    labels = series.places.labels
    plan = [
        f"{wanted.kernel} under {wanted.profile.name} ({arch}): {len(labels)} {words} "
        f"from {labels[0]} to {labels[-1]}; a halving search looks at {most_probes(len(labels))} at most, "
        "where none is skipped",
    ]
    return series, plan


def _versions(wanted: Wanted, arch: str, compilers: Compilers, sm_count: int | None) -> tuple[Series, str]:
    from reprodb.lenses import judged
    from reprodb.series import VersionSeries, subject_of
    from reprodb.suite import load_suite
    from reprodb.toolchains.registry import Registry
    from reprodb.versions import between, known, majors

    good, bad = wanted.good or "", wanted.bad or ""
    compiler = wanted.profile.compiler
    subject = subject_of(
        load_suite(wanted.suite, sm_count), wanted.kernel, wanted.cases, wanted.profile, arch
    )
    if not wanted.code and not any(judged(subject.kernel, case) for case in subject.cases):
        raise UsageError(
            f"{wanted.kernel} guarantees none of its bits: they differ from execution to execution",
            remedy="--code looks for a change of its code",
        )
    index = Registry() if compilers.may_install else None
    versions_known = known(compiler, majors(good, bad), compilers.found, index)
    versions = between(versions_known, good, bad, every=wanted.patches)
    places = VersionSeries(subject, compiler, versions, compilers)
    absent = sum(version not in versions_known.here for version in versions)
    gap = versions_known.note
    note = f" ({gap})" if gap else ""
    words = f"versions, {len(versions) - absent} installed, {absent} to be installed when tried{note},"
    return Series(places, compiler, gap=gap), words


def _commits(wanted: Wanted, arch: str, compilers: Compilers, sm_count: int | None) -> tuple[Series, str]:
    from reprodb.repository import Repository
    from reprodb.series import CommitSeries, subject_reader
    from reprodb.toolchains.catalog import install_command, match

    good, _, bad = (wanted.commits or "").partition("..")
    toolchain = match(wanted.profile, compilers.found)
    if toolchain is None:
        reason = f"profile {wanted.profile.name} has no {wanted.profile.compiler} {wanted.profile.toolkit}"
        raise ToolchainError(reason, remedy=install_command(wanted.profile))
    repository = Repository(wanted.suite)
    commits = repository.between(repository.commit(good), repository.commit(bad))
    if len(commits) < 2:
        raise UsageError(f"no commit of {wanted.commits} touches {wanted.suite}")
    reader = subject_reader(wanted.kernel, wanted.cases, wanted.profile, arch, sm_count)
    places = CommitSeries(repository, commits, reader, toolchain)
    details = tuple(commit.subject for commit in commits)
    return Series(places, "commit", details), f"commits that touch the suite, under {toolchain.label},"
