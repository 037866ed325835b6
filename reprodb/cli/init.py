"""`reprodb init`: a suite, profiles, a policy and a workflow for a repository that has none."""

from __future__ import annotations

import sys
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reprodb.starting.places import NewFile

IGNORED = ("/.venv/", "/builds/store/", "/reports/", "/reprodb.db*")
WORKFLOW = ".github/workflows/reprodb.yml"
# Where each template goes.
FILES = {
    "kernels/sum_blocks/sum_blocks.cu": "sum_blocks.cu",
    "kernels/sum_blocks/kernel.toml": "kernel.toml",
    "builds/profiles.toml": "profiles.toml",
    "reprodb.toml": "reprodb.toml",
    WORKFLOW: "workflow.yml",
}


def register(app: typer.Typer) -> None:
    app.command("init")(init)


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The repository; the current folder by default.")
    ] = Path(),
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The suite's name for good; the folder's by default."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", "--yes", "-y", help="Replace files that say something else.")
    ] = False,
) -> None:
    """Write a suite with one example, build profiles, a policy, a workflow and lines for .gitignore.

    A file that is there and says something else is asked for in a terminal; elsewhere it is an error, and
    nothing is written.
    """
    from reprodb.starting.places import extended, repository_of, write_files

    root = folder.resolve()
    if not root.is_dir():
        from reprodb.errors import UsageError

        raise UsageError(f"{folder} is no folder", remedy="make it, with git init in it")
    wanted = (*new_files(name or root.name), extended(root, ".gitignore", IGNORED))
    ask = _say_yes if force else _asked if sys.stdin is not None and sys.stdin.isatty() else None
    done = write_files(root, wanted, ask)
    width = max(len(path) for path, _ in done)
    for path, state in done:
        typer.echo(f"{path:{width}}  {state.value}")
    typer.echo(_NEXT)
    top = repository_of(root)
    if top is None:
        typer.echo(f"{root} is in no git repository yet: git init", err=True)
    elif top != root:
        inside = root.relative_to(top)
        typer.echo(
            f"GitHub reads workflows at the root of a repository alone: move {inside / WORKFLOW} to "
            f"{WORKFLOW} there, and let its jobs' `run:` steps start in {inside} "
            "(defaults: run: working-directory) and its uploads take their paths from there",
            err=True,
        )


_NEXT = """
next:
  reprodb nightly --device model          the first night, on a model of the GPU
  reprodb kernels add NAME FILE.cu        a kernel of your own
  git add . && git commit                 then reprodb check --against BRANCH tells whether bits move
docs/ci.md of reprodb says how to set up the GPU runner."""


def new_files(name: str) -> tuple[NewFile, ...]:
    """Every file of a beginning, as its text stands in the package."""
    from reprodb import tomltext
    from reprodb.errors import UsageError
    from reprodb.starting.places import NewFile
    from reprodb.suite.tables import NAME_FORM, is_name
    from reprodb.version import __version__

    if not is_name(name):
        raise UsageError(f"{name!r} is no name of a suite", allowed=NAME_FORM, remedy="give one with --name")
    templates = resources("reprodb.starting") / "files"
    texts = {path: (templates / file).read_text(encoding="utf-8") for path, file in FILES.items()}
    suite = f"# Part of every scope that results are compared in: keep it.\nname = {tomltext.string(name)}\n"
    texts = {"kernels/suite.toml": suite, **texts}
    return tuple(NewFile(path, text.replace("@VERSION@", __version__)) for path, text in texts.items())


def _say_yes(question: str) -> bool:
    return True


def _asked(question: str) -> bool:
    return typer.confirm(question, default=False)
