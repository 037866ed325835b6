"""Words of commands with placeholders: `{source}`, `{input:x}`. No shell, no expression, no nesting. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_PLACE = re.compile(r"\{([a-z_]+)(?::([^{}]+))?\}")

# What a build command may use, and what a run command may.
BUILD = ("source", "folder", "out", "python", "nvcc", "arch", "flags", "cccl", "define")
RUN = ("source", "folder", "out", "python", "n", "repetitions", "input", "npy", "output", "define")
# Those that take a name after a colon.
NAMED = ("input", "npy", "output", "define")
# With these a program is another one under every profile of nvcc.
COMPILER = ("nvcc", "arch", "flags")

Values = Mapping[str, str | tuple[str, ...]]


def used(words: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The placeholders in words, as (place, name), each once; the name is empty where there is none."""
    return tuple(dict.fromkeys((m[1], m[2] or "") for word in words for m in _PLACE.finditer(word)))


def filled(words: Iterable[str], values: Values) -> list[str]:
    """Words with their placeholders replaced by `values["input:x"]`.

    A value of several words stands for a whole word alone. Raises KeyError for a placeholder without a value.
    """
    found: list[str] = []
    for word in words:
        whole = _PLACE.fullmatch(word)
        value = values[_key(whole)] if whole else ""
        if whole and isinstance(value, tuple):
            found += value
        else:
            found.append(_PLACE.sub(lambda match: _text(values[_key(match)]), word))
    return found


def _key(match: re.Match[str]) -> str:
    return f"{match[1]}:{match[2]}" if match[2] else match[1]


def _text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value)
