"""A request's sources in a private folder, named so that nothing of the machine shows in what is compiled."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from reprodb.domain import BuildRequest
from reprodb.errors import UsageError

# Compilers name a source by this prefix: an absolute name that is the same in every folder, so that line
# information and `__FILE__` do not depend on where a build ran. Compilers run with the folder as their own.
PREFIX = "/proc/self/cwd/"

# File times enter the line tables of cubins.
_TIME = 1_000_000_000


def write(request: BuildRequest, folder: Path) -> str:
    """Write the files below `folder`; the source's name as the compiler is to be told it.

    Raises UsageError for a path that leaves the folder.
    """
    for file in request.files:
        name = PurePosixPath(file.path)
        if name.is_absolute() or ".." in name.parts or not name.parts:
            raise UsageError(f"source path {file.path!r} leaves the suite", allowed="paths below the suite")
        target = folder.joinpath(*name.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text, encoding="utf-8", newline="")
        os.utime(target, (_TIME, _TIME))
    return PREFIX + request.source


def relative(text: str) -> str:
    """A compiler's log or PTX with files named as the suite names them."""
    return re.sub(re.escape(PREFIX) + r"(?:[^\s\"'/]+/\.\./)*", "", text)
