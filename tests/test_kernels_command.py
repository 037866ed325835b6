"""`reprodb kernels`: the list that people read, the JSON document, and wrong names."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from reprodb.cli.kernels import catalogue, register
from reprodb.errors import UsageError
from reprodb.suite import bundled_suite, load_suite
from tests.command import valid

SUITES = Path(__file__).parent / "suites"
DOCS = Path(__file__).parents[1] / "docs"


def _run(*args: str) -> Result:
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)  # as beside other commands: the command's name is an argument
    return CliRunner().invoke(app, ["kernels", *args])


def _document(*args: str) -> dict[str, Any]:
    done = _run(*args, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = valid(json.loads(done.stdout), "kernels")
    return document


def test_the_list_has_a_line_a_kernel() -> None:
    done = _run()
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    total = len(load_suite(bundled_suite()).kernels)
    assert lines[0] == f"suite reprodb: {total} of {total} kernels"
    assert len(lines) == 2 + total
    tree = next(line for line in lines if line.startswith("sum_squares_tree "))
    words = (
        "sum_squares_tree ramp1000-4194915 run_to_run 1024x256, 1x256 partials[1024], total[1] "
        "sum of x*x + 0.25 sum tree published quick full "
        "A total hides what moved: contraction moves 73 of the block sums and not the total."
    )
    assert " ".join(tree.split()) == words


def test_the_docs_list_every_kernel_as_the_command_does() -> None:
    """Where this fails, the page takes the lines that `catalogue` gives."""
    page = (DOCS / "kernels.md").read_text(encoding="utf-8").splitlines()
    expected = catalogue(load_suite(bundled_suite()).kernels)
    assert [line for line in expected if line not in page] == []
    assert [line for line in page if line.startswith("| `")] == expected[2:]


def test_every_bundled_kernel_says_what_it_teaches() -> None:
    for kernel in load_suite(bundled_suite()).kernels:
        assert kernel.teaches.endswith("."), kernel.name


def test_a_tag_chooses() -> None:
    done = _run("--tag", "published")
    assert done.stdout.splitlines()[0].startswith("suite reprodb: 6 of ")
    assert len(_document("--tag", "published", "--kernel", "*_tree")["kernels"]) == 1


def test_the_document_resolves_everything() -> None:
    document = _document("--kernel", "sum_squares_tree")
    assert document["schema"] == "reprodb.kernels/1"
    assert document["suite"] == "reprodb"
    (kernel,) = document["kernels"]
    assert kernel["kernel"] == "sum_squares_tree"
    assert kernel["defines"] == {"BLOCKS": "1024", "THREADS": "256"}
    assert kernel["stages"][0] == {
        "entry": "sumSquaresPartials",
        "grid": [1024, 1, 1],
        "per_batch": [False, False, False],
        "block": [256, 1, 1],
        "shared": 0,
        "args": ["x", "n", "partials"],
    }
    (case,) = kernel["cases"]
    assert (case["case"], case["n"], case["rel_tol"]) == ("ramp1000-4194915", 4194915, 1e-5)
    assert case["inputs"] == {"x": {"pattern": "ramp1000", "n": 4194915, "dtype": "float32", "params": {}}}
    assert case["outputs"]["partials"] == {
        "role": "witness",
        "dtype": "float32",
        "shape": [1024],
        "determinism": "run_to_run",
    }


def test_a_buffers_own_guarantee_is_shown() -> None:
    (kernel,) = _document("--kernel", "sum_tree_atomic")["kernels"]
    outputs = kernel["cases"][0]["outputs"]
    assert outputs["partials"]["determinism"] == "run_to_run"
    assert outputs["total"]["determinism"] == "not_guaranteed"


@pytest.mark.parametrize("suite", ["cases", "conformance"])
def test_documents_of_richer_suites_keep_to_the_schema(suite: str) -> None:
    assert _document("--suite", str(SUITES / suite))["suite"] == suite


def test_another_suite() -> None:
    document = _document("--suite", str(SUITES / "edits"))
    assert [k["kernel"] for k in document["kernels"]] == ["tree", "tree_2048_blocks", "tree_reversed"]


def test_numbers_that_json_cannot_say_are_strings(tmp_path: Path) -> None:
    home = tmp_path / "k"
    home.mkdir()
    (home / "k.cu").write_text("")
    (home / "kernel.toml").write_text("""\
kernel = { name = "k", source = "k.cu", operation = "o", determinism = "run_to_run", accumulator = "float32" }
buffer = [{ name = "o", dtype = "float32", size = 1, role = "result" }]
stage = [{ entry = "k", grid = [2, 3], block = 1, args = ["o"] }]
case = [{ name = "inf", input = { pattern = "constant", value = inf }, n = 1 }]
""")
    (tmp_path / "suite.toml").write_text('name = "s"\n')
    (kernel,) = _document("--suite", str(tmp_path))["kernels"]
    assert kernel["cases"][0]["inputs"]["x"]["params"] == {"value": "inf"}
    assert " 2*3x1 " in _run("--suite", str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--kernel", "sum_squares_tre"], "did you mean 'sum_squares_tree'?"),
        (["--suite", "no/such/folder"], "'no/such/folder' is no folder"),
    ],
)
def test_wrong_names(args: list[str], said: str) -> None:
    done = _run(*args)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
