"""What foreign text, a foreign worker and the code itself must not do; docs/security.md is the list."""

from __future__ import annotations

import ast
import functools
import os
import pickle
import re
from pathlib import Path

import pytest

from reprodb import pipes
from reprodb.domain import Status
from reprodb.executors.task import Outcome
from reprodb.render.html import policy
from tests.executors.things import a_kernel, an_artifact
from tests.test_pool import open_pool, process_of, task

PACKAGE = Path(__file__).parents[1] / "reprodb"
ROOT = PACKAGE.parent


# --- The code ----------------------------------------------------------------------------------

# Where each may stand, and why.
ALLOWED = {
    "exec": {"executors/callables.py"},  # the suite's own Python, in a worker: docs/security.md
    "compile": {"executors/callables.py"},
    "pickle": {"pipes.py"},  # known classes alone
}


@functools.cache
def nodes() -> tuple[tuple[str, ast.Call | ast.Import | ast.ImportFrom], ...]:
    """Every call and import of the package, with its file."""
    return tuple(
        (path.relative_to(PACKAGE).as_posix(), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.Import | ast.ImportFrom)
    )


def uses() -> list[tuple[str, str, int]]:
    """Every call of the package that could turn text into code: (what, file, line)."""
    found = []
    for name, node in nodes():
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("eval", "exec", "compile", "os.system", "os.popen", "__import__"):
                found.append((called, name, node.lineno))
            if any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords):
                found.append(("shell", name, node.lineno))
            if any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords):
                found.append(("allow_pickle", name, node.lineno))
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = {alias.name for alias in node.names} | set(module)
            for what in names & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}:
                found.append((what, name, node.lineno))
    return found


def test_no_shell_no_eval_no_pickle() -> None:
    wrong = [use for use in uses() if use[1] not in ALLOWED.get(use[0], set())]
    assert wrong == []


def test_subprocesses_are_started_with_lists_alone() -> None:
    """A string would be split by a shell on no system of ours, but the next one might."""
    started = ("subprocess.run", "subprocess.Popen", "subprocess.check_output", "subprocess.call")
    for name, node in nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in started:
            assert not isinstance(node.args[0], ast.Constant | ast.JoinedStr), (name, node.lineno)


# --- A worker that was taken over --------------------------------------------------------------


NEVER = Path("/tmp/reprodb-never-made")


class Opens:
    """Its pickle, read naively, calls a function of the reader's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "value",
    [
        Opens(NEVER), os.system, eval, print, Path.unlink, pickle.loads, Exception("x"), {1: Opens},
        pipes.loads, object(), range(3),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_only_values_of_this_program_come_through_a_pipe(value: object) -> None:
    with pytest.raises(pipes.ForeignValueError):
        pipes.loads(pickle.dumps(value))
    assert not NEVER.exists()


# A tuple of the same tuple twice, sixty times over: its hash takes two to the sixty steps.
NESTED = b"K\x01" + b"".join(b"\x94h%c\x86" % n for n in range(60))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"garbage", b"\x80\x05.", b"cos\nsystem\n(S'x'\ntR.", b"creprodb.pipes\nloads\n.",
        b"\x80\x04\x8c\x0ereprodb.domain\x8c\x0fArtifact.__init__\x93.",
        b"\x80\x04\x8c\x0ereprodb.domain\x8c\x02re\x93.", b"\x80\x05]" + b"]" * 100_000,
        b"\x80\x04Nr\xff\xff\xff\xff.", b"\x80\x04N" + b"p4294967295\n.",  # a memo of 64 GiB
        b"\x80\x04\x96\xff\xff\xff\xff\x0f\0\0\0.",  # 64 GiB of bytes that do not follow
        b"\x80\x04}" + NESTED + b"Ns.",
        b"\x80\x04\x8c\x0ereprodb.domain\x8c\x06Status\x93" + NESTED + b"\x85R.",
    ],
    ids=lambda data: f"{len(data)} bytes",
)  # fmt: skip
def test_bytes_that_are_no_value(data: bytes) -> None:
    with pytest.raises(pipes.ForeignValueError):
        pipes.loads(data)


def test_what_does_come_through_is_equal() -> None:
    values = (
        an_artifact(),
        a_kernel(),
        task(),
        Outcome(Status.OK, notes=("x",)),
        Path("/a"),
        (("x", (1, b"y")),),
    )
    assert pipes.loads(pipes.dumps(values)) == values


def test_a_worker_that_answers_with_something_else_costs_its_result_alone(tmp_path: Path) -> None:
    """Code in a worker finds the pipe and writes a pickle that would make a folder here."""
    folder = tmp_path / "made"

    def framed(body: bytes) -> bytes:
        return len(body).to_bytes(8, "little") + body

    calls = framed(pickle.dumps(Opens(folder)))
    endless = (1 << 62).to_bytes(8, "little")
    no_outcome = framed(pipes.dumps(a_kernel()))
    with open_pool() as pool:
        for frame in (calls, endless, no_outcome):
            before = process_of(pool.run([task("sum")])[0])
            bad, good = pool.run([task(f"answer {frame.hex()}"), task("sum")])
            assert (bad.status, good.status) == (Status.CRASHED, Status.OK)
            assert "answered with something else" in bad.error
            assert process_of(good) != before
    assert not folder.exists()


# --- The page ----------------------------------------------------------------------------------


def test_the_policy_of_pages_allows_their_own_style_and_script_alone() -> None:
    """Pages are looked at with it in tests/render; here, that nothing else was let in."""
    found = policy("a {}", "f()")
    assert found.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in found
    assert not re.search(r"https?:|\*|data:(?!;)", found.replace("img-src data:", ""))


def test_the_security_page_says_what_it_must() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for words in ("self-hosted runner", "fork", "shared GPU", "root", "pickle", "10 million"):
        assert words in page, words
