"""What ptxas fuses behind the PTX's back: bare multiplications that feed bare additions."""

from __future__ import annotations

from reprodb.domain import Code
from reprodb.executors.model.ptx import Module


def reconcile(
    module: Module, code: Code | None, options: tuple[str, ...], entries: tuple[str, ...]
) -> tuple[Module, tuple[str, ...]]:
    return module, ()
