"""Two texts beside each other: which lines belong together, and which stretches show a difference. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

# From so many lines on, those that stand everywhere no longer anchor a match: it would take too long.
_MANY = 4000


@dataclass(frozen=True, slots=True)
class Line:
    """One line of both sides: ` ` equal, `|` other, `<` only before, `>` only after."""

    mark: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines that stand together; `skipped` equal lines before them are left out."""

    skipped: int
    lines: tuple[Line, ...]


def side_by_side(before: Sequence[str], after: Sequence[str]) -> tuple[Line, ...]:
    """All lines of both texts in order."""
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    lines = [Line(" ", line, line) for line in before[:start]]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > _MANY)
    for tag, a, b, c, d in matcher.get_opcodes():
        both = min(b - a, d - c)
        mark = " " if tag == "equal" else "|"
        lines += [Line(mark, x, y) for x, y in zip(old[a : a + both], new[c : c + both], strict=True)]
        lines += [Line("<", x, None) for x in old[a + both : b]]
        lines += [Line(">", None, y) for y in new[c + both : d]]
    lines += [Line(" ", line, line) for line in before[len(before) - end :]]
    return tuple(lines)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two texts have in common from their start."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def stretches(lines: Sequence[Line], context: int = 3) -> tuple[Stretch, ...]:
    """The lines that differ, with `context` equal ones around; nothing where nothing differs."""
    shown = [False] * len(lines)
    for at, line in enumerate(lines):
        if line.mark != " ":
            for near in range(max(0, at - context), min(len(lines), at + context + 1)):
                shown[near] = True
    found: list[Stretch] = []
    run: list[Line] = []
    skipped = 0
    for line, show in zip(lines, shown, strict=True):
        if show:
            run.append(line)
            continue
        if run:
            found.append(Stretch(skipped, tuple(run)))
            run, skipped = [], 0
        skipped += 1
    return (*found, Stretch(skipped, tuple(run))) if run else tuple(found)
