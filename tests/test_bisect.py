"""`reprodb bisect`: versions and commits on real compilers and the model, and the parts it is made of."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from reprodb.cli import main
from reprodb.domain import CodeOrigin, Status
from reprodb.errors import ReprodbError, ToolchainError, UsageError
from reprodb.executors.task import Outcome
from reprodb.experiments import Setting, without_data
from reprodb.hunt import Found, hunt
from reprodb.lenses import CaseChange, Look
from reprodb.notebook import FileNotebook
from reprodb.render.bisect import Head, Spent, lines
from reprodb.versions import Known, between, known, majors
from tests.builders import NVRTC_12, NVRTC_13, make_output
from tests.command import valid
from tests.test_repository import git, state

SUITES = Path(__file__).parent / "suites"

# What an H200 gave under every release of NVRTC, from 12.0 to 13.5.
MEASURED = json.loads(
    (Path(__file__).parents[1] / "reports" / "evidence" / "nvrtc-releases-h200.json").read_text()
)["bits"]


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


def agrees(kernel: str, places: Sequence[dict[str, Any]]) -> int:
    """How many bits of probed places are an H200's; every one that it measured must be."""
    count = 0
    for place in places:
        version = place["label"].removeprefix("nvrtc ")
        for case, bits in place.get("bits", {}).items():
            if version in MEASURED[kernel][case]:
                assert MEASURED[kernel][case][version].startswith(bits), (version, case)
                count += 1
    return count


def document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = valid(json.loads(text), "bisect")
    return found


# --- Which versions ----------------------------------------------------------------------------


def versions(*texts: str) -> tuple[Version, ...]:
    return tuple(Version(text) for text in texts)


PUBLISHED = Known(
    "nvrtc",
    versions(
        "12.0.76", "12.0.140", "12.6.20", "12.6.85", "12.9.41", "12.9.86", "13.0.48", "13.0.88", "13.5.37"
    ),
    frozenset(versions("12.6.85", "13.5.37")),
)


def test_the_newest_of_each_release_and_the_ends() -> None:
    assert between(PUBLISHED, "12.0", "13.5") == versions(
        "12.0.140", "12.6.85", "12.9.86", "13.0.88", "13.5.37"
    )
    assert between(PUBLISHED, "12.6.20", "13.0.48") == versions("12.6.20", "12.9.86", "13.0.48")
    assert between(PUBLISHED, "12.6.20", "12.6") == versions("12.6.20", "12.6.85")
    assert between(PUBLISHED, "13", "12.9") == versions("13.5.37", "13.0.88", "12.9.86")


def test_every_published_version_on_request() -> None:
    assert between(PUBLISHED, "12.6.20", "13.0", every=True) == PUBLISHED.versions[2:8]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("12.7", "13.5", "12.7 is neither published nor installed"),
        ("12.6", "12.6.85", "good and bad are both nvrtc 12.6.85"),
        ("twelve", "13", "'twelve' is no version"),
        ("12", "13; ls", "'13; ls' is no version"),
    ],
)
def test_ends_that_are_no_ends(good: str, bad: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        between(PUBLISHED, good, bad)


@dataclass(frozen=True)
class Index:
    """A package index of two packages, or one that cannot be reached."""

    reachable: bool = True

    def published(self, package: str) -> tuple[Version, ...]:
        if not self.reachable:
            raise ToolchainError("the package index cannot be reached")
        found = {"nvidia-cuda-nvrtc-cu12": ("12.0.76", "12.9.86"), "nvidia-cuda-nvrtc": ("13.0.48",),
                 "nvidia-cuda-nvcc": ("13.0.88",)}  # fmt: skip
        return versions(*found[package])


def test_what_is_published_and_what_is_here() -> None:
    found = known("nvrtc", majors("12.4", "13.0"), [NVRTC_12, NVRTC_13], Index())
    assert found.versions == versions("12.0.76", "12.6.85", "12.9.86", "13.0.48", "13.5.37")
    assert found.here == set(versions("12.6.85", "13.5.37"))
    nvcc = known("nvcc", majors("12", "13"), [], Index())
    assert nvcc.versions == versions("12.4.131", "13.0.88")  # the one nvcc 12 that can be had


def test_without_the_index_the_installed_ones_are_there_is() -> None:
    unreachable = known("nvrtc", majors("12", "13"), [NVRTC_12, NVRTC_13], Index(reachable=False))
    assert unreachable.versions == versions("12.6.85", "13.5.37")
    assert "cannot be reached" in unreachable.note
    assert known("nvrtc", majors("12"), [NVRTC_12], None).versions == versions("12.6.85")
    assert known("nvrtc", majors("12"), [NVRTC_12], None).note == "only installed versions are looked at"


# --- The hunt, with places that are made up ----------------------------------------------------


class Street:
    """Places whose settings are empty: the lens below knows what each shows."""

    def __init__(self, *shown: str | None) -> None:
        self.labels = tuple(f"v{place}" for place in range(len(shown)))
        self.shown = shown
        self.asked: list[int] = []

    def settings(self, place: int) -> tuple[Setting, ...]:
        self.asked.append(place)
        if self.shown[place] is None:
            raise ReprodbError(f"v{place} is broken")
        return ()


class Eye:
    """Shows what its street shows at the place that was asked for last."""

    what = "bits"
    notes: tuple[str, ...] = ()

    def __init__(self, street: Street, *, steady: bool = True) -> None:
        self.street, self.steady = street, steady

    def look(self, settings: Sequence[Setting]) -> Look:
        return Look(self.street.shown[self.street.asked[-1]], "c0de", compiled=True)

    def again(
        self, before: Sequence[Setting], after: Sequence[Setting], looks: tuple[Look, Look]
    ) -> tuple[bool, tuple[CaseChange, ...]]:
        return self.steady, (CaseChange("one", "1 of 1 o"),)


def hunted(*shown: str | None, whole: bool = False, steady: bool = True) -> Found:
    street = Street(*shown)
    return hunt(street, Eye(street, steady=steady), whole=whole)


def said(found: Found) -> list[str]:
    head = Head("k", "nvrtc", "default", None)
    return list(lines(head, found, Spent(len(found.looks), 0, 0, 0)))


def test_a_change_is_found_verified_and_told() -> None:
    found = hunted("a", "a", "a", "a", "b", "b", "b")
    (change,) = found.changes
    assert (change.before, change.first, change.verified) == (3, 4, True)
    assert found.answered
    assert said(found) == [
        "k: the first version whose bits differ is v4; v3 is as the good end",
        "  one: 1 of 1 o",
        "  4 probes, 0 builds and 0 executions for 7 versions",
    ]


def test_places_that_cannot_be_tried_are_named() -> None:
    found = hunted("a", "a", None, None, "b")
    (change,) = found.changes
    assert (change.before, change.first, change.skipped) == (1, 4, (2, 3))
    text = said(found)
    assert text[0].endswith("v4; v1 is as the good end; it may be v2 or v3, which could not be tried")
    assert "  skipped: v2: v2 is broken" in text


def test_a_change_that_does_not_come_again_is_no_answer() -> None:
    found = hunted("a", "b", steady=False)
    assert not found.answered
    assert any("not verified" in line for line in said(found))


def test_a_later_change_is_told_of() -> None:
    found = hunted("a", "b", "b", "b", "c")
    assert any("the bits move again between v1 and v4: --all lists" in line for line in said(found))


def test_every_step_of_a_walk_and_what_returns() -> None:
    found = hunted("a", "b", None, "a", "a", whole=True)
    assert [(c.before, c.first, c.skipped, c.returns_to) for c in found.changes] == [
        (0, 1, (), None),
        (1, 3, (2,), 0),
    ]
    text = said(found)
    assert text[0] == "k: the bits move at v1, after v0"
    assert any(
        "the bits move at v3, after v1; it may be v2" in t and "return to those of v0" in t for t in text
    )


@pytest.mark.parametrize(
    ("shown", "whole", "answered", "text"),
    [
        (("a", "b", "a"), False, False, "the same bits at v0 and v2; a change that was taken back"),
        (("a", "a", "a"), True, True, "no change of bits at any of the 3 of 3 that could be tried"),
        (("a", None, "a"), True, False, "no change of bits at any of the 2 of 3"),
        ((None, "a", "a"), False, False, "no answer: v0 shows no bits: v0 is broken"),
        (("a", "a", None), False, False, "no answer: v2 shows no bits: v2 is broken"),
    ],
)
def test_without_a_change(shown: tuple[str | None, ...], whole: bool, answered: bool, text: str) -> None:
    found = hunted(*shown, whole=whole)
    assert found.changes == ()
    assert found.answered == answered
    assert said(found)[0].startswith(f"k: {text}")


# --- The notebook ------------------------------------------------------------------------------


def test_a_notebook_keeps_outcomes_without_data(tmp_path: Path) -> None:
    outcome = Outcome(Status.OK, (make_output(["0x4b25426d"] * 3),), origin=CodeOrigin.PTX, seconds=0.5)
    notes = FileNotebook(tmp_path / "notes")
    assert notes.get("ab" * 32) is None
    notes.put("ab" * 32, without_data(outcome))
    assert notes.get("ab" * 32) == without_data(outcome)
    assert FileNotebook(tmp_path / "notes", reading=False).get("ab" * 32) is None
    (file,) = (tmp_path / "notes").rglob("*.json")
    for damage in ("", "{", file.read_text()[:-5], '{"status": "fine"}'):
        file.write_text(damage)
        assert notes.get("ab" * 32) is None
    notes.put("ab" * 32, without_data(outcome))
    assert notes.get("ab" * 32) is not None
    assert not list((tmp_path / "notes").rglob(".part-*"))
    FileNotebook(file / "under a file").put("cd" * 32, outcome)  # nothing can be kept there


# --- Versions, for real ------------------------------------------------------------------------

CASES = ("--suite", str(SUITES / "cases"), "--device", "model")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bisect")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """No notes of somebody else, and no compilers beside the environment's."""
    monkeypatch.setenv("REPRODB_CACHE", str(place / "cache"))


ATAN2F = ("bisect", "math_atan2f", "--good", "12.6", "--bad", "13.5", "--no-install", *CASES)


def test_atan2f_moves_between_the_two_wheels_and_a_second_hunt_goes_on(place: Path) -> None:
    code, out, err = reprodb(place, *ATAN2F, "--case", "moved-1", "--json")
    assert code == 0, err
    found = document(out)
    (change,) = found["changes"]
    assert change["before"].startswith("nvrtc 12.")
    assert change["first"].startswith("nvrtc 13.")
    assert change["verified"]
    assert change["cases"][0]["change"] == "1 of 1 o, at most 1 ULP"
    assert "build moved: toolchain (nvrtc 12" in change["cases"][0]["sentence"]
    ends = found["places"][0], found["places"][-1]
    # The published example: atan2f of this pair before and after.
    assert [end["bits"]["moved-1"] for end in ends] == ["0xbdaaac23", "0xbdaaac24"]
    assert agrees("math_atan2f", found["places"]) >= 2
    assert found["compiled"] == found["probes"]
    assert "versions, " in err.splitlines()[1]  # the plan, before anything is done

    again = document(reprodb(place, *ATAN2F, "--case", "moved-1", "--json")[1])
    assert again["changes"] == found["changes"]
    assert again["compiled"] == 0
    assert again["executed"] == 2  # the two of the boundary, once more
    assert not any(p.get("executed") for p in again["places"])
    # Other releases lie between the two wheels: that is said, and no release is called the first.
    assert again["notes"] == ["only installed versions are looked at"]
    told = reprodb(place, *ATAN2F, "--case", "moved-1")[1]
    assert "math_atan2f: the first installed version whose bits differ is nvrtc 13." in told
    assert "note: only installed versions are looked at" in told
    fresh = document(reprodb(place, *ATAN2F, "--case", "moved-1", "--json", "--fresh")[1])
    assert fresh["executed"] == fresh["probes"] + 2


def test_code_that_changes_under_bits_that_do_not(place: Path) -> None:
    asked = ("bisect", "scaled_sum", "--good", "12.6", "--bad", "13.5", "--no-install", *CASES)
    code, out, _ = reprodb(place, *asked)
    assert code == 4
    assert "scaled_sum: the same bits at nvrtc 12" in out
    code, out, _ = reprodb(place, *asked, "--all")
    assert code == 0
    assert "no change of bits at any of the" in out
    code, out, _ = reprodb(place, *asked, "--code", "--json")
    found = document(out)
    assert found["executed"] == 0
    assert found["lane"] is None
    assert (code, found["answered"]) in ((0, True), (4, False))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("math_atan2",), 2, "it is not said between what to look"),
        (("math_atan2", "--good", "12.6"), 2, "it is not said between what to look"),
        (("math_atan2", "--good", "12.6", "--bad", "13", "--commits", "a..b"), 2, "--commits goes without"),
        (("math_atan2", "--commits", "a...b"), 2, "GOOD..BAD"),
        (("math_atan2", "--commits", "a"), 2, "GOOD..BAD"),
        (("math_atan3", "--good", "12.6", "--bad", "13"), 2, "math_atan2"),
        (("math_atan2", "--good", "12.6", "--bad", "13", "--case", "zzz"), 2, "has no case 'zzz'"),
        (("math_atan2", "--good", "12.6", "--bad", "13", "--profile", "defualt"), 2, "did you mean default"),
        (("math_atan2", "--good", "12.6", "--bad", "13", "--compiler", "clang"), 2, "nvrtc, nvcc"),
        (("math_atan2", "--good", "11.8", "--bad", "13"), 2, "nvrtc 11.8 is not installed"),
    ],
)
def test_bad_requests(place: Path, arguments: tuple[str, ...], code: int, text: str) -> None:
    asked = ("--suite", str(SUITES / "cases"), "--device", "model", "--no-install")
    got, _, err = reprodb(place, "bisect", *arguments, *asked)
    assert got == code
    assert text in err


def test_a_kernel_that_guarantees_no_bits_has_code_alone(place: Path) -> None:
    asked = ("bisect", "sum_global_atomic", "--good", "12.6", "--bad", "13", "--no-install")
    code, _, err = reprodb(place, *asked, "--device", "model")
    assert code == 2
    assert "--code looks for a change of its code" in err


# --- Commits, for real -------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Five commits of a suite: the third breaks the build, the fourth moves the bits."""
    root = tmp_path / "work"
    root.mkdir()
    git(root, "init", "-q")
    suite = root / "kernels"
    shutil.copytree(SUITES / "explain", suite)
    source = suite / "_lib" / "tail.cu"
    text = source.read_text()
    for number, edit in enumerate(
        (text, f"// a comment\n{text}", f"{text}\n no CUDA\n", text.replace("+ c[i]", "+ c[i] * 2.0f"),
         text.replace("+ c[i]", "+ 2.0f * c[i]"))
    ):  # fmt: skip
        source.write_text(edit)
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", f"edit {number}")
    source.write_text("// the user is in the middle of something\n")
    return root


def commits(root: Path, span: str, *more: str) -> tuple[str, ...]:
    return (
        "bisect", "tail", "--commits", span, "--suite", str(root / "kernels"), "--device", "model",
        "--profiles-file", str(SUITES / "explain" / "profiles.toml"), "--profile", "before", *more,
    )  # fmt: skip


def test_a_kernel_that_is_not_there_yet_is_told_with_the_commit(history: Path) -> None:
    first = git(history, "rev-list", "--max-parents=0", "HEAD")[:12]
    asked = commits(history, f"{first}..HEAD")
    code, _, err = reprodb(history, "bisect", "tial", *asked[2:])
    assert code == 2
    assert f"at commit {first}: suite " in err
    assert "has no kernel 'tial'" in err
    assert "name its suite with --suite" in err


def test_the_commit_that_moved_the_bits(place: Path, history: Path) -> None:
    before = state(history)
    code, out, err = reprodb(place, *commits(history, "HEAD~4..main", "--json"))
    assert code == 0, err
    found = document(out)
    (change,) = found["changes"]
    shas = git(history, "rev-list", "--reverse", "HEAD").splitlines()
    assert change["before"] == shas[1][:12]
    assert change["first"] == shas[3][:12]
    assert change["skipped"] == [shas[2][:12]]
    assert found["along"] == "commit"
    assert [p["detail"] for p in found["places"]] == [f"edit {n}" for n in range(5)]
    assert "build failed" in found["places"][2]["why"]
    assert "source (_lib/tail.cu)" in change["cases"][0]["sentence"]
    assert state(history) == before

    code, out, _ = reprodb(place, *commits(history, "HEAD~4..HEAD", "--code"))
    assert code == 0
    assert "(edit 3); " in out.splitlines()[0]


@pytest.mark.parametrize(
    "span", ["$(touch hit)..HEAD", "--output=hit..HEAD", "HEAD..; touch hit", "nothing..HEAD"]
)
def test_hostile_commit_names(place: Path, history: Path, span: str) -> None:
    before = state(history)
    code, _, err = reprodb(place, *commits(history, span))
    assert code == 2
    assert "is no commit of" in err
    assert not list(place.rglob("hit")) + list(history.rglob("hit"))
    assert state(history) == before


def test_ctrl_c_leaves_nothing_behind(history: Path, tmp_path: Path) -> None:
    """A real signal while commits are read and built, wherever it hits."""
    before = state(history)
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environ = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "reprodb", *commits(history, "HEAD~4..HEAD", "--all")]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("tail under before"):  # the plan: probing begins
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        code = process.wait(60)
    assert code == 130
    assert "reprodb: interrupted: what was built and executed is kept" in rest
    assert state(history) == before
    assert not list(scratch.glob("reprodb-worktree-*"))


# --- The real thing, whole ---------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kernel", "options", "first", "before", "probes"),
    [
        ("math_atan2f", (), "nvrtc 13.0.88", "nvrtc 12.9.86", 6),
        ("math_cospif", (), "nvrtc 12.1.105", "nvrtc 12.0.140", 6),
        ("scaled_sum", ("--code",), "nvrtc 12.2.140", "nvrtc 12.1.105", 6),
    ],
)
def test_fifteen_releases_of_nvrtc(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    options: tuple[str, ...],
    first: str,
    before: str,
    probes: int,
) -> None:
    """Downloads what it needs, about 130 MB a version once; REPRODB_TEST_CACHE names where it stays."""
    cache = os.environ.get("REPRODB_TEST_CACHE")
    monkeypatch.setenv("REPRODB_CACHE", cache or str(tmp_path / "cache"))
    asked = ("bisect", kernel, "--good", "12.0", "--bad", "13.5", *CASES, *options, "--fresh", "--json")
    code, out, err = reprodb(tmp_path, *asked)
    assert code == 0, err
    found = document(out)
    assert len([p for p in found["places"] if p["label"] <= "nvrtc 13.5.37"]) == 15
    (change,) = found["changes"]
    assert (change["before"], change["first"]) == (before, first)
    assert found["probes"] <= probes
    assert options or agrees(kernel, found["places"]) >= found["probes"] * 2


@pytest.mark.soak
def test_code_changes_at_12_2_and_bits_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = os.environ.get("REPRODB_TEST_CACHE")
    monkeypatch.setenv("REPRODB_CACHE", cache or str(tmp_path / "cache"))
    asked = ("bisect", "scaled_sum", "--good", "12.1", "--bad", "12.3", *CASES, "--all", "--json")
    bits = document(reprodb(tmp_path, *asked)[1])
    assert bits["changes"] == []
    assert bits["answered"]
    assert agrees("scaled_sum", bits["places"]) == 3
    code = document(reprodb(tmp_path, *asked, "--code")[1])
    assert [c["first"] for c in code["changes"]] == ["nvrtc 12.2.140", "nvrtc 12.3.107"]
