"""Typed reading of one TOML table: each wrong key or value becomes a problem that names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeGuard, TypeVar

from reprodb.suite.expressions import FORM

E = TypeVar("E")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_FORM = "letters, digits, '.', '_' and '-', a letter or digit first, at most 100 characters"
IDENTIFIER_FORM = "a C identifier"
LONGEST_NAME = 100
LONGEST_TEXT = 400


@dataclass(eq=False, slots=True)  # not frozen: Python itself sets an exception's traceback
class Problem(Exception):
    """One thing wrong with a manifest: where, what, what is allowed, and what to do."""

    where: str  # kernels/sum/kernel.toml: [[stage]] 1
    what: str
    allowed: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.what}"]
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if self.remedy:
            parts.append(self.remedy)
        return "; ".join(parts)


@contextmanager
def collecting(problems: list[Problem]) -> Iterator[None]:
    """Keep a problem of the body and go on after it, so that one error names everything wrong."""
    try:
        yield
    except Problem as problem:
        problems.append(problem)


def suggest(name: object, known: Iterable[str]) -> str:
    """The nearest known name as a remedy, or nothing where none is near."""
    close = get_close_matches(name, list(known), 1, 0.5) if isinstance(name, str) else []
    return f"did you mean {close[0]!r}?" if close else ""


def shown(value: object) -> str:
    """A value as a problem names it: short, control characters escaped."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no whole number of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(slots=True)
class Table:
    """A TOML table being read. `allowed` are all its keys; `required` must be there."""

    where: str
    data: Mapping[str, Any]
    problems: list[Problem] = field(default_factory=list)

    def expect(self, required: Iterable[str], optional: Iterable[str] = ()) -> None:
        """Note unknown keys, with the nearest known one, and missing keys."""
        required = tuple(required)
        known = (*required, *optional)
        for key in self.data:
            if key not in known:
                self.problems.append(
                    Problem(
                        self.where,
                        f"unknown key {key!r} = {shown(self.data[key])}",
                        ", ".join(known),
                        suggest(key, known),
                    )
                )
        for key in required:
            if key not in self.data:
                self.problems.append(Problem(self.where, f"missing key {key!r}", ", ".join(known)))

    def wrong(self, key: str, allowed: str, remedy: str = "") -> Problem:
        """The problem that this key's value is not allowed."""
        if key not in self.data:
            return Problem(self.where, f"missing key {key!r}", allowed, remedy)
        return Problem(self.where, f"{key} = {shown(self.data[key])}", allowed, remedy)

    def text(self, key: str, default: str = "", longest: int = LONGEST_TEXT) -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str) or len(value) > longest or not value.isprintable():
            raise self.wrong(key, f"one line of text, at most {longest} characters")
        if not value and key not in self.data:
            raise self.wrong(key, "text")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self.data else None

    def name(self, key: str) -> str:
        value = self.data.get(key)
        if not is_name(value):
            raise self.wrong(key, NAME_FORM)
        return str(value)

    def identifier(self, key: str) -> str:
        value = self.data.get(key)
        if not is_identifier(value):
            raise self.wrong(key, IDENTIFIER_FORM)
        return str(value)

    def choice(self, key: str, options: Iterable[str]) -> str:
        options = tuple(options)
        value = self.data.get(key)
        if value not in options:
            raise self.wrong(key, ", ".join(options), suggest(value, options))
        return str(value)

    def enum(self, key: str, kind: Callable[[str], E], options: Iterable[str]) -> E:
        return kind(self.choice(key, options))

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v.isprintable() for v in value):
            raise self.wrong(key, "a list of strings")
        return tuple(value)

    def table(self, key: str) -> dict[str, Any]:
        value = self.data.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "a table")
        return value

    def size(self, key: str, default: int | None = None) -> int | str:
        value = self.data.get(key, default)
        if not is_size(value):
            raise self.wrong(key, FORM)
        return value


def is_size(value: object) -> TypeGuard[int | str]:
    """Whether a value could be a size: text, or a whole number of 64 bits."""
    if isinstance(value, str):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME and NAME.fullmatch(value) is not None


def is_identifier(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME and IDENTIFIER.fullmatch(value) is not None
