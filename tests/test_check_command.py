"""`reprodb check --against REF`: what two commits' bits are, in one command, and a checkout left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprodb.cli.check import _at
from reprodb.repository import Repository
from reprodb.store import open_store
from tests import shared
from tests.command import Said, reprodb
from tests.test_bad_input import MANIFEST, SOURCE, write_kernel
from tests.test_repository import commit, git

PROFILES = '[profile.default]\ncompiler = "nvrtc"\ntoolkit = ">=13,<14"\n'


@pytest.fixture(name="compiled")
def an_artifact_store() -> Path:
    return shared.store()


@pytest.fixture(name="root")
def a_repository(tmp_path: Path) -> Path:
    """A first commit without a suite, tagged `bare`; then one with a kernel whose sum of eight ones is 8."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    commit(root, "README", "nothing yet\n", "first")
    git(root, "tag", "bare")
    write_kernel(root / "kernels")
    (root / "profiles.toml").write_text(PROFILES)
    git(root, "add", "kernels", "profiles.toml")
    git(root, "commit", "-q", "-m", "a suite")
    git(root, "tag", "sum")
    return root


def check(root: Path, compiled: Path, against: str, *more: object) -> Said:
    where = ("--suite", "kernels", "--profiles-file", "profiles.toml", "--store", compiled)
    return reprodb("check", "--against", against, *where, "-n", 2, "-j", 1, *more, folder=root)


def bits(said: Said) -> list[tuple[str | None, str | None]]:
    rows = said.json["comparisons"]
    return [(row["outputs"]["out"]["first"], row["verdict"]) for row in rows]


def test_an_edit_that_moves_bits_is_seen_before_any_gpu_does(
    root: Path, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight ones are 0x41000000; tripled 0x41c00000. On another branch main goes on, which does not count."""
    git(root, "checkout", "-q", "-b", "edit")
    source = SOURCE.replace("sum += x[i]", "sum += 3.0f * x[i]")
    line = source.splitlines().index(next(t for t in source.splitlines() if "total(" in t)) + 1
    commit(root, "kernels/total/total.cu", source, "triple it")
    git(root, "checkout", "-q", "main")
    commit(root, "kernels/total/total.cu", SOURCE.replace("0.0f", "1.0f"), "main goes on")
    git(root, "checkout", "-q", "edit")
    (root / "kernels/total/notes").write_text("not committed")
    before = git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD")
    summary, outputs, page = (tmp_path / name for name in ("summary", "outputs", "check.html"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(root))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(outputs))

    said = check(root, compiled, "main", "--html", page, "--db", tmp_path / "kept.db")

    assert said.code == 1
    assert "0x41000000 → 0x41c00000" in said.out
    assert "what is not committed is not looked at" in said.err
    assert f"::error file=kernels/total/total.cu,line={line}," in said.err
    assert "0x41c00000" in summary.read_text()
    written = dict(text.split("=", 1) for text in outputs.read_text().splitlines())
    assert (written["exit-code"], written["report"]) == ("1", str(page))
    assert "bits with it in total" in written["verdict"]
    assert "0x41c00000" in page.read_text()
    with open_store(str(tmp_path / "kept.db")) as store:
        base = git(root, "merge-base", "main", "edit")[:12]
        head = git(root, "rev-parse", "HEAD")[:12]
        assert [run.label for run in store.runs()] == [f"commit {head}", f"commit {base}"]
        assert [run.exit_code for run in store.runs()] == [1, 0]
    assert (git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD")) == before
    assert len(git(root, "worktree", "list").splitlines()) == 1
    assert not (root / "reprodb.db").exists()


@pytest.mark.soak
def test_the_folder_as_it_is_and_profiles_of_each_side(root: Path, compiled: Path) -> None:
    """Not committed: a second kernel, and other flags under the profile's name on this side alone."""
    write_kernel(root / "kernels", "other")
    (root / "profiles.toml").write_text(PROFILES + "fmad = false\n")
    said = check(root, compiled, "HEAD", "--working", "--json", "--kernel", "*")
    rows = {row["kernel"]: (row["verdict"], row["first_layer"]) for row in said.json["comparisons"]}
    assert (said.code, rows) == (0, {"total": ("same", "flags"), "other": ("new", None)})


def test_a_commit_is_not_compared_with_itself(root: Path, compiled: Path) -> None:
    said = check(root, compiled, "HEAD")
    assert (said.code, said.out) == (4, "")
    assert "nothing compared: HEAD is commit" in said.err
    assert "take the folder as it is with --working" in said.err


def test_a_suite_that_is_new_has_nothing_to_compare_with(root: Path, compiled: Path) -> None:
    said = check(root, compiled, "bare")
    assert (said.code, "bare" not in said.out, "has no suite: everything is new" in said.err) == (
        0,
        True,
        True,
    )
    assert "first night" in said.out.lower()


@pytest.mark.soak
def test_a_kernel_that_only_the_new_side_has_may_be_asked_for(root: Path, compiled: Path) -> None:
    write_kernel(root / "kernels", "other")
    git(root, "add", "kernels")
    git(root, "commit", "-q", "-m", "another kernel")
    said = check(root, compiled, "sum", "--kernel", "other")
    assert said.code == 0
    assert "has nothing of what was asked for: it is new" in said.err
    assert check(root, compiled, "sum", "--kernel", "othr").code == 2


def test_what_cannot_be_checked(root: Path, compiled: Path, tmp_path: Path) -> None:
    said = check(root, compiled, "nowhere")
    assert (said.code, "'nowhere' is no commit" in said.err) == (2, True)
    said = check(root, compiled, "--output=x")
    assert (said.code, (root / "x").exists()) == (2, False)
    commit(root, "kernels/total/kernel.toml", MANIFEST.replace("size = 1", "sise = 1"), "broken")
    said = check(root, compiled, "sum")
    assert (said.code, "sise" in said.err) == (2, True)
    commit(root, "kernels/total/kernel.toml", MANIFEST, "mended")
    said = check(root, compiled, "HEAD~1")
    assert (said.code, "cannot be compared with" in said.err) == (4, True)
    shallow = tmp_path / "shallow"
    git(root, "clone", "-q", "--depth", "1", f"file://{root}", str(shallow))
    git(shallow, "fetch", "-q", "--depth", "1", "origin", "tag", "bare")
    said = check(shallow, compiled, "bare")
    assert (said.code, "fetch-depth: 0" in said.err) == (2, True)
    outside = tmp_path / "outside"
    write_kernel(outside)
    said = reprodb("check", "--against", "HEAD", "--suite", outside, folder=tmp_path)
    assert (said.code, "is in no git repository" in said.err) == (2, True)


def test_profiles_come_from_the_commit_and_never_through_a_link(root: Path, tmp_path: Path) -> None:
    """A profiles file that is a link to a file outside is not read from the worktree."""
    mine = root / "profiles.toml"
    repository = Repository(root / "kernels")
    with _at(repository, repository.commit("HEAD"), mine) as place:
        assert place.profiles.read_text() == PROFILES
        assert not place.profiles.is_relative_to(root)
    secret = tmp_path / "secret.toml"
    secret.write_text(PROFILES.replace("default", "secret"))
    mine.unlink()
    mine.symlink_to(secret)
    git(root, "add", "profiles.toml")
    git(root, "commit", "-q", "-m", "a link")
    mine.unlink()
    mine.write_text(PROFILES)
    with _at(repository, repository.commit("HEAD"), mine) as place:
        assert place.profiles == mine


def test_where_two_lines_parted(root: Path) -> None:
    repository = Repository(root / "kernels")
    assert not repository.changed()
    (root / "README").write_text("beside the suite")
    assert not repository.changed()
    (root / "kernels" / "new").write_text("x")
    assert repository.changed()
    base = repository.merge_base(repository.commit("bare"), repository.commit("HEAD"))
    assert base.sha == git(root, "rev-parse", "bare")
