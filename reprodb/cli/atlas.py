"""`reprodb atlas`: which functions of the CUDA math API move between releases of NVRTC, and how."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
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
    from reprodb.atlas.survey import Made, Survey
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
            help="NVRTC versions (12.4 or 12.4.127) with commas between, or `all` published releases; "
            "what is installed by default.",
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
        typer.Option(
            "--run",
            metavar="RUN",
            help="The table of a recorded run, of its --toolkits where they are named; run nothing.",
        ),
    ] = None,
    written: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="The table of an atlas.json, .xz or not; run nothing."),
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
    Exit 0 whatever moves, 3 where a function gives two answers in one run, 4 where one has no result on a
    GPU; functions that the model refuses are named.
    """
    from reprodb.atlas.functions import select
    from reprodb.atlas.toolkits import check_words
    from reprodb.cli.flow import RunOptions
    from reprodb.cli.progress import listener
    from reprodb.profiles import bundled_profiles, load_profiles
    from reprodb.profiles import select as select_profiles
    from reprodb.store import open_store

    rows = select(function or ())
    _one_of({"--list": listing, "--pack": pack is not None, "--run": bool(run), "--from": bool(written)})
    if listing:
        _list(rows, as_json)
        raise typer.Exit(int(Exit.CLEAN))
    check_words(toolkits)
    if device == "cpu":
        raise UsageError(
            "the atlas's functions are GPU code", allowed="--device gpu, model, auto or an index"
        )
    if written:
        from reprodb.atlas.reading import read

        if toolkits:
            raise UsageError(
                "--toolkits chooses nothing of a written table",
                allowed="--run RUN --toolkits 12.6,13.2 compares any releases of a recorded run",
            )
        _give(_filtered(read(written), rows, profile), out, as_json=as_json, quiet=quiet)
    if run:
        with open_store(db) as database:
            found = _table(database, _number(database, run), rows, toolkits)
        _give(_filtered(found, rows, profile), out, as_json=as_json, quiet=quiet)
    # Unnamed flags are the bundled ones whatever a repository calls its own: tables stay comparable.
    file = profiles_file if profile and profiles_file else bundled_profiles()
    flags = select_profiles(load_profiles(file), profile or _FLAGS)
    _check(flags)
    wanted = Wanted(rows, flags, toolkits, arch, install, no_compile, repetitions)
    if pack:
        _pack(wanted, pack, store, jobs, quiet)
        raise typer.Exit(int(Exit.CLEAN))
    options = RunOptions(
        device=device, store=store, timeout=timeout, jobs=jobs, label=label, no_compile=no_compile
    )
    with open_store(db, write=True) as database, listener(quiet=quiet) as said:
        number = _record(wanted, options, database, said)
        said.said(f"run {number} is recorded; its table is made")
        found = _table(database, number, rows)
    _give(found, out, as_json=as_json, quiet=quiet, number=number)


def _one_of(options: Mapping[str, bool]) -> None:
    named = [option for option, given in options.items() if given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other", remedy="name one of them")


def _number(database: Store, run: str) -> int:
    number = database.resolve(run).run_id
    if number is None:
        raise UsageError(f"--run {run!r} is no run", allowed="the number or label of an atlas's run")
    return number


def _filtered(found: Atlas, rows: tuple[Function, ...], profiles: list[str] | None) -> Atlas:
    """The table of these functions and flags alone. A function that this version does not know goes too."""
    from reprodb.atlas.functions import functions
    from reprodb.atlas.table import narrowed

    names = {row.name for row in rows}
    everything = len(names) == len(functions()) and not profiles
    kept = found if everything else narrowed(found, names, profiles or ("*",))
    if not kept.entries:
        flags = ", ".join(name for name, _ in found.flags)
        raise UsageError(
            "the table has nothing of these functions and profiles", allowed=f"its flags are {flags}"
        )
    return kept


def _give(found: Atlas, out: Path, *, as_json: bool, quiet: bool, number: int | None = None) -> NoReturn:
    """Write the files, print the table, end."""
    from reprodb.render import atlas as render

    files = _write(found, out)
    if as_json:
        from reprodb.render.json import dumps

        typer.echo(dumps(render.document(found)), nl=False)
    else:
        for line in render.lines(found, quiet=quiet):
            typer.echo(line)
        if not quiet:
            recorded = f"run {number}; " if number is not None else ""
            typer.echo(f"\n{recorded}written: {', '.join(str(file) for file in files)}")
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
    from reprodb.cli.flow import opened_bench, utc_now
    from reprodb.domain import Run
    from reprodb.environment import host_environment

    with opened_bench(options, said) as bench:
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
        try:
            for results in made:
                number = database.begin(started) if number is None else number
                database.record_many(number, results)
                done += len(results)
                said.said(_progress(results, done, survey.size))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(number, done, survey.size)) from None
        if number is None:
            raise UsageError("nothing to run")
        database.finish(number, None, utc_now())
    return number


def _progress(results: Iterable[Made], done: int, size: int) -> str:
    names = list(dict.fromkeys(result.kernel.name for result, _ in results))
    told = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    return f"{done:,} of {size:,} results: {told}"


def _kept(number: int | None, done: int, size: int) -> str:
    """What an interrupted atlas leaves."""
    built = "what was built is in the artifact store"
    if number is None:
        return f"nothing is recorded; {built}"
    return (
        f"run {number} has {done:,} of {size:,} results, `reprodb atlas --run {number}` makes their table; "
        f"{built}"
    )


def _survey(wanted: Wanted, store: ArtifactStore, device: Device | None, said: Listener) -> Survey:
    from reprodb.atlas import toolkits
    from reprodb.atlas.survey import Survey, column
    from reprodb.profiles import architecture, check_arch
    from reprodb.recovery import Compilers
    from reprodb.render.text import count
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
        found = toolkits.chosen(wanted.toolkits, compilers, index, headers=halves, say=said.said)
    native = device.arch if device else None
    arch = check_arch(wanted.arch) if wanted.arch else architecture(wanted.flags[0], native)
    parts = (count(len(wanted.rows), "function"), count(len(wanted.flags), "set") + " of flags")
    said.said(f"{', '.join(parts)}, {', '.join(t.label for t in found)} ({arch})")
    columns = tuple(column(flags, toolchain) for flags in wanted.flags for toolchain in found)
    return Survey(wanted.rows, columns, arch, wanted.repetitions)


def _table(database: Store, number: int, rows: tuple[Function, ...], toolkits: str | None = None) -> Atlas:
    """The table of a recorded run, of some of its releases where they are named.

    Exact values where mpmath is installed.
    """
    from reprodb.atlas.exact import Exact, available
    from reprodb.atlas.source import SUITE
    from reprodb.atlas.table import atlas_of
    from reprodb.atlas.toolkits import of_releases
    from reprodb.executors.arrays import Arrays

    run = database.run(number)
    if run.suite != SUITE:
        raise UsageError(
            f"run {number} is no atlas's run, its suite is {run.suite}",
            allowed="a run that `reprodb atlas` recorded",
        )
    return atlas_of(
        run,
        of_releases(database.results(number), toolkits),
        rows,
        database.pattern,
        Arrays().get,
        Exact() if available() else None,
    )


def _write(found: Atlas, out: Path) -> list[Path]:
    from reprodb.files import replace_file
    from reprodb.render import atlas as render
    from reprodb.render import html
    from reprodb.render.atlas_page import markdown
    from reprodb.render.json import dumps

    texts = {
        "atlas.json": dumps(render.document(found)),
        "atlas.md": markdown(found),
        "atlas.html": html.atlas(found),
    }
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
