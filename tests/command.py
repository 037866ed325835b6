"""The command line as a test calls it: in this process, its words caught."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from reprodb.cli import main

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@cache
def schema(name: str) -> jsonschema.Draft202012Validator:
    """The schema of that name in docs/schemas, checked itself: once, as that takes longer than a document."""
    read = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(read)
    return jsonschema.Draft202012Validator(read)


def valid(document: Any, name: str) -> Any:
    """The document, which follows the schema of that name in docs/schemas."""
    schema(name).validate(document)
    return document


@contextmanager
def inside(folder: Path | None) -> Iterator[None]:
    """In another folder for a while."""
    before = Path.cwd()
    if folder is not None:
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def reprodb(*args: object, folder: Path | None = None) -> Said:
    """Run one command, in `folder` where that is given."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with inside(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as stop:
            code = stop.code
    return Said(int(code or 0), out.getvalue(), err.getvalue())
