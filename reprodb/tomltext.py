"""TOML values as text, for the files that reprodb writes and people review."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


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
