"""FACTOR * x, one multiplication an element."""

from typing import Any


def scaled(arrays: dict[str, Any], context: Any) -> Any:
    x = arrays["x"]
    return x * x.dtype.type(context.defines["FACTOR"])
