"""Start-up loads nothing heavy, and the pure steps import without a GPU, a compiler or a database library."""

import subprocess
import sys
from pathlib import Path

import pytest

from reprodb.cli.app import COMMANDS, command_tree
from reprodb.store import open_store
from tests.builders import make_result
from tests.store.things import LATER, new_run

HEAVY = {
    "cupy",
    "sqlalchemy",
    "alembic",
    "llvmlite",
    "jinja2",
    "cattrs",
    "numpy",
    "psycopg",
    "mpmath",
    "rich",
}
# Parts of libraries and of reprodb that a command may need, and others must not pay for.
HEAVY |= {"sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "reprodb.claims", "reprodb.dossier"}


def _loaded(code: str) -> set[str]:
    """The heavy modules in `sys.modules` after running `code` in a fresh interpreter."""
    program = f"import sys\n{code}\nprint(' '.join(sorted(m for m in {HEAVY!r} if m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("\n")[0].rpartition("\n")[2].split())


def test_help_loads_nothing_heavy() -> None:
    code = "from reprodb.cli.app import command_tree\ncommand_tree()"
    assert _loaded(code) == set()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of two runs that are the same."""
    folder = tmp_path_factory.mktemp("small")
    with open_store(str(folder / "reprodb.db"), write=True) as store:
        for number in (1, 2):
            run_id = store.begin(new_run(number))
            store.record(run_id, make_result())
            store.finish(run_id, 0, LATER)
    return folder


STORED = {"sqlalchemy", "cattrs"}
LOADS: dict[str, set[str]] = {
    "--help": set(),
    "diff --help": set(),
    "nightly --help": set(),
    "diff 1 2": {*STORED, "rich"},
    "diff 1 2 --json": STORED,
    "show 2": {*STORED, "rich"},
    "show 2 --json": STORED,
    "runs": {*STORED, "rich"},
    "history sum_squares_tree": {*STORED, "rich"},
    "history sum_squares_tree --json": STORED,
    "db check": STORED,
    "baselines": {"rich"},
    "kernels": {"numpy"},
    "profiles": set(),
    "doctor": STORED,  # it looks at the database that is there
    "report 2": {*STORED, "jinja2", "reprodb.claims", "reprodb.dossier"},
}


@pytest.mark.parametrize("words", LOADS)
def test_a_command_loads_what_it_needs(words: str, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small)
    code = (
        "import sys\nfrom reprodb.cli import main\n"
        f"try: main({words.split()!r})\nexcept SystemExit as end: assert end.code == 0, end.code"
    )
    assert _loaded(code) == LOADS[words]


def test_a_call_of_one_command_loads_no_other() -> None:
    code = "from reprodb.cli.app import command_tree\ncommand_tree('diff')"
    others = {f"reprodb.cli.{module}" for module, _ in COMMANDS} - {"reprodb.cli.diff"}
    _loaded(f"{code}\nfound = sorted(m for m in sys.modules if m in {others!r})\nassert not found, found")


def test_the_table_of_commands_is_the_command_line() -> None:
    named = [command for _, commands in COMMANDS for command in commands]
    assert sorted(named) == sorted(command_tree().commands)
    for module, commands in COMMANDS:
        assert set(command_tree(commands[0]).commands) == set(commands), module


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
