"""`reprodb explain` on real compilers and the model: interactions, held coordinates, ends that differ."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprodb.cli import main
from reprodb.digest import sha256
from reprodb.domain import Artifact, Build, Result, Run
from reprodb.errors import UsageError
from reprodb.recovery import Compilers, Library, Missing, Texts
from reprodb.store import open_store
from reprodb.suite import load_suite, source_files
from tests import shared
from tests.builders import NVRTC_12, NVRTC_13, STARTED
from tests.command import valid

SUITE = Path(__file__).parent / "suites" / "explain"
EDITS = Path(__file__).parent / "suites" / "edits"

FUSED = "0x00c80000"  # 1.5 * 2^-126 + 2^-130
FLUSHED = "0x00c00000"  # the product gone: 1.5 * 2^-126


def reprodb(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run a command in a folder: exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main(list(arguments))
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = valid(json.loads(text), "explain")
    return found


def record(folder: Path, suite: Path, profiles: Path, *arguments: str) -> None:
    """A run in `x.db` of the folder."""
    asked = ("run", "--suite", str(suite), "--profiles-file", str(profiles), "--db", "x.db", "-q")
    code, out, err = reprodb(folder, *asked, "-n", "3", "--device", "model", *arguments)
    assert code == 0, out + err


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose run 1 has the suite under all its profiles; its artifacts are in the store."""
    folder = tmp_path_factory.mktemp("recorded")
    shared.store_below(folder)
    record(folder, SUITE, SUITE / "profiles.toml")
    return folder


@pytest.fixture
def here(recorded: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(recorded, tmp_path / "here", symlinks=True))


OPTIONS = ("--db", "x.db", "--device", "model")


def test_three_flags_and_a_toolkit_of_which_two_flags_matter_only_together(recorded: Path) -> None:
    code, out, err = reprodb(
        recorded, "explain", "1:before", "1:after", *OPTIONS, "--suite", str(SUITE), "--json"
    )
    assert code == 0, err
    found = document(out)
    (row,) = found["rows"]
    assert row["explained"]
    assert row["answer"] == [
        "-fmad=false and -ftz=true move the bits only together, to the candidate's bits; neither does alone.",
        "-prec-sqrt=false and toolchain nvrtc 13.5.37 move nothing alone.",
    ]
    assert row["minimal"] == [
        {"names": ["-fmad=false", "-ftz=true"], "together": True, "reproduces": True, "gaps": []}
    ]
    assert {side["reproduced"] for side in row["recorded"].values()} == {True}
    assert [c["name"] for c in row["coordinates"]] == [
        "-fmad=false", "-ftz=true", "-prec-sqrt=false", "toolchain nvrtc 13.5.37",
    ]  # fmt: skip
    trials = {tuple(t["exchanged"]): t for t in row["experiments"]}
    assert len(trials) == 2 + 4 + 6
    assert {trials[(name,)]["bits"] for name in ("-fmad=false", "-ftz=true")} == {FUSED}
    assert trials[("-fmad=false", "-ftz=true")]["bits"] == FLUSHED
    # The flag without effect makes the same code: it names the experiment that was executed.
    assert trials[("-prec-sqrt=false",)]["same_as"] == trials[()]["number"] == 1
    # Every set that holds both, and no other, is as the candidate.
    for names, trial in trials.items():
        both = {"-fmad=false", "-ftz=true"} <= set(names)
        assert trial["shows"] == ("candidate" if both else "baseline")
    assert "at most 16 experiments" in err  # the plan comes first
    assert "12  -prec-sqrt=false with toolchain nvrtc 13.5.37" in err


def test_what_people_read(recorded: Path) -> None:
    code, out, err = reprodb(
        recorded, "explain", "1:before", "1:after", "tail", *OPTIONS, "--suite", str(SUITE), "-q"
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "explained: tail subnormal-1 before → after (modelled)",
        "  -fmad=false and -ftz=true move the bits only together, to the candidate's bits; "
        "neither does alone.",
        "  -prec-sqrt=false and toolchain nvrtc 13.5.37 move nothing alone.",
    ]


def test_nothing_to_explain_and_nothing_in_common(recorded: Path) -> None:
    code, out, _ = reprodb(recorded, "explain", "1:before", "1:inert", *OPTIONS)
    assert (code, out) == (0, "nothing to explain: no guaranteed bit differs in 1 row\n")
    code, out, _ = reprodb(recorded, "explain", "1:before", "1:inert", *OPTIONS, "--json")
    assert (code, document(out)["rows"]) == (0, [])
    code, _, err = reprodb(recorded, "explain", "1:before", "1:inert", "tall", *OPTIONS)
    assert code == 2
    assert "did you mean tail?" in err
    code, _, err = reprodb(recorded, "explain", "1", "baseline", *OPTIONS)
    assert code == 2
    assert "reprodb explain baseline 1" in err


def test_shape_and_a_flag_of_the_published_edits(tmp_path: Path) -> None:
    """2,048 blocks and -fmad=false each move partials, and together they give the candidate's."""
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        '[profile.default]\ncompiler = "nvrtc"\ntoolkit = ">=13.5,<14"\n'
        '[profile.no-fmad]\nextends = "default"\nfmad = false\n'
    )
    shared.store_below(tmp_path)
    record(tmp_path, EDITS, profiles, "--kernel", "tree", "--kernel", "tree_2048_blocks", "-n", "1")
    sides = ("1:default:tree", "1:no-fmad:tree_2048_blocks")
    code, out, err = reprodb(
        tmp_path, "explain", *sides, *OPTIONS, "-n", "2", "--suite", str(EDITS), "--json"
    )
    assert code == 0, err
    (row,) = document(out)["rows"]
    assert row["outputs"] == ["partials", "total"]  # what moved first: the total did not
    assert [(m["names"], m["reproduces"]) for m in row["minimal"]] == [
        (["launch shape"], False),
        (["-fmad=false"], False),
    ]
    assert row["reproducing"] == [["launch shape", "-fmad=false"]]
    trials = {tuple(t["exchanged"]): t["detail"] for t in row["experiments"]}
    assert trials[("-fmad=false",)] == "73 of 1,024 partials, at most 2 ULP"
    assert "partials" in trials[("launch shape",)]


# --- Sources that are gone ---------------------------------------------------------------------


def edited(suite: Path) -> None:
    """Another source: the sum is doubled."""
    file = suite / "_lib" / "tail.cu"
    file.write_text(file.read_text().replace("+ c[i]", "+ 2.0f * c[i]"))


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *arguments],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def edited_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`suite` was edited between run 1 and run 2, which has an inert flag too; `old` keeps the text."""
    folder = tmp_path_factory.mktemp("edited")
    shared.store_below(folder)
    suite = Path(shutil.copytree(SUITE, folder / "suite"))
    shutil.copytree(SUITE, folder / "old")
    git(suite, "init", "-q")
    git(suite, "add", ".")
    git(suite, "commit", "-q", "-m", "first")
    record(folder, suite, SUITE / "profiles.toml", "--profile", "before")
    edited(suite)
    profiles = folder / "profiles.toml"
    flag = "prec_sqrt = false"
    profiles.write_text(f'[profile.before]\ncompiler = "nvrtc"\ntoolkit = ">=12.6,<12.7"\n{flag}\n')
    record(folder, suite, profiles)
    return folder


@pytest.fixture
def two_sources(edited_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(edited_once, tmp_path / "two", symlinks=True))


def test_an_old_source_comes_from_the_history_of_the_suite(two_sources: Path) -> None:
    git(two_sources / "suite", "commit", "-q", "-a", "-m", "second")
    code, out, err = reprodb(two_sources, "explain", "1", "2", *OPTIONS, "--suite", "suite", "--json")
    assert code == 0, err
    (row,) = document(out)["rows"]
    assert [m["names"] for m in row["minimal"]] == [["source"]]
    assert row["answer"][0] == "Source moves the bits alone, to the candidate's bits."
    assert row["notes"][0].startswith("_lib/tail.cu is the text of commit ")


def test_an_old_source_comes_from_a_second_suite(two_sources: Path) -> None:
    shutil.rmtree(two_sources / "suite" / ".git")
    suites = ("--suite", "suite", "--suite", "old")
    code, out, err = reprodb(two_sources, "explain", "1", "2", *OPTIONS, *suites, "--json")
    assert code == 0, err
    assert document(out)["rows"][0]["reproducing"] == [["source"]]


def test_a_source_that_is_gone_is_held_and_the_end_does_not_come_again(two_sources: Path) -> None:
    shutil.rmtree(two_sources / "suite" / ".git")
    code, out, err = reprodb(two_sources, "explain", "1", "2", *OPTIONS, "--suite", "suite", "--json")
    assert code == 4, err
    (row,) = document(out)["rows"]
    assert not row["explained"]
    (held,) = row["held"]
    assert (held["name"], held["at"]) == ("source", "candidate")
    digest = sha256((SUITE / "_lib" / "tail.cu").read_bytes())[:12]
    assert f"_lib/tail.cu of digest {digest} is not in" in held["why"]
    assert row["answer"][0].startswith("The baseline's bits did not come again: 0x00c80000 was recorded")
    assert row["answer"][-1] == "Exchanging -prec-sqrt=false moves no bit; what is left is source."
    code, out, _ = reprodb(two_sources, "explain", "1", "2", *OPTIONS, "--suite", "suite")
    assert code == 4
    assert out.startswith("not explained: tail subnormal-1 before → before (modelled)\n")
    assert "  held at the candidate's: source: the baseline's: _lib/tail.cu of digest" in out


def test_without_either_source_nothing_can_be_made_again(two_sources: Path) -> None:
    code, out, _ = reprodb(two_sources, "explain", "1", "2", *OPTIONS)  # the bundled suite has no such file
    assert code == 4
    assert "Neither side can be made again: _lib/tail.cu of digest" in out
    assert "--suite" in out


def test_a_suite_that_is_no_folder_is_a_wrong_question(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"suite .*nowhere is no folder"):
        Library([tmp_path / "nowhere"])


def test_sources_are_looked_for_inside_suites_alone(tmp_path: Path) -> None:
    secret = tmp_path / "secret.cu"
    secret.write_text("// outside\n")
    library = Library([SUITE])
    for path in ("../secret.cu", str(secret), "_lib/../../secret.cu", ".hidden", "a\nb"):
        assert isinstance(library.texts(((path, sha256(b"// outside\n")),)), Missing)
    suite = load_suite(SUITE)
    (file,) = source_files(suite, suite.kernels[0])
    assert library.texts(((file.path, sha256(file.text.encode())),)) == Texts((file,))


# --- Records that this machine cannot follow ---------------------------------------------------


def rerecord(folder: Path, change: Callable[[Result, Build], Result]) -> None:
    """Run 2: what run 1 recorded of profile `after`, changed."""
    with open_store(str(folder / "x.db"), write=True) as store:
        run = store.run(1)
        (old,) = store.results(1, profile="after")
        outputs = tuple(
            replace(o, patterns=tuple(replace(p, data=store.pattern(p.sha256)) for p in o.patterns))
            for o in old.outputs
        )
        assert old.build is not None
        changed = change(replace(old, outputs=outputs), old.build)
        assert changed.build is not None
        new = Run("another", run.suite, changed.lane, run.environment, STARTED)
        number = store.begin(new)
        store.record(number, changed, Artifact(changed.build))
        store.finish(number, 0, STARTED)


def other_bits(result: Result) -> Result:
    data = bytes.fromhex("0000d000")
    outputs = tuple(
        replace(
            o, patterns=(replace(o.patterns[0], sha256=sha256(data), data=data),), first_bits="0x00d00000"
        )
        for o in result.outputs
    )
    return replace(result, outputs=outputs)


def test_bits_that_do_not_come_again_are_said_first(here: Path) -> None:
    rerecord(here, lambda result, build: other_bits(result))
    code, out, _ = reprodb(here, "explain", "1:before", "2:after", *OPTIONS, "--suite", str(SUITE), "--json")
    (row,) = document(out)["rows"]
    assert (code, row["explained"]) == (4, False)
    assert row["answer"][0] == (
        "The candidate's bits did not come again: 0x00d00000 was recorded, 0x00c00000 came here; "
        "something that is not exchanged moved them."
    )
    assert row["recorded"]["baseline"]["reproduced"]
    assert row["recorded"]["candidate"]["reproduced"] is False
    assert [m["names"] for m in row["minimal"]] == [["-fmad=false", "-ftz=true"]]  # still told


def test_a_toolchain_that_is_not_here_is_held_with_the_command(here: Path) -> None:
    older = replace(NVRTC_12, version="11.9.99", path="")
    rerecord(here, lambda result, build: replace(result, build=replace(build, toolchain=older)))
    code, out, _ = reprodb(here, "explain", "1:before", "2:after", *OPTIONS, "--suite", str(SUITE), "--json")
    (row,) = document(out)["rows"]
    (held,) = row["held"]
    assert (held["name"], held["at"]) == ("toolchain nvrtc 11.9.99", "baseline")
    assert held["remedy"] == "reprodb toolchains install nvrtc 11.9.99"
    # The flags alone explain it: both ends came again without that compiler.
    assert (code, row["explained"]) == (0, True)


def test_compilers_are_found_by_version_and_parts_and_installed_on_request() -> None:
    nvcc = replace(NVRTC_13, compiler="nvcc", version="13.0.88", components=(("host", "gcc 12"),))
    other = replace(nvcc, components=(("host", "gcc 13"),), path="/opt/other")
    here = Compilers([NVRTC_12, nvcc, other])
    recorded = replace(other, path="", components=(*other.components, ("included headers", "ab12")))
    assert here.like(recorded) == other
    assert here.like(replace(other, components=())) == nvcc  # the same version of other parts
    missing = here.like(replace(NVRTC_12, version="12.9.86"))
    assert missing == Missing("nvrtc 12.9.86 is not installed", "reprodb toolchains install nvrtc 12.9.86")
    asked: list[tuple[str, str]] = []

    def install(compiler: str, version: str) -> Any:
        asked.append((compiler, version))
        return replace(NVRTC_12, version=version)

    fetching = Compilers([NVRTC_12], install)
    assert fetching.version("nvrtc", "12.9.86") == fetching.version("nvrtc", "12.9.86")
    assert asked == [("nvrtc", "12.9.86")]
