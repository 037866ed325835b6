"""Whether a folder takes reports, found out before a night is spent on what could not be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def unwritable(folder: Path) -> str:
    """Why no file can be made in a folder that is there or will be; "" where one can."""
    nearest = folder.absolute()
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest if nearest != folder.absolute() else folder} is no folder"
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def check_reports(folder: Path) -> None:
    """Raises StoreError where no report could be written."""
    from reprodb.errors import StoreError

    why = unwritable(folder)
    if why:
        raise StoreError(
            f"no report can be written to {folder}: {why}", remedy="name another folder with --out"
        )
