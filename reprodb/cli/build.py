"""`reprodb build`: fill the artifact store, pack it for another machine, take a packed one in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reprodb.cli.options import (
    ArchOption,
    JobsOption,
    JsonOption,
    KernelOption,
    ProfileOption,
    ProfilesFileOption,
    QuietOption,
    RequireOption,
    StoreOption,
    SuiteOption,
    TagOption,
)

if TYPE_CHECKING:
    from reprodb.campaign import Plan
    from reprodb.domain import Artifact, BuildRequest

PackOption = Annotated[
    Path | None, typer.Option("--pack", metavar="FILE", help="Write what was built into one archive.")
]
UnpackOption = Annotated[
    Path | None,
    typer.Option("--unpack", metavar="FILE", help="Take an archive's artifacts in; build nothing."),
]


def register(app: typer.Typer) -> None:
    app.command("build")(build)


def build(
    *,
    suite: SuiteOption = None,
    kernel: KernelOption = None,
    tag: TagOption = None,
    profile: ProfileOption = None,
    profiles_file: ProfilesFileOption = None,
    require: RequireOption = None,
    arch: ArchOption = None,
    store: StoreOption = None,
    jobs: JobsOption = None,
    pack: PackOption = None,
    unpack: UnpackOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile kernels under profiles into the artifact store. A second build compiles nothing.

    Build here, run there: `build --arch sm_90 --pack FILE` on one machine, `build --unpack FILE` and
    `run --no-compile` on another.
    """
    from reprodb.artifacts import DEFAULT_ROOT, ArtifactStore
    from reprodb.build import build_each
    from reprodb.campaign import plan
    from reprodb.cli.tables import emit
    from reprodb.environment import find_gpus
    from reprodb.errors import Exit, UsageError
    from reprodb.profiles import bundled_profiles, check_required, load_profiles, select
    from reprodb.suite import bundled_suite, load_suite, select_kernels
    from reprodb.toolchains import catalog

    place = ArtifactStore(store or DEFAULT_ROOT, lambda text: typer.echo(text, err=True))
    if unpack:
        if pack:
            raise UsageError("--pack and --unpack together", allowed="one of them")
        count = place.unpack(unpack)
        if as_json:
            emit({"schema": "reprodb.unpack/1", "store": str(place.root), "artifacts": count})
        else:
            typer.echo(f"{count} artifacts from {unpack} are in {place.root}")
        return

    loaded = load_suite(suite or bundled_suite())
    known = load_profiles(profiles_file or bundled_profiles())
    selected = select(known, profile)
    check_required(known, selected, require or ())
    devices = find_gpus().devices
    chosen = select_kernels(loaded, kernel or (), tag or ())
    programs = [k.name for k in chosen if k.program is not None]
    if programs and kernel:
        typer.echo(f"left to runs, which build programs: {', '.join(programs)}", err=True)
    work = plan(
        loaded,
        [k for k in chosen if k.program is None],
        selected,
        catalog.find(),
        arch=arch,
        native=devices[0].arch if devices else None,
        require=require or (),
    )
    done: list[tuple[BuildRequest, Artifact]] = []
    beside: list[tuple[BuildRequest, Artifact]] = []
    probes = probing_requests(work)
    others = {id(request) for request in probes}
    told: set[str] = set()
    for request, artifact in build_each([*requests_of(work), *probes, *canary_requests(work)], place, jobs):
        helper = is_canary(request) or id(request) in others
        (beside if helper else done).append((request, artifact))
        if not as_json and not (helper and artifact.build.status == "ok"):
            _tell(request, artifact, quiet, shared=artifact.build.key in told)
            told.add(artifact.build.key)
    every = [artifact for _, artifact in (*done, *beside)]
    failed = [artifact for artifact in every if artifact.build.status != "ok"]
    if pack:
        # An artifact may lack what one kernel needs of it and serve another.
        place.pack(pack, {artifact.build.key for artifact in every if artifact.build.status == "ok"})
    canaries = sum(is_canary(request) for request, _ in beside)
    if as_json:
        emit(_document(place.root, work, done, pack, canaries))
    else:
        _summary(work, done, pack, quiet, (canaries, len(beside) - canaries))
    raise typer.Exit(int(Exit.NO_ANSWER if failed else Exit.CLEAN))


def requests_of(work: Plan) -> list[BuildRequest]:
    """The requests of a plan, their sources read. Programs are built where they run, and are not here."""
    from reprodb.build import request

    return [request(work.suite, b.kernel, b.profile, b.toolchain, b.arch) for b in work.builds]


def probing_requests(work: Plan) -> list[BuildRequest]:
    """The builds that the plan's orders are probed with, where those are builds of their own."""
    from reprodb.build import probing

    found = zip(requests_of(work), work.builds, strict=True)
    return [probe for wanted, build in found if (probe := probing(wanted, build.kernel)) is not None]


def canary_requests(work: Plan) -> list[BuildRequest]:
    """The canaries for every toolchain and architecture of a plan: a run elsewhere starts with them."""
    from reprodb.canaries import plan_canaries

    pairs = dict.fromkeys((build.toolchain, build.arch) for build in work.builds)
    return [request for pair in pairs for request in requests_of(plan_canaries(*pair))]


def is_canary(request: BuildRequest) -> bool:
    from reprodb.canaries import OFF, ON

    return request.profile.name in (ON, OFF)


def _tell(request: BuildRequest, artifact: Artifact, quiet: bool, *, shared: bool) -> None:
    build = artifact.build
    name = f"{request.kernel}  {request.profile.name}  {build.arch}  {build.toolchain.label}"
    if build.status != "ok":
        from reprodb.render.text import shown_lines

        typer.echo(f"failed  {name}\n{shown_lines(build.log.rstrip())}", err=True, nl=False)
    elif not quiet:
        how = "stored" if artifact.cached else "shared" if shared else "built "
        typer.echo(f"{how}  {name}  {build.key[:12]}")


def _summary(
    work: Plan,
    done: list[tuple[BuildRequest, Artifact]],
    pack: Path | None,
    quiet: bool,
    beside: tuple[int, int],
) -> None:
    """`beside` counts canaries and probing builds."""
    for skipped in work.skipped:
        typer.echo(f"skipped {skipped.profile}: {skipped.reason}; {skipped.remedy}", err=True)
    if quiet:
        return
    kernels = [artifact for _, artifact in done]
    canaries, probes = beside
    helpers = f"{canaries} canaries" + (f" and {probes} builds that probe an order" if probes else "")
    failed = sum(artifact.build.status != "ok" for artifact in kernels)
    cached = sum(artifact.cached for artifact in kernels)
    fresh = [a.build.key for a in kernels if not a.cached and a.build.status == "ok"]
    built, shared = len(set(fresh)), len(fresh) - len(set(fresh))
    typer.echo(
        f"{built} built{f' and shared {shared} times' if shared else ''}, "
        f"{cached} from the store, {failed} failed, "
        f"{len(work.skipped)} profiles skipped, {helpers} beside them"
    )
    if pack:
        typer.echo(f"packed into {pack}")


def _document(
    root: Path, work: Plan, done: list[tuple[BuildRequest, Artifact]], pack: Path | None, canaries: int
) -> dict[str, Any]:
    return {
        "schema": "reprodb.build/1",
        "store": str(root),
        "packed": str(pack) if pack else None,
        "artifacts": [
            {
                "kernel": request.kernel,
                "profile": request.profile.name,
                "arch": artifact.build.arch,
                "status": artifact.build.status.value,
                "cached": artifact.cached,
                "key": artifact.build.key,
                "toolchain": artifact.build.toolchain.label,
                "options": list(artifact.build.options),
                "log": artifact.build.log,
            }
            for request, artifact in done
        ],
        "canaries": canaries,
        "skipped": [{"profile": s.profile, "reason": s.reason, "remedy": s.remedy} for s in work.skipped],
    }
