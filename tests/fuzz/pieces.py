"""Small texts of PTX and SASS cut from large ones: few lines each, together every instruction once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

LINES = 6  # of instructions in a piece

_PTX_ENTRY = re.compile(r"^\.(?:visible )?\.?entry [^{]*?\)[^{]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_PTX_OPCODE = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)")
_PTX_DECLARES = re.compile(r"^\s*\.(?:reg|shared|local)\b")
_PTX_BRANCHES = re.compile(r"^\s*(?:\$\w+:|(?:@!?%\w+\s+)?(?:bra|brx|call|ret)\b)|[{}]\s*$")
_SASS_SECTION = re.compile(r"^\t\.section\t(\S+?),", re.MULTILINE)
_SASS_OPCODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)")


def _windows(lines: Sequence[str], opcode: re.Pattern[str], seen: set[str]) -> list[list[str]]:
    """Stretches of lines, each with an instruction that no stretch before it holds."""
    found = []
    for start in range(0, len(lines), LINES):
        part = list(lines[start : start + LINES])
        new = {match[1] for line in part if (match := opcode.match(line))} - seen
        if new:
            seen |= new
            found.append(part)
    return found


def ptx_pieces(texts: Iterable[str]) -> tuple[str, ...]:
    """Modules of one function each: the head and declarations of a whole one, a stretch of its body."""
    seen: set[str] = set()
    pieces = []
    for text in texts:
        header = "\n".join(re.findall(r"^\.(?:version|target|address_size)\b.*", text, re.MULTILINE))
        for function in _PTX_ENTRY.finditer(text):
            head = function[0][: function[0].index("{") + 1]
            lines = function[1].splitlines()
            declared = [line for line in lines if _PTX_DECLARES.match(line)]
            body = [
                line
                for line in lines
                if line.strip() and line not in declared and not _PTX_BRANCHES.search(line)
            ]
            for part in _windows(body, _PTX_OPCODE, seen):
                pieces.append("\n".join((header, head, *declared, *part, "\tret;", "}", "")))
    return tuple(pieces)


def sass_pieces(texts: Iterable[str]) -> tuple[str, ...]:
    """Disassembled code: a stretch of a function under the head of its section, or a section of data."""
    seen: set[str] = set()
    kinds: set[str] = set()
    pieces = []
    for text in texts:
        starts = [(match.start(), match[1]) for match in _SASS_SECTION.finditer(text)]
        for (start, name), (end, _) in zip(starts, [*starts[1:], (len(text), "")], strict=True):
            lines = text[start:end].splitlines()
            if name.startswith(".text."):
                entry = name.removeprefix(".text.")
                body = [line for line in lines if "/*" in line or line.startswith(".L_")]
                for part in _windows(body, _SASS_OPCODE, seen):
                    pieces.append("\n".join((lines[0], f"{entry}:", f"{name}:", *part, "")))
            elif (kind := ".".join(name.split(".")[:3])) not in kinds:
                kinds.add(kind)
                pieces.append("\n".join((*lines[:40], "")))
    return tuple(pieces)
