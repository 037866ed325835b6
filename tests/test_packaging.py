"""The wheel alone, outside the checkout, runs a nightly: suite, profiles and migrations travel in it."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (built,) = folder.glob("reprodb-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; the dependencies come from this one, by path, without its reprodb."""
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(folder, with_pip=False)
    executable = folder / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(executable),
            "install",
            "--quiet",
            "--no-deps",
            str(wheel),
        ],
        check=True,
    )
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "dependencies.pth").write_text(f"{Path(numpy.__file__).parent.parent}\n")
    return executable


def test_wheel_carries_suite_and_profiles_and_no_binary(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "reprodb/data/kernels/sum_squares_tree/kernel.toml" in names
    assert "reprodb/data/builds/profiles.toml" in names
    assert "reprodb/starting/files/workflow.yml" in names
    assert "reprodb/py.typed" in names
    assert not [n for n in names if n.endswith((".cubin", ".so", ".fatbin", ".o"))]


def test_nightly_with_the_installed_wheel(python: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [python, "-c", "import reprodb; print(reprodb.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(ROOT) not in where.stdout
    command = [
        str(python.parent / "reprodb"), "nightly", "--device", "model", "--repetitions", "3",
        "--kernel", "sum_squares_tree", "--profile", "default", "--profile", "no-fmad",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = subprocess.run(
        [str(python.parent / "reprodb"), "show", "latest", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(shown.stdout)["results"]
    # Published for this experiment, and seen on an H200: see the evidence under reports/.
    assert {(r["profile"], r["first_bits"], r["distinct"]) for r in results} == {
        ("default", "0x4b25426d", 1),
        ("no-fmad", "0x4b25426d", 1),
    }
    assert list((tmp_path / "reports").glob("*.html"))
