"""Where reprodb keeps what it downloads and learns: one cache folder of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """REPRODB_CACHE, else `reprodb` under XDG_CACHE_HOME, else under ~/.cache."""
    if named := environ.get("REPRODB_CACHE"):
        return Path(named).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "reprodb"


def toolchains_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """One folder an installed toolchain: `nvrtc-12.9.86`, `nvcc-12.4.131`."""
    return cache_folder(environ) / "toolchains"
