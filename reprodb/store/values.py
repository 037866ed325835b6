"""What the database says beyond the nouns: run references, references of scopes, blessings. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reprodb.domain import Result, Scope


@dataclass(frozen=True, slots=True)
class RunRef:
    """A resolved run reference. `run_id` is None for `baseline`, the composite of each row's reference."""

    run_id: int | None
    profile: str | None = None
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """What a nightly compares a row with. `kind` is `blessed` or `accepted`."""

    run_id: int
    result: Result
    kind: str


@dataclass(frozen=True, slots=True)
class Blessing:
    """A recorded decision that a result's bits are the baseline of its scope. Times are UTC."""

    id: int
    scope: Scope
    run_id: int
    run_uid: str
    result_id: int
    who: str
    why: str
    when: datetime
    changed: str = ""  # what changed, in words
    expires: datetime | None = None
    withdrawn_at: datetime | None = None
    withdrawn_by: str = ""
    withdrawn_why: str = ""

    def active(self, at: datetime) -> bool:
        """Whether the decision counts at that time."""
        ended = [end for end in (self.expires, self.withdrawn_at) if end is not None]
        return self.when <= at and all(at < end for end in ended)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning took out, or would take out: run ids, and counts of what they alone held."""

    runs: tuple[int, ...]
    protected: tuple[int, ...]  # old enough, but blessed or a reference
    results: int
    patterns: int
