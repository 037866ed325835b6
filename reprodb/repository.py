"""git without a shell: commits by name, worktrees of their own, and old texts of a file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reprodb.errors import ReprodbError, UsageError
from reprodb.toolchains.process import Finished, Runner, run

_SECONDS = 120.0
_DEEPEN = "fetch the whole history: git fetch --unshallow, or fetch-depth: 0 in CI"

# Given to git before its command: no hook of the repository runs and no pager starts.
_QUIET = ("--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
          "-c", "log.showSignature=false")  # fmt: skip
# Of the environment. GIT_DIR and its like would turn git to another repository than the folder's.
_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME")
_SET = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_LFS_SKIP_SMUDGE": "1"}


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit by its full hash, with the first line of its message."""

    sha: str
    subject: str

    @property
    def label(self) -> str:
        return self.sha[:12]


class Repository:
    """The git repository that holds a folder. Raises UsageError where there is none, or no git.

    Names of commits come from outside: git alone reads them, and never as options.
    """

    def __init__(self, folder: Path, runner: Runner = run, environ: Mapping[str, str] = os.environ) -> None:
        self._run = runner
        self._environment = {**{name: environ[name] for name in _KEPT if name in environ}, **_SET}
        self.folder = self.root = folder.resolve()
        done, top = self._git("rev-parse", "--show-toplevel")
        if not done.ok:
            why = "git is not installed" if not done.started else f"{folder} is in no git repository"
            raise UsageError(why, allowed="a suite inside a git repository", detail=done.log)
        self.root = Path(top.removesuffix("\n"))
        self.inside = self.folder.relative_to(self.root)

    def commit(self, name: str) -> Commit:
        """The commit that people mean by a name: hash, branch, tag, `HEAD~3`. UsageError if there is none."""
        done, text = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        sha = text.strip()
        if not done.ok or not _is_hash(sha):
            allowed = "a hash, a branch, a tag, HEAD~N"
            raise UsageError(
                f"{name!r} is no commit of {self.root}", allowed=allowed, remedy=self._to_deepen()
            )
        return self._commits("--max-count=1", sha)[0]

    def between(self, good: Commit, bad: Commit) -> tuple[Commit, ...]:
        """Good, then every commit up to bad that touches the folder, the oldest first; merges are one step.

        Raises UsageError where good is no ancestor of bad.
        """
        if not self._git("merge-base", "--is-ancestor", good.sha, bad.sha)[0].ok:
            raise UsageError(
                f"{good.label} is no ancestor of {bad.label}",
                allowed="GOOD..BAD along one line of history",
                remedy=self._to_deepen(),
            )
        path = f":(top,literal){self.inside.as_posix()}" if self.inside.parts else ":(top)"
        line = ("--first-parent", "--reverse", f"{good.sha}..{bad.sha}", "--", path)
        return (good, *self._commits(*line))

    def merge_base(self, one: Commit, other: Commit) -> Commit:
        """The commit where two lines of history parted. UsageError where git knows of none."""
        done, text = self._git("merge-base", one.sha, other.sha)
        if not done.ok or not _is_hash(text.strip()):
            raise UsageError(
                f"{one.label} and {other.label} have no commit in common here",
                allowed="commits of one history, all of it fetched",
                remedy=_DEEPEN,
            )
        return self._commits("--max-count=1", text.strip())[0]

    def changed(self) -> bool:
        """Whether the folder has anything that is not committed."""
        path = f":(top,literal){self.inside.as_posix()}" if self.inside.parts else ":(top)"
        return bool(self._text("status", "--porcelain", "--untracked-files=normal", "--", path).strip())

    @contextmanager
    def worktree(self, commit: Commit) -> Iterator[Path]:
        """The folder as it was at a commit, in a temporary worktree that is gone afterwards.

        The user's checkout, index and branches are not touched.
        """
        scratch = Path(tempfile.mkdtemp(prefix="reprodb-worktree-"))
        place = scratch.resolve() / f"{commit.label}-{scratch.name}"  # also its name among git's worktrees
        try:
            self._text("worktree", "add", "--quiet", "--detach", "--", str(place), commit.sha)
            yield place / self.inside
        finally:
            self._git("worktree", "remove", "--force", "--force", "--", str(place))
            shutil.rmtree(scratch, ignore_errors=True)
            self._forget(place)

    def versions(self, path: str, most: int = 500) -> Iterator[tuple[Commit, str]]:
        """The texts of a file below the folder, at each commit that touched it, the newest first."""
        inside = (self.inside / path).as_posix()
        with suppress(ReprodbError):  # a repository without a commit
            for commit in self._commits(f"--max-count={most}", "HEAD", "--", f":(top,literal){inside}"):
                done, text = self._git("cat-file", "blob", f"{commit.sha}:{inside}")
                if done.ok and _is_text(text):
                    yield commit, text

    # --- inside

    def _commits(self, *which: str) -> tuple[Commit, ...]:
        lines = self._text("log", "--no-color", "--format=%H %s", *which).split("\n")
        parts = (line.partition(" ") for line in lines if line)
        return tuple(Commit(sha, subject) for sha, _, subject in parts)

    def _to_deepen(self) -> str:
        """What to do about a history that was cut off when it was cloned; empty where it is whole."""
        cut = self._git("rev-parse", "--is-shallow-repository")[1].strip() == "true"
        return f"the history is cut off here; {_DEEPEN}" if cut else ""

    def _forget(self, place: Path) -> None:
        """Drop git's record of a worktree whose `add` was interrupted. Other stale ones are the user's."""
        common = self.root / self._text("rev-parse", "--git-common-dir").removesuffix("\n")
        record = common / "worktrees" / place.name
        if record.is_dir():
            shutil.rmtree(record, ignore_errors=True)
            with suppress(OSError):  # others are there
                record.parent.rmdir()

    def _text(self, *arguments: str) -> str:
        done, text = self._git(*arguments)
        if not done.ok:
            raise ReprodbError(f"git {arguments[0]} failed ({done.reason})", detail=done.log)
        return text

    def _git(self, *arguments: str) -> tuple[Finished, str]:
        """How git ended, and its standard output whole."""
        with tempfile.TemporaryDirectory(prefix="reprodb-git-") as scratch:
            said = Path(scratch, "said")
            command = ["git", *_QUIET, *arguments]
            done = self._run(command, self.root, self._environment, _SECONDS, said)
            return done, said.read_bytes().decode("utf-8", "surrogateescape") if said.exists() else ""


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return True


def _is_hash(text: str) -> bool:
    return len(text) in (40, 64) and all(c in "0123456789abcdef" for c in text)
