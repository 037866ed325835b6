"""The `defines` of a manifest's table: text for the compiler, and the whole numbers among them."""

from __future__ import annotations

from reprodb.domain import Pairs
from reprodb.suite.tables import IDENTIFIER_FORM, Problem, Table, is_identifier, shown


def read_defines(head: Table) -> tuple[Pairs, dict[str, int]]:
    """Defines as text for the compiler, sorted by name, and the whole numbers among them."""
    pairs, numbers = {}, {}
    for key, value in head.table("defines").items():
        if not is_identifier(key) or key == "n" or key.startswith("__"):
            raise Problem(head.where, f"define {key!r}", f"{IDENTIFIER_FORM}; not n, and no __ at its start")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise Problem(
                head.where, f"define {key} = {shown(value)}", "a number or a string; 1 and 0 for flags"
            )
        if isinstance(value, str) and not (value.isprintable() and len(value) <= 400):
            raise Problem(head.where, f"define {key} = {shown(value)}", "one line of text")
        if isinstance(value, int) and abs(value) >= 1 << 64:
            raise Problem(head.where, f"define {key} = {shown(value)}", "at most 64 bits")
        pairs[key] = str(value)
        if isinstance(value, int):
            numbers[key] = value
    return tuple(sorted(pairs.items())), numbers
