"""The table of commands; reprodb.cli.ending makes messages and exit codes of what goes wrong in one."""

import gc
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from reprodb.cli import ending
from reprodb.version import __version__

# The modules of reprodb.cli and their commands, in the order in which `--help` shows them.
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nightly", ("nightly",)),
    ("diff", ("diff",)),
    ("check", ("check",)),
    ("dossier", ("dossier",)),
    ("explain", ("explain",)),
    ("bisect", ("bisect",)),
    ("atlas", ("atlas",)),
    ("trace", ("trace",)),
    ("bless", ("bless",)),
    ("baselines", ("baselines",)),
    ("code", ("code",)),
    ("order", ("order",)),
    ("build", ("build",)),
    ("run", ("run",)),
    ("kernels", ("kernels",)),
    ("init", ("init",)),
    ("suite", ("suite",)),
    ("profiles", ("profiles",)),
    ("toolchains", ("toolchains",)),
    ("show", ("show", "runs", "history", "report", "site")),
    ("claim", ("claim",)),
    ("bundles", ("export", "import")),
    ("db", ("db",)),
    ("doctor", ("doctor",)),
)


def _register(app: typer.Typer, first: str) -> None:
    """Every command; where the first word names one, those of its module alone: a start loads no others."""
    named = [module for module, commands in COMMANDS if first in commands]
    for module in named or [module for module, _ in COMMANDS]:
        import_module(f"reprodb.cli.{module}").register(app)


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


def command_tree(first: str = "") -> Any:
    """The command line as one object: what runs, completes and documents itself.

    It is whole unless `first`, the first word of a call, names a command: then it has that one.
    """
    app = typer.Typer(
        name="reprodb",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    _register(app, first)
    return typer.main.get_command(app)


def _with_values(words: list[str]) -> list[str]:
    """`--stress` may stand alone, and then means its quick set."""
    return [
        f"{word}=quick" if word == "--stress" and after.startswith("-") else word
        for word, after in zip(words, (*words[1:], "--"), strict=False)
    ]


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one command and exit with its documented code (errors.Exit; 130 for Ctrl-C)."""
    # What is read is frozen and without cycles: looking for garbage less often saves a tenth of a large diff.
    gc.set_threshold(50_000, 20, 20)
    with ending.interrupts_heard(), ending.readers_may_leave():
        words = _with_values(sys.argv[1:] if argv is None else argv)
        code = ending.code_of(lambda: command_tree(*words[:1])(args=words, prog_name="reprodb"))
    sys.exit(code)
