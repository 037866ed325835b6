"""Backups in a folder: named by when they were made, the oldest ones going when there are enough."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

_NAME = re.compile(r"reprodb-\d{8}T\d{6}\d{6}Z\.db")


def name_at(moment: datetime) -> str:
    """The name of a copy made at a moment; names sort as their times do."""
    return f"reprodb-{moment.astimezone(UTC):%Y%m%dT%H%M%S%f}Z.db"


def rotate(folder: Path, keep: int) -> tuple[Path, ...]:
    """Remove all but the newest `keep` copies; what is named otherwise stays. Returns what went."""
    copies = sorted(p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_file())
    gone = tuple(copies[: max(0, len(copies) - keep)])
    for path in gone:
        path.unlink()
    return gone
