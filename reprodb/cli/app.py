"""The table of commands, and the one place where errors become messages and exit codes."""

import sys
from typing import NoReturn

import typer

from reprodb.errors import Exit, ReprodbError

app = typer.Typer(
    name="reprodb",
    help="Did this rebuild change the bits, and what moved?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _register() -> None:
    """Every command, in the order in which `--help` shows them. Modules here import nothing heavy."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one command and exit with its documented code."""
    _register()
    try:
        app(args=argv, standalone_mode=True)
    except ReprodbError as error:
        print(f"reprodb: {error}", file=sys.stderr)  # noqa: T201 -- the last word of a failed command
        sys.exit(int(error.code))
    sys.exit(int(Exit.CLEAN))
