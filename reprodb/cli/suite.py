"""`reprodb suite check`: look at a suite as a reviewer would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from reprodb.cli.options import JsonOption, SuiteOption

if TYPE_CHECKING:
    from pathlib import Path

    from reprodb.inspection import Inspection

SCHEMA = "reprodb.suite-check/1"


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Look after a suite of kernels.", no_args_is_help=True)
    group.callback()(_group)
    group.command("check")(check)
    app.add_typer(group, name="suite")


def _group() -> None:
    """Look after a suite of kernels."""


def check(suite: SuiteOption = None, as_json: JsonOption = False) -> None:
    """Check manifests, inputs, tolerances, and compiled code for undeclared float atomics. Needs no GPU.

    Exit 0 nothing found, 1 warnings, 2 errors.
    """
    from reprodb.inspection import inspect
    from reprodb.suite import bundled_suite

    root = suite or bundled_suite()
    found = inspect(root)
    if as_json:
        from reprodb.render.json import dumps

        typer.echo(dumps(document(root, found)), nl=False)
    else:
        for line in lines(found):
            typer.echo(line)
    raise typer.Exit(found.exit_code)


def lines(found: Inspection) -> list[str]:
    """A line a finding, its remedy below it, and the verdict last."""
    from reprodb.render.text import count, visible

    told = []
    for remark in found.remarks:
        named = not remark.kernel or remark.text.startswith(f"{remark.kernel}/")
        where = "" if named else f"{remark.kernel}: "
        told.append(visible(f"{remark.severity} [{remark.check}] {where}{remark.text}"))
        if remark.remedy:
            told.append(visible(f"    {remark.remedy}"))
    errors = sum(remark.severity == "error" for remark in found.remarks)
    warnings = len(found.remarks) - errors
    counts = f"{count(errors, 'error')}, {count(warnings, 'warning')}" if found.remarks else "nothing found"
    by = f", compiled by {found.toolchain}" if found.toolchain else ""
    return [*told, f"suite {found.suite}, {count(found.kernels, 'kernel')}{by}: {counts}"]


def document(root: Path, found: Inspection) -> dict[str, Any]:
    """The JSON document, schema `reprodb.suite-check/1`."""
    return {
        "schema": SCHEMA,
        "suite": found.suite,
        "root": str(root),
        "kernels": found.kernels,
        "toolchain": found.toolchain,
        "findings": [
            {
                "check": remark.check,
                "severity": remark.severity.value,
                "kernel": remark.kernel or None,
                "text": remark.text,
                "remedy": remark.remedy,
            }
            for remark in found.remarks
        ],
        "exit_code": found.exit_code,
    }
