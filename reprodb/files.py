"""Files that are there whole or not at all, and devices that stay what they are."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


def put_in_place(new: Path, path: Path) -> None:
    """Move a finished file to where it belongs, in one step.

    A device or pipe there (`/dev/null`, `/dev/stdout`) gets the bytes and stays: root could replace it, and
    every program on the machine would miss it. Raises OSError.
    """
    if path.exists() and not path.is_file():
        with new.open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        new.unlink()
    else:
        new.replace(path)


def replace_file(path: Path, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Put `data` in the place of a file in one step; raises OSError and leaves what was there.

    `durable` waits until the disk has it.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(name).chmod(mode)
        put_in_place(Path(name), path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def keep_file(path: Path, data: bytes) -> None:
    """Put `data` into a cache of this user in one step: what cannot be written costs time, no more."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, mode=0o600, durable=False)
