"""The commands build, profiles and toolchains, as people run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from reprodb.artifacts import ArtifactStore
from reprodb.suite import bundled_suite
from tests import command, fake_compilers
from tests.command import Said

TREE = ("--kernel", "sum_squares_tree")


SUMS = ("sum_global_atomic", "sum_shared_atomic", "sum_tree_atomic")
SQUARES = ("sum_squares_atomic", "sum_squares_kahan_atomic", "sum_squares_tree")
SIX = tuple(part for name in (*SUMS, *SQUARES) for part in ("--kernel", name))


def process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command as a person starts it."""
    root = str(Path(__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": root, "COLUMNS": "200"}
    words = [sys.executable, "-m", "reprodb", *arguments]
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def reprodb(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> Said:
    """A command in this process, with further variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"COLUMNS": "200", **(environ or {})}.items():
            patch.setenv(name, value)
        return command.reprodb(*arguments, folder=folder)


def test_building_twice_and_carrying_it_elsewhere(tmp_path: Path) -> None:
    asked = ("build", "--kernel", "sum_warp_shuffle", "--profile", "cuda12*", "--arch", "sm_80")
    first = process(tmp_path, *asked, "--pack", "packed.tar.gz")
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("built ") == 2
    assert "2 built, 0 from the store, 0 failed, 0 profiles skipped" in first.stdout
    assert "packed into packed.tar.gz" in first.stdout
    second = process(tmp_path, *asked, "--json")
    document = json.loads(second.stdout)
    assert document["schema"] == "reprodb.build/1"
    assert document["store"] == "builds/store"
    assert [a["cached"] for a in document["artifacts"]] == [True, True]
    assert {a["arch"] for a in document["artifacts"]} == {"sm_80"}

    there = tmp_path / "there"
    there.mkdir()
    taken = process(there, "build", "--unpack", "../packed.tar.gz")
    assert re.fullmatch(r"\d+ artifacts from ../packed.tar.gz are in builds/store\n", taken.stdout)
    third = json.loads(process(there, *asked, "--json").stdout)
    assert all(a["cached"] for a in third["artifacts"])
    assert third["canaries"] > 0
    run = process(there, "run", "--no-compile", *asked[1:], "--device", "model", "-n", "2", "--json")
    assert run.returncode == 0, run.stderr
    assert [r["status"] for r in json.loads(run.stdout)["results"]] == ["ok", "ok"]


def test_a_kernel_that_does_not_compile_is_exit_4_and_stops_only_itself(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    shutil.copytree(bundled_suite(), suite)
    source = suite / "_lib/sum.cu"
    source.write_text(source.read_text() + "\nthis is no CUDA;\n")
    done = reprodb(tmp_path, "build", "--suite", "suite", *SIX, "--profile", "cuda12", "--pack", "p")
    assert done.code == 4
    assert "failed  sum_tree_atomic  cuda12  sm_90  nvrtc 12.6.85" in done.err
    assert "_lib/sum.cu(" in done.err
    # The kernels of one source and equal defines share an artifact.
    assert "1 built and shared 2 times, 0 from the store, 3 failed" in done.out
    assert [line.split()[0] for line in done.out.splitlines()[:3]] == ["built", "shared", "shared"]
    taken = reprodb(tmp_path, "build", "--unpack", "p", "--store", "other")
    assert taken.out.endswith("artifacts from p are in other\n")


def test_a_pack_has_what_serves_one_kernel_and_lacks_an_entry_of_another(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    for name in ("_lib", "sum_squares_tree", "sum_squares_atomic"):
        shutil.copytree(bundled_suite() / name, suite / name)
    manifest = suite / "sum_squares_atomic/kernel.toml"
    manifest.write_text(manifest.read_text().replace('entry = "sumSquaresAtomic"', 'entry = "gone"'))
    assert 'entry = "gone"' in manifest.read_text()
    done = reprodb(tmp_path, "build", "--suite", "suite", "--profile", "cuda12", "--pack", "p")
    assert done.code == 4
    assert "1 built, 0 from the store, 1 failed" in done.out
    other = ArtifactStore(tmp_path / "other")
    other.unpack(tmp_path / "p")
    sources = [dict(record["sources"]).keys() for record in other.records()]
    assert {"_lib/sum_squares.cu", "_lib/block_reduce.cuh"} in sources


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--profile", "cuda-12"), 2, "did you mean cuda12"),
        (("--kernel", "sum_square_tree"), 2, "sum_squares_tree"),
        (("--arch", "90"), 2, "'90' is no architecture"),
        (("--profiles-file", "nowhere.toml"), 2, "nowhere.toml cannot be read"),
        (("--suite", "nowhere"), 2, "nowhere"),
        (("--unpack", "nowhere.tar.gz"), 4, "nowhere.tar.gz"),
        (("--unpack", "a", "--pack", "b"), 2, "together"),
        (("--store", "/proc/store", *TREE, "--profile", "cuda12"), 4, "/proc/store"),
    ],
)
def test_bad_requests(tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = reprodb(tmp_path, "build", *arguments)
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_profile_without_a_toolchain_is_skipped_or_required(tmp_path: Path) -> None:
    text = (
        '[profile.here]\ncompiler = "nvrtc"\ntoolkit = "12.6.*"\n'
        '[profile.gone]\ncompiler = "nvrtc"\ntoolkit = "99"\n'
    )
    (tmp_path / "p.toml").write_text(text)
    asked = ("build", *TREE, "--profiles-file", "p.toml")
    done = reprodb(tmp_path, *asked)
    assert done.code == 0
    assert "skipped gone: no nvrtc 99 is installed; reprodb toolchains install nvrtc 99" in done.err
    required = reprodb(tmp_path, *asked, "--require", "gone")
    assert required.code == 4
    assert "remedy: reprodb toolchains install nvrtc 99" in required.err
    alone = reprodb(tmp_path, *asked, "--profile", "gone")
    assert alone.code == 4
    assert "no profile has a toolchain: gone" in alone.err


def test_profiles_show_their_full_option_lists(tmp_path: Path) -> None:
    table = reprodb(tmp_path, "profiles")
    assert table.code == 0
    assert len(table.out.splitlines()) == 10
    assert "\x1b" not in table.out
    details = reprodb(tmp_path, "profiles", "fast-math", "--arch", "sm_80").out
    assert "options    -arch=sm_80 -std=c++17 -use_fast_math -fmad=true\n" in details
    assert "ftz        the compiler's default\n" in details
    # Without what this user has installed beside the wheels.
    bare = {"REPRODB_CACHE": str(tmp_path / "cache")}
    document = json.loads(reprodb(tmp_path, "profiles", "--json", environ=bare).out)
    assert document["schema"] == "reprodb.profiles/1"
    by_name = {p["profile"]: p for p in document["profiles"]}
    assert by_name["cuda12-no-fmad"]["options"][-1] == "-fmad=false"
    assert by_name["cuda12"]["toolchain"]["version"] == "12.6.85"
    wrong = reprodb(tmp_path, "profiles", "fastmath")
    assert wrong.code == 2
    assert "did you mean fast-math" in wrong.err


def test_toolchains_are_listed_with_their_parts(tmp_path: Path) -> None:
    fake_compilers.lay_out(tmp_path / "kit")
    library = tmp_path / "kit/lib64/libnvrtc.so.12"
    library.parent.mkdir()
    library.write_text("broken")
    here = {"CUDA_HOME": str(tmp_path / "kit"), "REPRODB_CACHE": str(tmp_path / "cache")}
    table = reprodb(tmp_path, "toolchains", "list", environ=here)
    assert table.code == 0
    assert "nvrtc 12.6.85" in table.out
    assert "sm_50 … sm_90 (14)" in table.out
    assert "ptxas 12.8.93, host gcc" in table.out
    assert f"does not work: {library}" in table.err
    document = json.loads(reprodb(tmp_path, "toolchains", "list", "--json", environ=here).out)
    assert document["schema"] == "reprodb.toolchains/1"
    fake = next(t for t in document["toolchains"] if t["version"] == "12.8.93")
    assert fake["origin"] == "CUDA_HOME"
    assert fake["architectures"] == ["sm_80", "sm_90", "sm_100"]
    assert [b["path"] for b in document["broken"]] == [str(library)]


def test_wrong_installs_and_removes_are_usage_errors(tmp_path: Path) -> None:
    here = {"REPRODB_CACHE": str(tmp_path / "cache")}
    for arguments in (("install", "clang", "17"), ("install", "nvcc", "12.9"), ("remove", "nvrtc", "13")):
        done = reprodb(tmp_path, "toolchains", *arguments, environ=here)
        assert done.code == 2, done.err
        assert "allowed:" in done.err
