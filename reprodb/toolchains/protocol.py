"""What a compiler is to the rest of reprodb: options for a profile, and one compilation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reprodb.domain import BuildRequest, Pairs, Profile, Toolchain


@dataclass(frozen=True, slots=True)
class CompileOutput:
    """What a compiler made. A failed step leaves its text None; `log` is what the compiler said."""

    ok: bool
    ptx: str | None
    cubin: bytes | None
    log: str


class Compiler(Protocol):
    """One compiler family. Implementations hold no state; a toolchain says which installation is meant."""

    def options(self, profile: Profile, arch: str, defines: Pairs, toolchain: Toolchain) -> tuple[str, ...]:
        """The full option list, resolved: all that the compiler is told but for the names of files."""
        ...

    def compile(self, request: BuildRequest, folder: Path) -> CompileOutput:
        """Compile a request inside an empty private folder. A refused source is an output, not an error.

        Raises ToolchainError where the compiler itself is missing or broken.
        """
        ...
