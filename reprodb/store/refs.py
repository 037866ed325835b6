"""Run references as people write them: `42`, `nightly-a`, `latest~1:cuda12:sum_squares_tree`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprodb.errors import UsageError

ALLOWED = "a run's number, label, uid (its first 4 characters or more), latest, latest~N or baseline"
BASELINE = "baseline"
_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
_UID_PREFIX = re.compile(r"[0-9A-Za-z-]{4,}")


@dataclass(frozen=True, slots=True)
class Parsed:
    """`name` is what stands before the first colon; `back` counts complete runs from the newest."""

    name: str
    profile: str | None
    kernel: str | None
    back: int | None = None

    @property
    def number(self) -> int | None:
        return int(self.name) if self.name.isascii() and self.name.isdigit() and len(self.name) < 16 else None

    @property
    def uid_prefix(self) -> str | None:
        return self.name if _UID_PREFIX.fullmatch(self.name) else None


def parse(text: str) -> Parsed:
    """The parts of a run reference. Raises UsageError where one is empty or there are too many."""
    name, *rest = text.split(":")
    if not name or len(rest) > 2 or not all(rest):
        raise UsageError(
            f"{text!r} is not a run reference",
            allowed=f"RUN, RUN:PROFILE or RUN:PROFILE:KERNEL; RUN is {ALLOWED}",
        )
    profile, kernel = [*rest, None, None][:2]
    latest = _LATEST.fullmatch(name)
    return Parsed(name, profile, kernel, int(latest[1] or 0) if latest else None)


def check_label(label: str) -> None:
    """Refuses a label that could not be told from another kind of reference."""
    bad = (
        not label.strip()
        or label != label.strip()
        or not label.isprintable()
        or len(label) > 200
        or ":" in label
        or label == BASELINE
        or label.startswith(("latest", "~"))
        or label.isdigit()
    )
    if bad:
        raise UsageError(
            f"{label!r} cannot be a run's label",
            allowed="up to 200 printable characters without a colon; not a number, nor latest or baseline",
        )
