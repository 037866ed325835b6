"""The model: PTX executed on the CPU, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reprodb.executors.model.engine import ModelExecutor

__all__ = ["ModelExecutor"]


def __getattr__(name: str) -> Any:
    """`ModelExecutor`, imported when it is asked for: NumPy and the engine take time to load."""
    if name != "ModelExecutor":
        raise AttributeError(name)
    from reprodb.executors.model.engine import ModelExecutor

    return ModelExecutor
