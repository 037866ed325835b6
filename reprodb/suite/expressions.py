"""Sizes in manifests: whole numbers, names and their sums and products, read without evaluating code."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TOKEN = re.compile(r"\s*(?:[0-9]+|[A-Za-z_][A-Za-z0-9_]*|[+*()])")
_MOST = 200  # characters: a size is a short phrase

FORM = "a whole number, a define or n, and sums and products of these such as 'BLOCKS * 2' or '(n + 1) * 4'"


class ExpressionError(ValueError):
    """The text is no size; the message says why."""


def names_in(expression: int | str) -> tuple[str, ...]:
    """The names that a size uses, in order, each once."""
    if isinstance(expression, int):
        return ()
    return tuple(dict.fromkeys(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", expression)))


def evaluate(expression: int | str, names: Mapping[str, int]) -> int:
    """The value of a size. Raises ExpressionError for all but numbers, known names, +, * and brackets."""
    if isinstance(expression, int):
        return expression
    if len(expression) > _MOST:
        raise ExpressionError(f"longer than {_MOST} characters")
    tokens = _tokens(expression)
    value, rest = _sum(tokens, names)
    if rest:
        raise ExpressionError(f"unexpected {rest[0]!r}")
    return value


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if not match:
            raise ExpressionError(f"unexpected {stripped[at:].strip()[:1]!r}")
        tokens.append(match[0].strip())
        at = match.end()
    return tokens


def _sum(tokens: list[str], names: Mapping[str, int]) -> tuple[int, list[str]]:
    value, rest = _product(tokens, names)
    while rest and rest[0] == "+":
        term, rest = _product(rest[1:], names)
        value += term
    return value, rest


def _product(tokens: list[str], names: Mapping[str, int]) -> tuple[int, list[str]]:
    value, rest = _factor(tokens, names)
    while rest and rest[0] == "*":
        factor, rest = _factor(rest[1:], names)
        value *= factor
    return value, rest


def _factor(tokens: list[str], names: Mapping[str, int]) -> tuple[int, list[str]]:
    if not tokens:
        raise ExpressionError("something is missing at the end")
    head, rest = tokens[0], tokens[1:]
    if head == "(":
        value, rest = _sum(rest, names)
        if not rest or rest[0] != ")":
            raise ExpressionError("a bracket is not closed")
        return value, rest[1:]
    if head.isdecimal():
        return int(head), rest
    if head in names:
        return names[head], rest
    if head.isidentifier():
        raise ExpressionError(f"no define is called {head!r}")
    raise ExpressionError(f"unexpected {head!r}")
