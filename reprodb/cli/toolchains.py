"""`reprodb toolchains`: list the compilers of this machine, install and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from reprodb.cli.options import JsonOption, QuietOption

if TYPE_CHECKING:
    from reprodb.domain import Toolchain

CompilerArgument = Annotated[str, typer.Argument(metavar="nvrtc|nvcc")]
VersionArgument = Annotated[str, typer.Argument(metavar="VERSION", help="13, 12.9 or 12.9.86")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List, install and remove compilers.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("list")(list_toolchains)
    group.command("install")(install_toolchain)
    group.command("remove")(remove_toolchain)
    app.add_typer(group, name="toolchains")


def list_toolchains(as_json: JsonOption = False) -> None:
    """List every compiler that was found: exact version, parts, architectures and where it came from."""
    from reprodb.cli.tables import emit, show
    from reprodb.toolchains import catalog

    survey = catalog.survey()
    if as_json:
        broken = [
            {"compiler": b.candidate.compiler, "path": str(b.candidate.path), "reason": b.reason}
            for b in survey.broken
        ]
        records = [record(toolchain) for toolchain in survey.found]
        emit({"schema": "reprodb.toolchains/1", "toolchains": records, "broken": broken})
        return
    rows = [
        (
            toolchain.label,
            toolchain.origin,
            architectures(toolchain),
            ", ".join(f"{name} {value}" for name, value in toolchain.components) or "-",
            toolchain.path,
        )
        for toolchain in survey.found
    ]
    if rows:
        show(("toolchain", "from", "architectures", "parts", "path"), rows)
    else:
        typer.echo("no toolchains; install one: reprodb toolchains install nvrtc 13")
    for fault in survey.broken:
        typer.echo(f"does not work: {fault.candidate.path}: {fault.reason}", err=True)


def install_toolchain(
    compiler: CompilerArgument,
    version: VersionArgument,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put the newest published compiler of a version into your cache folder. Needs no root."""
    from reprodb.cli.tables import emit
    from reprodb.toolchains.install import install

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=as_json)

    toolchain = install(compiler, version, say=say)
    if as_json:
        emit({"schema": "reprodb.toolchain/1", **record(toolchain)})
    else:
        say(f"{toolchain.label} works: {toolchain.path}")


def remove_toolchain(compiler: CompilerArgument, version: VersionArgument) -> None:
    """Take a compiler that `install` put there out of the cache folder."""
    from reprodb.toolchains.install import remove

    typer.echo(f"removed {remove(compiler, version)}")


def record(toolchain: Toolchain) -> dict[str, Any]:
    """A toolchain as JSON."""
    return {
        "compiler": toolchain.compiler,
        "version": toolchain.version,
        "origin": toolchain.origin,
        "path": toolchain.path,
        "architectures": list(toolchain.architectures),
        "components": dict(toolchain.components),
    }


def architectures(toolchain: Toolchain) -> str:
    """The range of architectures in a word: `sm_50 … sm_90 (14)`."""
    known = toolchain.architectures
    return f"{known[0]} … {known[-1]} ({len(known)})" if len(known) > 1 else "".join(known) or "-"
