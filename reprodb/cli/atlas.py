"""`reprodb atlas`: which functions of the CUDA math API move between releases of NVRTC, and how."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from reprodb.cli.options import (
    ArchOption,
    DatabaseOption,
    DeviceOption,
    JobsOption,
    JsonOption,
    LabelOption,
    OutOption,
    ProfileOption,
    ProfilesFileOption,
    QuietOption,
    StoreOption,
    TimeoutOption,
)
from reprodb.errors import Exit, ReprodbError, ToolchainError, UsageError

if TYPE_CHECKING:
    from reprodb.artifacts import ArtifactStore
    from reprodb.atlas.functions import Function
    from reprodb.atlas.survey import Survey
    from reprodb.atlas.table import Atlas
    from reprodb.cli.flow import RunOptions
    from reprodb.cli.progress import Listener
    from reprodb.domain import Device, Profile, Toolchain
    from reprodb.store.store import Store

_FLAGS = ("default", "fast-math")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the atlas is asked for, as the command line says it."""

    rows: tuple[Function, ...]
    flags: tuple[Profile, ...]
    toolkits: str | None
    arch: str | None
    install: bool
    no_compile: bool
    repetitions: int


def register(app: typer.Typer) -> None:
    app.command("atlas")(atlas)


def atlas(
    *,
    toolkits: Annotated[
        str | None,
        typer.Option(
            "--toolkits",
            metavar="VERSIONS",
            help="NVRTC versions with commas between, or `all` published; what is installed by default.",
        ),
    ] = None,
    function: Annotated[
        list[str] | None,
        typer.Option("--function", metavar="NAME", help="Only these functions (repeatable, globs)."),
    ] = None,
    profile: ProfileOption = None,
    profiles_file: ProfilesFileOption = None,
    arch: ArchOption = None,
    device: DeviceOption = "auto",
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-n", min=1, max=1000, help="Executions of each function.")
    ] = 2,
    install: Annotated[
        bool, typer.Option("--install/--no-install", help="Install versions that are missing.")
    ] = True,
    no_compile: Annotated[
        bool, typer.Option("--no-compile", help="Run what is in the artifact store; compile nothing.")
    ] = False,
    pack: Annotated[
        Path | None,
        typer.Option("--pack", metavar="FILE", help="Build into one archive for another machine, and stop."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="The table of a recorded run; run nothing."),
    ] = None,
    db: DatabaseOption = None,
    store: StoreOption = None,
    out: OutOption = Path("reports"),
    label: LabelOption = None,
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = None,
    listing: Annotated[bool, typer.Option("--list", help="List the functions and stop.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the CUDA math API under several releases of NVRTC and say which functions move at which step.

    Results are recorded as a run; text goes to standard output, atlas.json, atlas.md and atlas.html to --out.
    Exit 4 where a function has no result on a GPU; functions that the model refuses are named.
    """
    from reprodb.atlas.functions import select
    from reprodb.cli.flow import RunOptions
    from reprodb.cli.progress import listener
    from reprodb.profiles import bundled_profiles, load_profiles
    from reprodb.profiles import select as select_profiles
    from reprodb.render import atlas as render
    from reprodb.store import open_store

    rows = select(function or ())
    if listing:
        _list(rows, as_json)
        raise typer.Exit(int(Exit.CLEAN))
    flags = select_profiles(load_profiles(profiles_file or bundled_profiles()), profile or _FLAGS)
    _check(flags)
    wanted = Wanted(rows, flags, toolkits, arch, install, no_compile, repetitions)
    if pack:
        _pack(wanted, pack, store, jobs, quiet)
        raise typer.Exit(int(Exit.CLEAN))
    options = RunOptions(
        device=device, store=store, timeout=timeout, jobs=jobs, label=label, no_compile=no_compile
    )
    with open_store(db, write=run is None) as database, listener(quiet=quiet) as said:
        number = database.resolve(run).run_id if run else _record(wanted, options, database, said)
        if number is None:
            raise UsageError(f"--run {run!r} is no run", allowed="the number or label of an atlas's run")
        found = _table(database, number, rows)
    if not found.entries:
        raise UsageError(f"run {number} is no atlas's run", allowed="a run that `reprodb atlas` recorded")
    files = _write(found, out)
    if as_json:
        from reprodb.render.json import dumps

        typer.echo(dumps(render.document(found)), nl=False)
    else:
        for line in render.lines(found, quiet=quiet):
            typer.echo(line)
        if not quiet:
            typer.echo(f"\nrun {number}; written: {', '.join(str(file) for file in files)}")
    raise typer.Exit(int(exit_code(found)))


def exit_code(found: Atlas) -> Exit:
    """Moves are the answer, not a failure: only missing or unstable results count."""
    from reprodb.domain import Lane, Status

    if any(entry.unstable for entry in found.entries):
        return Exit.UNTRUSTWORTHY
    refused = Status.UNSUPPORTED.value if found.lane is Lane.MODELLED else ""
    absent = [a for entry in found.entries for a in entry.absences if a.status != refused]
    return Exit.NO_ANSWER if absent else Exit.CLEAN


def _record(wanted: Wanted, options: RunOptions, database: Store, said: Listener) -> int:
    """Execute and record; the number of the run."""
    from reprodb.atlas.source import SUITE
    from reprodb.atlas.survey import carry_out
    from reprodb.cli.flow import opened_bench, terminated_as_interrupt, utc_now
    from reprodb.domain import Run
    from reprodb.environment import host_environment

    with terminated_as_interrupt(), opened_bench(options, said) as bench:
        survey = _survey(wanted, bench.store, bench.where.device, said)
        started = Run(
            uid=uuid4().hex,
            suite=SUITE,
            lane=bench.where.lane,
            environment=host_environment(bench.platform),
            started_at=utc_now(),
            label=options.label,
        )
        number: int | None = None
        done = 0
        made = carry_out(
            survey, bench.store, bench.pool, bench.where.lane, jobs=options.jobs, no_compile=wanted.no_compile
        )
        for results in made:
            number = database.begin(started) if number is None else number
            database.record_many(number, results)
            done += len(results)
            said.said(f"{done} of {survey.size} results")
        if number is None:
            raise UsageError("nothing to run")
        database.finish(number, None, utc_now())
    return number


def _survey(wanted: Wanted, store: ArtifactStore, device: Device | None, said: Listener) -> Survey:
    from reprodb.atlas import toolkits
    from reprodb.atlas.survey import Survey, column
    from reprodb.profiles import architecture, check_arch
    from reprodb.recovery import Compilers
    from reprodb.toolchains import catalog, headers
    from reprodb.toolchains.install import install as put_in_cache
    from reprodb.toolchains.places import cache_folder
    from reprodb.toolchains.registry import Registry

    # Beside what profiles find: an atlas must not make `cuda12` mean another version than it did.
    aside = {**os.environ, "REPRODB_CACHE": str(cache_folder() / "atlas")}

    def fetch(compiler: str, version: str) -> Toolchain:
        return put_in_cache(compiler, version, say=said.said, environ=aside)

    if wanted.no_compile:
        found = toolkits.stored(wanted.toolkits, store.toolchains())
    else:
        here = (*catalog.find(), *catalog.find(aside, catalog.Places((), (), ())))
        complete_first = sorted(here, key=lambda toolchain: not headers.folders(toolchain))
        compilers = Compilers(complete_first, fetch if wanted.install else None)
        halves = any(row.source == "f16" for row in wanted.rows)
        index = Registry() if wanted.install else None
        found = toolkits.chosen(wanted.toolkits, compilers, index, headers=halves)
    native = device.arch if device else None
    arch = check_arch(wanted.arch) if wanted.arch else architecture(wanted.flags[0], native)
    said.said(
        f"{len(wanted.rows)} functions, {len(wanted.flags)} sets of flags, {len(found)} versions ({arch})"
    )
    columns = tuple(column(flags, toolchain) for flags in wanted.flags for toolchain in found)
    return Survey(wanted.rows, columns, arch, wanted.repetitions)


def _table(database: Store, number: int, rows: tuple[Function, ...]) -> Atlas:
    """The table of a recorded run; exact values where mpmath is installed."""
    from reprodb.atlas.exact import Exact, available
    from reprodb.atlas.table import atlas_of
    from reprodb.executors.arrays import Arrays

    return atlas_of(
        database.run(number),
        database.results(number),
        rows,
        database.pattern,
        Arrays().get,
        Exact() if available() else None,
    )


def _write(found: Atlas, out: Path) -> list[Path]:
    from reprodb.files import replace_file
    from reprodb.render import atlas as render
    from reprodb.render.json import dumps

    texts = {"atlas.json": dumps(render.document(found))}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            replace_file(out / name, text.encode())
    except OSError as error:
        raise ReprodbError(
            f"writing into {out} failed: {error.strerror or error}", remedy="name another folder with --out"
        ) from error
    return [out / name for name in texts]


def _pack(wanted: Wanted, file: Path, store: Path | None, jobs: int | None, quiet: bool) -> None:
    """Build everything and write it into one archive."""
    from reprodb.artifacts import DEFAULT_ROOT, ArtifactStore
    from reprodb.build import build_each
    from reprodb.cli.progress import listener
    from reprodb.render.text import shown_lines

    with listener(quiet=quiet) as said:
        place = ArtifactStore(store or DEFAULT_ROOT, said.said)
        survey = _survey(wanted, place, None, said)
        requests = [request for source in survey.sources for request in survey.requests(source)]
        keys = set()
        for request, artifact in build_each(requests, place, jobs, no_compile=wanted.no_compile):
            name = f"{request.kernel} {request.profile.name}"
            if artifact.build.status != "ok":
                raise ToolchainError(f"{name} does not compile", detail=shown_lines(artifact.build.log))
            keys.add(artifact.build.key)
            said.said(f"{len(keys)} of {len(requests)}: {name}")
        place.pack(file, keys)
    typer.echo(f"{len(keys)} artifacts packed into {file}")


def _list(rows: Iterable[Function], as_json: bool) -> None:
    from reprodb.atlas.table import signature
    from reprodb.cli.tables import emit, show

    cells = [(row.name, signature(row), row.source, row.exact or "-") for row in rows]
    if as_json:
        keys = ("function", "signature", "source", "exact")
        emit(
            {"schema": "reprodb.atlas-list/1", "functions": [dict(zip(keys, c, strict=True)) for c in cells]}
        )
    else:
        show(("function", "signature", "source", "exact value"), cells)


def _check(flags: Iterable[Profile]) -> None:
    for profile in flags:
        if profile.compiler != "nvrtc":
            raise UsageError(
                f"profile {profile.name} compiles with {profile.compiler}",
                allowed="profiles of nvrtc: the atlas takes their flags, and the versions from --toolkits",
            )
