"""`reprodb profiles`: the build profiles, each with its full, resolved option list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from reprodb.cli.options import ArchOption, JsonOption, ProfilesFileOption

if TYPE_CHECKING:
    from reprodb.domain import Profile, Toolchain

NameArgument = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Profiles (globs).")]


def register(app: typer.Typer) -> None:
    app.command("profiles")(profiles)


def profiles(
    names: NameArgument = None,
    profiles_file: ProfilesFileOption = None,
    arch: ArchOption = None,
    as_json: JsonOption = False,
) -> None:
    """List build profiles with the toolchain that each would use; with NAME, every setting and option."""
    from reprodb.cli.tables import emit, show
    from reprodb.environment import find_gpus
    from reprodb.profiles import architecture, bundled_profiles, check_arch, load_profiles, select
    from reprodb.toolchains import catalog

    chosen = select(load_profiles(profiles_file or bundled_profiles()), names)
    found = catalog.find()
    devices = find_gpus().devices
    native = devices[0].arch if devices else None
    views = [
        (profile, catalog.match(profile, found), check_arch(arch or architecture(profile, native)))
        for profile in chosen
    ]
    if as_json:
        emit({"schema": "reprodb.profiles/1", "profiles": [_record(*view) for view in views]})
    elif names:
        for view in views:
            _details(*view)
    else:
        rows = [
            (
                profile.name,
                f"{profile.compiler} {profile.toolkit}",
                toolchain.label if toolchain else f"absent: {catalog.install_command(profile)}",
                " ".join(_options(profile, target)),
            )
            for profile, toolchain, target in views
        ]
        show(("profile", "asks for", "has", "options"), rows)


def _options(profile: Profile, arch: str) -> tuple[str, ...]:
    from reprodb.toolchains.options import resolved

    return resolved(profile, arch, ())


def _record(profile: Profile, toolchain: Toolchain | None, arch: str) -> dict[str, Any]:
    from reprodb.cli.toolchains import record
    from reprodb.toolchains.catalog import install_command

    return {
        "profile": profile.name,
        "compiler": profile.compiler,
        "toolkit": profile.toolkit,
        "arch": profile.arch,
        "fmad": profile.fmad,
        "fast_math": profile.fast_math,
        "ftz": profile.ftz,
        "prec_div": profile.prec_div,
        "prec_sqrt": profile.prec_sqrt,
        "extra": list(profile.extra),
        "options": list(_options(profile, arch)),
        "toolchain": record(toolchain) if toolchain else None,
        "install": None if toolchain else install_command(profile),
    }


def _details(profile: Profile, toolchain: Toolchain | None, arch: str) -> None:
    from reprodb.toolchains.catalog import install_command

    typer.echo(f"profile {profile.name}")
    for name, value in _record(profile, toolchain, arch).items():
        if name in ("fmad", "fast_math", "ftz", "prec_div", "prec_sqrt"):
            word = "the compiler's default" if value is None else str(value).lower()
            typer.echo(f"  {name:<10} {word}")
        elif name in ("compiler", "toolkit", "arch"):
            typer.echo(f"  {name:<10} {value}")
    typer.echo(f"  {'extra':<10} {' '.join(profile.extra) or '-'}")
    place = f"{toolchain.label} ({toolchain.origin})" if toolchain else f"absent: {install_command(profile)}"
    typer.echo(f"  {'toolchain':<10} {place}")
    typer.echo(f"  {'options':<10} {' '.join(_options(profile, arch))}")
    typer.echo("  and -DNAME=VALUE for each define of a kernel's manifest")
