"""pip as the way to NVIDIA's wheels: what is published, and laying wheels into a folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from packaging.version import Version

from reprodb.errors import ToolchainError
from reprodb.toolchains.process import Finished, Runner, run

_LIST_SECONDS = 120.0
_DOWNLOAD_SECONDS = 1800.0

# What pip says when it reached nobody; a package that does not exist is told otherwise.
_NO_NETWORK = re.compile(
    r"Failed to establish a new connection|NameResolutionError|Temporary failure in name resolution"
    r"|Network is unreachable|Connection refused|Max retries exceeded|ConnectTimeout|ProxyError|Retrying \("
)


class Registry:
    """pip of this Python, with the user's own configuration (index, proxy, constraints)."""

    def __init__(self, runner: Runner = run, environ: Mapping[str, str] = os.environ) -> None:
        self._run = runner
        self._environ = environ

    def published(self, package: str) -> tuple[Version, ...]:
        """Every version of a package that has a wheel for this machine, newest first.

        Raises ToolchainError without pip, without network, or for a package that nobody publishes.
        """
        done = self._pip(["index", "versions", "--only-binary=:all:", package], _LIST_SECONDS)
        listed = re.search(r"^Available versions: (.+)$", done.log, re.MULTILINE)
        if done.ok and listed:
            return tuple(sorted((Version(text.strip()) for text in listed[1].split(",")), reverse=True))
        self._raise_if_unreachable(done)
        raise ToolchainError(f"no wheel of {package} is published for this machine", detail=done.log)

    def install(self, wheels: Sequence[tuple[str, Version]], folder: Path) -> None:
        """Lay wheels below a folder, without what they depend on. Raises ToolchainError if that fails."""
        pinned = [f"{package}=={version}" for package, version in wheels]
        arguments = ["install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-compile", "--target"]
        done = self._pip([*arguments, str(folder), *pinned], _DOWNLOAD_SECONDS)
        if not done.ok:
            self._raise_if_unreachable(done)
            raise ToolchainError(f"pip could not install {' '.join(pinned)}", detail=done.log)

    def _pip(self, arguments: Sequence[str], seconds: float) -> Finished:
        quiet = ["--disable-pip-version-check", "--no-input", "--retries", "1"]
        command = [sys.executable, "-m", "pip", *arguments, *quiet]
        # pip is no compiler: it keeps the user's environment, where proxies and indexes are named.
        done = self._run(command, Path("/"), self._environ, seconds)
        if not done.ok and "No module named pip" in done.log:
            raise ToolchainError(
                f"this Python has no pip: {sys.executable}",
                remedy="python -m ensurepip (or: uv pip install pip), then try again",
            )
        if done.timed_out:
            raise ToolchainError("pip ran past its time limit", detail=done.log)
        return done

    def _raise_if_unreachable(self, done: Finished) -> None:
        if _NO_NETWORK.search(done.log):
            raise ToolchainError(
                "the package index cannot be reached",
                remedy="check the network, or carry artifacts here instead: reprodb build --pack FILE "
                "on a machine with a network",
                detail=done.log,
            )


@cache
def minor_of(version: Version) -> tuple[int, int]:
    """The CUDA release that a wheel belongs to; CCCL's from CUDA 13.3 on put a number of its own between."""
    release = version.release
    return (release[0], release[2] if len(release) == 5 else release[1])
