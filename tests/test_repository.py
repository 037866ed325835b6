"""git seen from a suite: names that are no options, worktrees that leave nothing behind, old texts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from reprodb.errors import ReprodbError, UsageError
from reprodb.repository import Repository
from reprodb.toolchains.process import Finished, run


def git(folder: Path, *arguments: str) -> str:
    """git as a test needs it: an identity of its own, no configuration of the machine's."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder)}
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def commit(root: Path, path: str, text: str, message: str) -> str:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    git(root, "add", path)
    git(root, "commit", "-q", "-m", message)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a suite and something beside it, on five commits."""
    root = tmp_path / "work tree"
    root.mkdir()
    git(root, "init", "-q")
    for number in range(3):
        commit(root, "suite/k.cu", f"// {number}\n", f"kernel {number}")
    commit(root, "README", "beside\n", "beside the suite")
    commit(root, "suite/k.cu", "// 3\n", "kernel 3 \x1b[31m ; $(touch hit)")
    return root


def test_commits_that_touch_the_suite_in_order(root: Path) -> None:
    repository = Repository(root / "suite")
    found = repository.between(repository.commit("HEAD~4"), repository.commit("main"))
    assert [c.subject[:8] for c in found] == ["kernel 0", "kernel 1", "kernel 2", "kernel 3"]
    assert found[-1].sha == git(root, "rev-parse", "HEAD")
    with pytest.raises(UsageError, match="is no ancestor of"):
        repository.between(repository.commit("HEAD"), repository.commit("HEAD~1"))


@pytest.mark.parametrize(
    "name",
    ["", "nothing", "--all", "-rf", "--output=hit", "$(touch hit)", "`touch hit`", "; touch hit",
     "HEAD..main", "HEAD^{tree}", "HEAD:suite/k.cu", "a b", "@{", "HEAD\nmain"],
)  # fmt: skip
def test_hostile_names_are_no_commits(root: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no commit of"):
        Repository(root / "suite").commit(name)
    assert not list(root.rglob("hit"))


def test_a_history_that_was_cut_off_says_how_to_get_the_rest(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "2", root.as_uri(), str(tmp_path / "cut"))
    with pytest.raises(UsageError, match="is no commit of") as caught:
        Repository(tmp_path / "cut" / "suite").commit("HEAD~4")
    assert "git fetch --unshallow" in caught.value.remedy
    with pytest.raises(UsageError) as caught:
        Repository(root / "suite").commit("HEAD~40")
    assert caught.value.remedy == ""


def test_a_branch_that_looks_like_an_option(root: Path) -> None:
    """git itself refuses to make one; a hostile repository has it in its files all the same."""
    head = git(root, "rev-parse", "HEAD")
    (root / ".git" / "refs" / "heads" / "--upload-pack=hit").write_text(head + "\n")
    assert Repository(root / "suite").commit("--upload-pack=hit").sha == head


def test_a_folder_outside_any_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is in no git repository"):
        Repository(tmp_path)


def state(root: Path) -> tuple[str, ...]:
    """Whatever a user would miss or find too much."""
    inside = sorted(str(p.relative_to(root)) for p in (root / ".git").rglob("*") if "worktrees" in p.parts)
    return (
        git(root, "status", "--porcelain"),
        git(root, "rev-parse", "HEAD"),
        git(root, "branch", "--list"),
        git(root, "worktree", "list", "--porcelain"),
        *inside,
    )


def test_a_worktree_leaves_the_checkout_alone_and_goes(root: Path) -> None:
    (root / "suite" / "k.cu").write_text("// being edited\n")
    (root / "suite" / "new.cu").write_text("// untracked\n")
    before = state(root)
    repository = Repository(root / "suite")
    with repository.worktree(repository.commit("HEAD~4")) as folder:
        assert (folder / "k.cu").read_text() == "// 0\n"
        assert not (folder / "new.cu").exists()
        assert (root / "suite" / "k.cu").read_text() == "// being edited\n"
    assert not folder.exists()
    assert not folder.parents[1].exists()
    assert state(root) == before


def test_no_hook_runs(root: Path, tmp_path: Path) -> None:
    hook = root / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/hit'\n")
    hook.chmod(0o755)
    repository = Repository(root / "suite")
    with repository.worktree(repository.commit("HEAD~1")):
        pass
    assert not (tmp_path / "hit").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_worktree_goes_whatever_happens_inside(root: Path, error: BaseException) -> None:
    before = state(root)
    repository = Repository(root / "suite")
    with pytest.raises(type(error)), repository.worktree(repository.commit("HEAD~2")) as folder:
        raise error
    assert not folder.exists()
    assert state(root) == before


def test_a_worktree_goes_where_git_was_interrupted_while_it_made_it(root: Path) -> None:
    """Ctrl-C comes when the worktree is half there: its record exists, and git could not finish."""

    def interrupted(
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        seconds: float,
        output: Path | None = None,
    ) -> Finished:
        done = run(arguments, folder, environment, seconds, output)
        if "add" in arguments:
            place = Path(arguments[-2])
            (place / ".git").unlink()  # git can no longer tell that it is a worktree
            raise KeyboardInterrupt
        return done

    before = state(root)
    repository = Repository(root / "suite", interrupted)
    with pytest.raises(KeyboardInterrupt), repository.worktree(repository.commit("HEAD~2")):
        pass
    assert state(root) == before


def test_a_worktree_of_the_user_stays(root: Path, tmp_path: Path) -> None:
    """Also one whose folder is away for the moment, which `git worktree prune` would forget."""
    git(root, "worktree", "add", "-q", "--detach", str(tmp_path / "mine"), "HEAD~1")
    (tmp_path / "mine").rename(tmp_path / "away")
    before = state(root)
    repository = Repository(root / "suite")
    with repository.worktree(repository.commit("HEAD~2")):
        pass
    assert state(root) == before


def test_git_variables_do_not_turn_it_elsewhere(root: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "GIT_DIR": str(tmp_path), "GIT_WORK_TREE": str(tmp_path)}
    assert Repository(root / "suite", environ=environ).root == root


def test_old_texts_of_a_file_newest_first(root: Path) -> None:
    (root / "suite" / "k.cu").write_bytes(b"\xff\xfe")
    git(root, "commit", "-q", "-a", "-m", "no text")
    found = list(Repository(root / "suite").versions("k.cu"))
    assert [text for _, text in found] == ["// 3\n", "// 2\n", "// 1\n", "// 0\n"]
    assert list(Repository(root / "suite").versions("absent.cu")) == []


def test_a_failing_git_is_an_error_with_its_words(root: Path) -> None:
    repository = Repository(root / "suite")
    gone = repository.commit("HEAD")
    (root / ".git" / "objects" / gone.sha[:2] / gone.sha[2:]).unlink()
    with pytest.raises(ReprodbError, match="git worktree failed"), repository.worktree(gone):
        pass
