"""TOML: values as text, for the files that reprodb writes and people review; and texts from outside, read."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any


class NotTomlError(ValueError):
    """A text is no TOML, or nobody's TOML: says why in a phrase."""


def read(text: str) -> dict[str, Any]:
    """The tables of a text. Raises NotTomlError, whatever the text is."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotTomlError(str(error)) from None
    except ValueError:
        raise NotTomlError("a number of thousands of digits") from None
    except RecursionError:
        raise NotTomlError("it is nested too deeply") from None


def boolean(value: bool) -> str:
    return "true" if value else "false"


def string(value: str) -> str:
    """A basic string; what it cannot hold as it is, escaped."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def strings(values: Iterable[str]) -> str:
    return "[" + ", ".join(string(v) for v in values) + "]"


def inline(table: Mapping[str, str]) -> str:
    """An inline table of strings, keys quoted."""
    return "{ " + ", ".join(f"{string(k)} = {string(v)}" for k, v in table.items()) + " }" if table else "{}"
