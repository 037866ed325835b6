"""Two code texts side by side: aligned lines, long equal stretches folded, size bounded."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

# Equal lines kept around a difference.
CONTEXT = 3
# Lines read of each text, and rows shown of a comparison.
LINE_LIMIT = 2000
ROW_LIMIT = 160

_ADDRESS = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/|/\*\s*0x[0-9a-f]{8,}\s*\*/")
_COMMENT = re.compile(r"//.*$|/\*.*?\*/")
_REGISTER = re.compile(r"%([A-Za-z]+)\d+|\b(U?[RP])\d+\b|\$?L?_*[LB][_\w$]*\d+")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `kind` is equal, changed, removed, added, or gap (`before` then counts the hidden lines)."""

    kind: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The rows to show, the number of lines removed and added, and how many rows were cut."""

    rows: tuple[Row, ...]
    removed: int
    added: int
    cut: int
    renumbered: bool  # equal rows whose registers or labels differ by number only


def _lines(text: str) -> list[str]:
    """Instructions and directives alone: no addresses, encodings, comments or empty lines."""
    stripped = (_COMMENT.sub("", _ADDRESS.sub("", line)).rstrip() for line in text.splitlines()[:LINE_LIMIT])
    return [line.expandtabs(4) for line in stripped if line.strip()]


def _key(line: str) -> str:
    """What two lines are aligned by: the text without the numbers of registers and labels."""
    return _REGISTER.sub(lambda m: m[1] or m[2] or "L", " ".join(line.split()))


def side_by_side(before: str, after: str, limit: int = ROW_LIMIT) -> SideBySide:
    """Aligns two texts of PTX or SASS; at most `limit` rows are kept."""
    left, right = _lines(before), _lines(after)
    keys = [_key(line) for line in left], [_key(line) for line in right]
    rows: list[Row] = []
    removed = added = 0
    renumbered = False
    groups = list(SequenceMatcher(None, *keys, autojunk=False).get_grouped_opcodes(CONTEXT))
    at = 0
    for group in groups:
        rows.extend(_gap(group[0][1] - at))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows.extend(Row("equal", b, a) for b, a in zip(left[i1:i2], right[j1:j2], strict=True))
                renumbered |= left[i1:i2] != right[j1:j2]
            else:
                removed, added = removed + i2 - i1, added + j2 - j1
                rows.extend(_changed(left[i1:i2], right[j1:j2]))
        at = group[-1][2]
    rows.extend(_gap(len(left) - at))
    cut = max(0, len(rows) - limit)
    return SideBySide(tuple(rows[:limit]), removed, added, cut, renumbered)


def _gap(hidden: int) -> Iterator[Row]:
    if hidden > 0:
        yield Row("gap", f"{hidden:,} equal line" + "s" * (hidden != 1), "")


def _changed(left: list[str], right: list[str]) -> Iterator[Row]:
    for index in range(max(len(left), len(right))):
        before = left[index] if index < len(left) else ""
        after = right[index] if index < len(right) else ""
        yield Row("changed" if before and after else "removed" if before else "added", before, after)
