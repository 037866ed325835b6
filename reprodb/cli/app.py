"""The table of commands; reprodb.cli.ending makes messages and exit codes of what goes wrong in one."""

import sys
from typing import Annotated, Any, NoReturn

import typer

from reprodb.cli import ending
from reprodb.version import __version__


def _register(app: typer.Typer) -> None:
    """Every command, in the order in which `--help` shows them. Modules here import nothing heavy."""
    from reprodb.cli import (
        atlas,
        baselines,
        bisect,
        bless,
        build,
        bundles,
        check,
        claim,
        code,
        db,
        diff,
        doctor,
        dossier,
        explain,
        init,
        kernels,
        nightly,
        order,
        profiles,
        run,
        show,
        suite,
        toolchains,
        trace,
    )

    nightly.register(app)
    diff.register(app)
    check.register(app)
    dossier.register(app)
    explain.register(app)
    bisect.register(app)
    atlas.register(app)
    trace.register(app)
    bless.register(app)
    baselines.register(app)
    code.register(app)
    order.register(app)
    build.register(app)
    run.register(app)
    kernels.register(app)
    init.register(app)
    suite.register(app)
    profiles.register(app)
    toolchains.register(app)
    show.register(app)
    claim.register(app)
    bundles.register(app)
    db.register(app)
    doctor.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"reprodb {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Did this rebuild change the bits, and what moved?"""


def command_tree() -> Any:
    """The whole command line as one object: what runs, completes and documents itself."""
    app = typer.Typer(
        name="reprodb",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    _register(app)
    return typer.main.get_command(app)


def _with_values(words: list[str]) -> list[str]:
    """`--stress` may stand alone, and then means its quick set."""
    return [
        f"{word}=quick" if word == "--stress" and after.startswith("-") else word
        for word, after in zip(words, (*words[1:], "--"), strict=False)
    ]


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one command and exit with its documented code (errors.Exit; 130 for Ctrl-C)."""
    with ending.interrupts_heard(), ending.readers_may_leave():
        words = _with_values(sys.argv[1:] if argv is None else argv)
        code = ending.code_of(lambda: command_tree()(args=words, prog_name="reprodb"))
    sys.exit(code)
