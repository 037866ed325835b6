"""The table of commands, and the one place where errors become messages and exit codes."""

import os
import sys
from typing import Any, NoReturn

import typer

from reprodb.errors import Exit, ReprodbError


def _register(app: typer.Typer) -> None:
    """Every command, in the order in which `--help` shows them. Modules here import nothing heavy."""
    from reprodb.cli import (
        baselines,
        bisect,
        bless,
        build,
        bundles,
        claim,
        code,
        db,
        diff,
        doctor,
        dossier,
        explain,
        kernels,
        nightly,
        profiles,
        run,
        show,
        toolchains,
        trace,
    )

    nightly.register(app)
    diff.register(app)
    dossier.register(app)
    explain.register(app)
    bisect.register(app)
    trace.register(app)
    bless.register(app)
    baselines.register(app)
    code.register(app)
    build.register(app)
    run.register(app)
    kernels.register(app)
    profiles.register(app)
    toolchains.register(app)
    show.register(app)
    claim.register(app)
    bundles.register(app)
    db.register(app)
    doctor.register(app)


def command_tree() -> Any:
    """The whole command line as one object: what runs, completes and documents itself."""
    app = typer.Typer(
        name="reprodb",
        help="Did this rebuild change the bits, and what moved?",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    _register(app)
    return typer.main.get_command(app)


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one command and exit with its documented code (errors.Exit; 130 for Ctrl-C)."""
    try:
        command_tree()(args=argv, prog_name="reprodb")
    except ReprodbError as error:
        print(f"reprodb: {error}", file=sys.stderr)  # noqa: T201 -- the last word of a failed command
        sys.exit(int(error.code))
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`); nothing more can be said, and nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(int(Exit.CLEAN))
