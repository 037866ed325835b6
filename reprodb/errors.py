"""Errors that a user can mend: each names the value, what is allowed and what to do."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    CLEAN = 0
    CHANGED = 1
    USAGE = 2
    UNTRUSTWORTHY = 3  # determinism lost, or accuracy outside its tolerance
    NO_ANSWER = 4


class ReprodbError(Exception):
    """A problem stated for the user; the command line prints it and exits with `code`.

    `problem` names the value and what is wrong with it; `allowed` says what would be accepted;
    `remedy` is the one thing to do. `detail` carries a compiler's log or the like.
    """

    code = Exit.NO_ANSWER

    def __init__(self, problem: str, *, allowed: str = "", remedy: str = "", detail: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.allowed = allowed
        self.remedy = remedy
        self.detail = detail

    def __str__(self) -> str:
        lines = [self.problem]
        if self.allowed:
            lines.append(f"allowed: {self.allowed}")
        if self.remedy:
            lines.append(f"remedy: {self.remedy}")
        if self.detail:
            lines.append(self.detail.rstrip())
        return "\n".join(lines)


class UsageError(ReprodbError):
    """What was asked for does not exist or is malformed: an option, a manifest, a profile, a reference."""

    code = Exit.USAGE


class ToolchainError(ReprodbError):
    """A compiler is missing, broken or refused its input."""


class ExecutionError(ReprodbError):
    """A kernel could not be launched, crashed, or ran past its time limit."""


class UnsupportedError(ExecutionError):
    """The model refuses what PTX does not define; names the instruction and its line."""


class StoreError(ReprodbError):
    """The database or artifact store is damaged, foreign, locked, full or read-only."""
