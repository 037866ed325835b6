"""Start-up loads nothing heavy, and the pure steps import without a GPU, a compiler or a database library."""

import subprocess
import sys

import pytest

HEAVY = {"cupy", "sqlalchemy", "alembic", "llvmlite", "jinja2", "cattrs", "numpy", "psycopg", "mpmath"}


def _loaded(code: str) -> set[str]:
    """The heavy packages in `sys.modules` after running `code` in a fresh interpreter."""
    program = f"import sys\n{code}\nprint(' '.join(sorted(m for m in {HEAVY!r} if m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_loads_nothing_heavy() -> None:
    code = "from reprodb.cli.app import command_tree\ncommand_tree()"
    assert _loaded(code) == set()


@pytest.mark.parametrize("module", ["compare", "attribute", "gate", "policy", "ledger", "campaign", "suite"])
def test_pure_steps_need_no_gpu_compiler_or_database(module: str) -> None:
    assert _loaded(f"import reprodb.{module}") <= {"numpy"}


@pytest.mark.parametrize(
    "module", ["render.json", "render.html", "render.terminal", "render.junit", "render.github"]
)
def test_renderers_import_without_a_database_or_a_gpu(module: str) -> None:
    assert _loaded(f"import reprodb.{module}") <= {"numpy", "jinja2"}


def test_imports_never_run_backwards() -> None:
    """Each step of the straight line imports only what stands before it (docs/architecture.md)."""
    line = ["suite", "build", "campaign", "store", "attribute", "compare", "gate", "render"]
    for position, step in enumerate(line):
        later = {f"reprodb.{name}" for name in line[position + 1 :]}
        check = f"found = sorted(m for m in sys.modules if m in {later!r})\nassert not found, found"
        code = f"import reprodb.{step}\n{check}"
        _loaded(code)


def test_a_nights_worker_begins_before_the_database_and_the_pages_are_loaded() -> None:
    """A GPU takes more than a second to open: nothing that it does not need comes first."""
    code = (
        "import runpy\n"
        "from reprodb.executors.pool import Pool\n"
        "Pool.begin = lambda self: self.close() or sys.exit()\n"
        "sys.argv = ['reprodb', 'nightly', '--device', 'cpu', '--kernel', 'none', '--quiet']\n"
        "try:\n    runpy.run_module('reprodb', run_name='__main__')\n"
        "except SystemExit as left:\n    assert left.code == 0, left\n"
    )
    assert _loaded(code) == set()
