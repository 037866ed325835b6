"""Text from outside made fit to print: invisible and steering characters shown, length bounded."""

import re
from datetime import UTC, datetime
from unicodedata import category

# Controls, marks and overrides of writing direction, zero-width and separator characters, lone surrogates,
# private characters: each can hide or reorder what a reader sees, or steer a terminal.
_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Not allowed in XML, whatever they are.
_NONCHARACTERS = "\ufffe\uffff"
NAME_LIMIT = 120
LINE_LIMIT = 400


def _shown(match: re.Match[str]) -> str:
    character = match.group()
    steers = category(character) in _STEERING or character in _NONCHARACTERS
    return f"⟨U+{ord(character):04X}⟩" if steers else character


def visible(text: str, limit: int = LINE_LIMIT) -> str:
    """One line of at most `limit` characters and a count of what was cut; steering characters spelled out.

    Tabs and line breaks become single spaces.
    """
    cut = len(text) - limit
    head = re.sub(r"[\t\r\n]+", " ", text[:limit])
    shown = re.sub(r"[^\x20-\x7e]", _shown, head)
    return f"{shown} … (+{cut:,} characters)" if cut > 0 else shown


def name(text: str) -> str:
    """A name (kernel, profile, case, label) fit to print."""
    return visible(text, NAME_LIMIT)


def lines(text: str, count: int = 40, width: int = LINE_LIMIT) -> tuple[str, ...]:
    """The first `count` lines of a log or note, each made visible; a last line counts what was cut."""
    every = text.splitlines()
    kept = tuple(visible(line.expandtabs(4), width) for line in every[:count])
    return kept if len(every) <= count else (*kept, f"… (+{len(every) - count:,} lines)")


def shown_lines(text: str) -> str:
    """A whole text, line by line as it stands, steering characters spelled out."""
    return "".join(visible(line.expandtabs(8), len(line) * 8 + 1) + "\n" for line in text.splitlines())


def utc(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC to the second with a `Z`; a time without a zone is UTC already."""
    if moment is None:
        return None
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.strftime("%Y-%m-%dT%H:%M:%SZ")


def when(moment: datetime | None) -> str:
    """A time as people read it: `2026-03-03 04:30 UTC`."""
    text = utc(moment)
    return f"{text[:10]} {text[11:16]} UTC" if text else ""


def count(n: int, singular: str, plural: str = "") -> str:
    """`1 pattern`, `9 patterns`, `4,194,915 elements`."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def joined(words: tuple[str, ...] | list[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def ranges(indices: tuple[int, ...], limit: int = 512) -> str:
    """Sorted indices as runs, at most `limit` of them: `5, 17, 40–43 … (+12 more)`."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    shown = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs[:limit])
    return shown if len(runs) <= limit else f"{shown} … (+{len(runs) - limit:,} more)"


def sentence(text: str) -> str:
    """A phrase as a sentence: a capital first, unless that is an identifier, and a full stop last."""
    first = text.split(" ", 1)[0]
    return full_stop(text if re.search(r"[_\d/]", first) else text[:1].upper() + text[1:])


def full_stop(text: str) -> str:
    return text if not text or text.endswith((".", "!", "?")) else text + "."
