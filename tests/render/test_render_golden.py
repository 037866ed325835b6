"""Stable bodies: what renderers make of the samples, byte for byte, in files that a review can read.

After a wanted change write them anew with `REPRODB_WRITE_GOLDEN=1 pytest tests/render/test_render_golden.py`.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reprodb.findings import Diff
from reprodb.render import github, html, json, junit, terminal
from tests.render import samples

GOLDEN = Path(__file__).parent / "golden"


def body(page: str) -> str:
    """The main landmark of a page: style, script and the version's stamp may change without it."""
    return page[page.index("<main") : page.index("</main>")]


def piped(value: Diff) -> str:
    out = io.StringIO()
    terminal.diff(terminal.console(out), value)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def page(value: Diff) -> str:
    return body(html.diff(value, sources=samples.SOURCES))


CASES: dict[str, Callable[[], str]] = {
    "contraction.html": lambda: page(samples.contraction()),
    "quiet.html": lambda: page(samples.quiet()),
    "eventful.txt": lambda: piped(samples.eventful()),
    "eventful.md": lambda: github.summary(samples.eventful()),
    "eventful.xml": lambda: junit.diff(samples.eventful()),
    "eventful.annotations": lambda: "\n".join(github.annotations(samples.eventful(), "kernels")) + "\n",
    "contraction.json": lambda: json.dumps(json.diff(samples.contraction())),
    "hostile.md": lambda: github.summary(samples.hostile()),
    "hostile.annotations": lambda: "\n".join(github.annotations(samples.hostile())) + "\n",
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_values_give_the_same_bytes(name: str) -> None:
    text, path = CASES[name](), GOLDEN / name
    if os.environ.get("REPRODB_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    assert path.read_bytes().decode() == text


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)
