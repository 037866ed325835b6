"""Workflows of GitHub Actions carried out here: their `run:` steps in order, stand-ins for what they use.

Expressions are evaluated, `if:` is honoured, artifacts travel through a folder. A GPU is stood in for by the
model. What GitHub alone can do (checkouts, runners, publishing pages) is left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tests import shared

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"
_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([A-Za-z_][\w.-]*)|(\|\||&&|==|!=|[!(),]))")

Context = Mapping[str, Any]


def load(path: Path) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


# --- Expressions -------------------------------------------------------------------------------


class _Expression:
    """The part of GitHub's expressions that the workflows use; anything else is an error."""

    def __init__(self, text: str, context: Context) -> None:
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            assert match is not None, f"not understood: {text[at:]!r}"
            self.tokens.append(match[0].strip())
            at = match.end()
        self.context = context

    def value(self) -> Any:
        found = self.either()
        assert not self.tokens, f"left over: {self.tokens}"
        return found

    def accept(self, *texts: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in texts else None

    def either(self) -> Any:
        left = self.both()
        while self.accept("||"):
            right = self.both()
            left = left or right
        return left

    def both(self) -> Any:
        left = self.equal()
        while self.accept("&&"):
            right = self.equal()
            left = left and right
        return left

    def equal(self) -> Any:
        left = self.single()
        while operator := self.accept("==", "!="):
            left = (left == self.single()) == (operator == "==")
        return left

    def single(self) -> Any:
        if self.accept("!"):
            return not self.single()
        if self.accept("("):
            inner = self.either()
            assert self.accept(")")
            return inner
        token = self.tokens.pop(0)
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if self.accept("("):
            arguments = []
            while not self.accept(")"):
                arguments.append(self.either())
                self.accept(",")
            return self.call(token, arguments)
        return self.name(token)

    def call(self, name: str, arguments: list[Any]) -> Any:
        match name, arguments:
            case "startsWith", [text, start]:
                return str(text).startswith(str(start))
            case "fromJSON", [text]:
                return json.loads(text)
            case "cancelled", []:
                return False
        raise AssertionError(f"no function {name}")

    def name(self, dotted: str) -> Any:
        found: Any = self.context
        first, *rest = dotted.split(".")
        assert first in self.context, f"no context {first}"
        for part in (first, *rest):
            found = found.get(part) if isinstance(found, Mapping) else None
        return "" if found is None else found


def evaluate(text: str, context: Context) -> Any:
    return _Expression(text, context).value()


def filled(text: str, context: Context) -> str:
    """A text with its `${{ … }}` filled in."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda m: str(evaluate(m[1], context)), text, flags=re.DOTALL)


# --- Carrying out ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Did:
    """A `run:` step that was carried out."""

    job: str
    step: str
    code: int
    output: str


# How GitHub starts a step's script: the shell that is not named goes on after a pipe whose first part failed.
SHELLS = {"": ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}


@dataclass(slots=True)
class Runner:
    """A machine with a workspace a job, artifacts between jobs, and a place outside the workspaces."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    event: str = "schedule"
    github: dict[str, Any] = field(default_factory=dict)
    done: list[Did] = field(default_factory=list)
    shell: str = ""

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def run(self, workflow: dict[str, Any], prepare: Any) -> list[Did]:
        """Every job in order, matrix entries one after the other; `prepare(workspace)` is the checkout."""
        results: dict[str, dict[str, str]] = {}
        self.shell = workflow.get("defaults", {}).get("run", {}).get("shell", "")
        for name, job in workflow["jobs"].items():
            rows = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
            ends = [
                self._job(workflow, name, job, row, number, results, prepare)
                for number, row in enumerate(rows)
            ]
            if None not in ends:
                results[name] = {"result": "success" if all(ends) else "failure"}
        return self.done

    def _job(
        self,
        workflow: dict[str, Any],
        name: str,
        job: dict[str, Any],
        row: dict[str, str],
        number: int,
        results: Mapping[str, Mapping[str, str]],
        prepare: Any,
    ) -> bool | None:
        """Whether the job succeeded; None where its condition left it out."""
        context: dict[str, Any] = {
            "matrix": row,
            "vars": self.variables,
            "secrets": self.secrets,
            "runner": {"name": "here"},
            "needs": results,
            "steps": {},
            "env": {},
            "github": {
                "run_id": "77",
                "run_attempt": "1",
                "event_name": self.event,
                "ref": "main",
                **self.github,
            },
        }
        if "if" in job and not evaluate(_bare(job["if"]), context):
            return None
        labels = filled_value(job["runs-on"], context)
        assert labels, "no runner"
        workspace = self.folder / f"{name}-{number}"
        prepare(workspace)
        environment = {**workflow.get("env", {}), **job.get("env", {})}
        environment = {key: filled(str(value), context) for key, value in environment.items()}
        context["env"] = environment
        ok = True
        for step in job["steps"]:
            condition = _bare(step["if"]) if "if" in step else ""
            wanted = evaluate(condition, context) if condition else ok
            if not wanted:
                continue
            if "run" in step:
                done = self._step(name, step, workspace, environment, context)
                ok &= done.code == 0
            else:
                self._use(step, workspace, context)
        return ok

    def _step(
        self, job: str, step: dict[str, Any], workspace: Path, environment: dict[str, str], context: Context
    ) -> Did:
        assert "${{" not in step["run"], "an expression inside a script is a hole"
        extra = {key: filled(str(value), context) for key, value in step.get("env", {}).items()}
        kept = ("PATH", "HOME", "TMPDIR", "LANG", "REPRODB_CACHE")
        inherited = {key: os.environ[key] for key in kept if key in os.environ}
        outputs = self.folder / "outputs"
        outputs.touch()
        done = subprocess.run(
            [*SHELLS[self.shell], "-c", step["run"]],
            cwd=workspace,
            env={
                **inherited, **environment, **extra, "CI": "true", "GITHUB_ACTIONS": "true",
                "GITHUB_WORKSPACE": str(workspace), "GITHUB_OUTPUT": str(outputs),
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            },
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        did = Did(job, step.get("name", ""), done.returncode, done.stdout + done.stderr)
        self.done.append(did)
        return did

    def _use(self, step: dict[str, Any], workspace: Path, context: Context) -> None:
        action = step["uses"].partition("@")[0]
        given = {key: filled(str(value), context) for key, value in step.get("with", {}).items()}
        if action == "actions/upload-artifact":
            found = sorted({path for pattern in given["path"].split() for path in workspace.glob(pattern)})
            if not found and given.get("if-no-files-found") == "error":
                raise AssertionError(f"nothing to upload for {given['name']}")
            target = self.artifacts / given["name"]
            target.mkdir(parents=True)
            for path in found:
                if path.is_dir():
                    shutil.copytree(path, target / path.name)
                else:
                    shutil.copy(path, target / path.name)
        elif action == "actions/download-artifact":
            for path in sorted(self.artifacts.iterdir()):
                if fnmatchcase(path.name, given["pattern"]):
                    shutil.copytree(path, workspace / given["path"] / path.name)
        else:
            known = ("actions/checkout", "actions/setup-python", "actions/upload-pages-artifact",
                     "actions/deploy-pages")  # fmt: skip
            assert action in known, f"no stand-in for {action}"


def _bare(condition: str) -> str:
    """A condition without the braces that may stand around it."""
    found = re.fullmatch(r"\s*\$\{\{(.*)\}\}\s*", str(condition), re.DOTALL)
    return found[1] if found else str(condition)


def filled_value(value: Any, context: Context) -> Any:
    return evaluate(_bare(value), context) if isinstance(value, str) and "${{" in value else value


# --- What stands in for a checkout with its environment -----------------------------------------

_PYTHON = """#!/bin/sh
# The model stands in for the GPU.
for word; do shift; [ "$word" = gpu ] && word=model; set -- "$@" "$word"; done
exec {python} "$@"
"""


def checkout(workspace: Path, suite: Path) -> None:
    """The Makefile and tools of this repository, an environment that is there already, and a small suite."""
    workspace.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools", "builds"):
        source = ROOT / name
        if name == "builds":
            (workspace / "builds").mkdir()
            shutil.copy(source / "profiles.toml", workspace / "builds" / "profiles.toml")
            shared.store_below(workspace)
        elif source.is_dir():
            shutil.copytree(source, workspace / name)
        else:
            shutil.copy(source, workspace / name)
    shutil.copytree(suite, workspace / "kernels")
    (workspace / "reprodb.toml").write_text('[nightly]\nevery = "24h"\n\n[project]\nsuite = "kernels"\n')
    environment(workspace)


def environment(workspace: Path) -> None:
    """The virtual environment that a workflow's set-up makes: this one, the model for the GPU."""
    commands = workspace / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "python").write_text(_PYTHON.format(python=sys.executable))
    (commands / "reprodb").write_text(f'#!/bin/sh\nexec "{commands}/python" -m reprodb "$@"\n')
    for command in commands.iterdir():
        command.chmod(0o755)
    for mark in (".runtime", ".dev"):
        (workspace / ".venv" / mark).touch()


def uses(document: Any) -> Iterator[str]:
    """Every action that a workflow or composite action uses."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "uses" and isinstance(value, str):
                yield value
            else:
                yield from uses(value)
    elif isinstance(document, list):
        for value in document:
            yield from uses(value)
