"""The commands that the README shows run, in order, and print what it says they print."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import shared

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])


def _steps(page: Path) -> list[tuple[str, list[str]]]:
    """Each `$ command` of the page's console blocks, with the lines that its output must contain."""
    steps: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif line.strip() not in ("", "…"):
                steps[-1][1].append(line.strip())
    return steps


@pytest.mark.parametrize("page", [p for p in PAGES if _steps(p)], ids=lambda p: p.name)
def test_commands_of_the_page(page: Path, tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    shared.store_below(tmp_path)
    for command, expected in _steps(page):
        words = shlex.split(command)
        assert words[0] == "reprodb", f"{page.name}: only reprodb's own commands are run: {command}"
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        output = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 0, f"{page.name}: {command}\n{done.stdout}{done.stderr}"
        missing = [line for line in expected if " ".join(line.split()) not in output]
        assert not missing, f"{page.name}: {command} does not print {missing}\n{done.stdout}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    broken = [link for link in links if not (page.parent / link).exists()]
    assert not broken
