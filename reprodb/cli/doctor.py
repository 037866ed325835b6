"""`reprodb doctor`: what this machine can do, and for each gap the one command that closes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reprodb.cli.options import DatabaseOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from reprodb.environment import Gpus
    from reprodb.toolchains.catalog import Survey


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `remedy` is a command, or a sentence where none helps; "" where all is well."""

    area: str
    name: str
    ok: bool
    detail: str
    remedy: str = ""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(db: DatabaseOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say what this machine can do: GPUs, lanes, toolchains, nights, and the command that closes each gap.

    The output is fit for a bug report: passwords and the home folder's name are left out. Exit 4 where no
    lane or no toolchain works, so that nothing could be run at all.
    """
    from reprodb.artifacts import DEFAULT_ROOT
    from reprodb.cli.tables import emit, show
    from reprodb.environment import find_gpus
    from reprodb.errors import Exit
    from reprodb.toolchains import catalog

    gpus, survey = find_gpus(), catalog.survey()
    found = (
        *itself(),
        *lanes(gpus),
        *toolchains(survey),
        *tools(),
        *places(db, store or DEFAULT_ROOT),
        *nights(db),
    )
    checks = tuple(fit_to_show(check) for check in found)
    useful = {area: any(c.ok for c in checks if c.area == area) for area in ("lane", "toolchain")}
    if as_json:
        emit(
            {
                "schema": "reprodb.doctor/1",
                "usable": all(useful.values()),
                "checks": [asdict(c) for c in checks],
            }
        )
    else:
        rows = [("ok" if c.ok else "gap", f"{c.area} {c.name}", c.detail, c.remedy) for c in checks]
        show(("", "what", "found", "to close the gap"), rows)
        if not useful["lane"]:
            typer.echo("nothing can execute kernels here: no lane works", err=True)
        if not useful["toolchain"]:
            typer.echo("nothing can compile kernels here: no toolchain works", err=True)
    raise typer.Exit(int(Exit.CLEAN if all(useful.values()) else Exit.NO_ANSWER))


def fit_to_show(check: Check, home: str = str(Path.home())) -> Check:
    """The check without what a stranger should not read: credentials of URLs, whose home folder it is."""
    from reprodb.cli.log import redacted

    def shown(text: str) -> str:
        text = redacted(text)
        return text.replace(f"{home}/", "~/") if len(home) > 1 else text

    return replace(check, name=shown(check.name), detail=shown(check.detail), remedy=shown(check.remedy))


def itself() -> Iterator[Check]:
    """What is running here, as a bug report needs it."""
    import platform

    from reprodb.environment import cpu_name
    from reprodb.version import __version__

    yield Check("reprodb", __version__, True, f"Python {platform.python_version()}, {platform.platform()}")
    yield Check("cpu", str(os.cpu_count() or 0), True, f"{cpu_name() or 'unknown'}, {platform.machine()}")


def lanes(gpus: Gpus) -> Iterator[Check]:
    """The driver's devices, then the two lanes."""
    from importlib.util import find_spec

    from reprodb.environment import check_cupy, driver_version
    from reprodb.errors import ExecutionError

    for device in gpus.devices:
        yield Check("gpu", str(device.index), True, f"{device.name}, {device.arch}, {device.uuid}")
    if gpus.devices:
        yield Check("driver", driver_version() or "unknown", True, f"speaks CUDA {gpus.cuda_driver}")
        try:
            check_cupy(cuda_driver=gpus.cuda_driver)
            yield Check("lane", "measured", True, "a GPU and CuPy")
        except ExecutionError as error:
            yield Check("lane", "measured", False, error.problem, error.remedy)
    else:
        help_there = "run this on a machine with an NVIDIA GPU; the modelled lane needs none"
        yield Check("lane", "measured", False, gpus.problem, help_there)
    if find_spec("llvmlite"):
        yield Check("lane", "modelled", True, "llvmlite executes PTX on this CPU")
    else:
        yield Check("lane", "modelled", False, "llvmlite is not installed", "pip install 'reprodb[cpu]'")


def toolchains(survey: Survey) -> Iterator[Check]:
    """Each toolchain that works, each bundled profile's that is absent, each file that does not work."""
    from reprodb.profiles import bundled_profiles, load_profiles
    from reprodb.toolchains.catalog import install_command, match

    for toolchain in survey.found:
        parts = ", ".join(f"{name} {value}" for name, value in toolchain.components)
        yield Check("toolchain", toolchain.label, True, f"{toolchain.origin}{', ' + parts if parts else ''}")
    absent: dict[str, list[str]] = {}
    for profile in load_profiles(bundled_profiles()).values():
        if match(profile, survey.found) is None:
            absent.setdefault(install_command(profile), []).append(profile.name)
    for command, names in absent.items():
        compiler, version = command.split()[-2:]
        yield Check(
            "toolchain", f"{compiler} {version}", False, f"absent; {', '.join(names)} need it", command
        )
    for fault in survey.broken:
        remedy = "remove it, or mend it with the way it was installed"
        yield Check("broken", str(fault.candidate.path), False, fault.reason, remedy)


def tools() -> Iterator[Check]:
    from reprodb.toolchains import nvcc, sass
    from reprodb.toolchains.process import dropped_variables

    found = sass.find()
    if found:
        yield Check("tool", "nvdisasm", True, f"{found.version} ({found.origin})")
    else:
        detail = "absent: SASS is neither shown nor compared"
        yield Check("tool", "nvdisasm", False, detail, "pip install 'reprodb[sass]'")
    host = nvcc.host_compiler()
    if host:
        yield Check("tool", "host compiler", True, host)
    else:
        yield Check("tool", "host compiler", False, "absent: nvcc needs one", "apt-get install g++")
    for name in dropped_variables(os.environ):
        yield Check("variable", name, True, "set, and kept from compilers")


def places(db: str | None, store: Path) -> Iterator[Check]:
    """What has to be written: the database, the artifact store, the cache folder, reports."""
    from reprodb.cli.reports import unwritable
    from reprodb.errors import UsageError
    from reprodb.store.location import locate
    from reprodb.toolchains.places import cache_folder

    try:
        path = locate(db).path
    except UsageError as error:
        yield Check("place", "database", False, error.problem, error.remedy or f"allowed: {error.allowed}")
    else:
        if path is None:
            yield _connects(db)
        else:
            remedy = f"name another with --db (or REPRODB_DB): {path} cannot be written"
            yield _writable("database", path, remedy)
    yield _writable("store", store, "name a writable folder with --store")
    yield _writable("cache", cache_folder(), "name a writable folder in REPRODB_CACHE")
    why = unwritable(Path("reports"))
    remedy = "name a writable folder with --out" if why else ""
    yield Check("place", "reports", not why, f"reports: {why or 'writable'}", remedy)


def nights(db: str | None) -> Iterator[Check]:
    """Whether nights come as `[nightly] every` in reprodb.toml expects them, by what the database has."""
    from datetime import UTC, datetime

    from reprodb.cli.judging import policy_at
    from reprodb.errors import ReprodbError
    from reprodb.nights import by_place, expected, gaps
    from reprodb.store import open_store
    from reprodb.store.location import locate

    try:
        every = policy_at(None).every
        path = locate(db).path
        if path is not None and not path.exists():
            if every is not None:
                yield Check("nights", "none", False, f"there is no database {path} yet", "reprodb nightly")
            return
        with open_store(db) as store:
            places = by_place(store.runs())
    except ReprodbError as error:
        yield Check("nights", "unknown", False, error.problem, error.remedy)
        return
    for (suite, lane, gpu), runs in places.items():
        rhythm = every or expected(runs[-1])
        found = gaps((run.started_at for run in runs), rhythm, datetime.now(UTC))
        name = f"{suite} {lane.value}{f' {gpu}' if gpu else ''}"
        last = f"the last began {runs[-1].started_at:%Y-%m-%d %H:%M} UTC"
        if found and found[-1].until is None:
            remedy = "is the schedule disabled (GitHub does so after 60 idle days), or the runner away?"
            yield Check("nights", name, False, f"{found[-1]}; {last}", remedy)
        elif rhythm is None:
            yield Check(
                "nights", name, True, f"{last}; [nightly] every in reprodb.toml says how often to expect"
            )
        else:
            past = f"; {found[-1]}" if found else ""
            yield Check("nights", name, True, f"{last}{past}")


def _writable(name: str, path: Path, remedy: str) -> Check:
    """Whether a file can be made where a path is or will be, found out by making one."""
    from reprodb.cli.reports import unwritable

    folder = path if path.is_dir() else path.absolute().parent
    ok = not unwritable(folder) and (not path.is_file() or os.access(path, os.W_OK))
    state = "writable" if ok else "not writable"
    return Check("place", name, ok, f"{path}: {state}", "" if ok else remedy)


def _connects(url: str | None) -> Check:
    from reprodb.errors import ReprodbError
    from reprodb.store import open_store

    try:
        open_store(url).close()
    except ReprodbError as error:
        return Check("place", "database", False, error.problem, error.remedy)
    return Check("place", "database", True, "the server answers")
