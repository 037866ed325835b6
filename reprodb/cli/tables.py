"""Tables on standard output: drawn on a terminal, aligned plain text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. What cells hold is text, never markup."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in header:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        typer.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def emit(document: object) -> None:
    """Print a JSON document and nothing else."""
    import json

    typer.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
