"""The `extern "C" __global__` functions of a CUDA source, read as text: names, parameters, bodies. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from reprodb.errors import UsageError

# C's types as a manifest names them. `long` has 64 bits: only Linux is meant here.
DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "__half": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "bool": "uint8",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8",
    "short": "int16", "unsigned short": "uint16", "int": "int32", "unsigned int": "uint32",
    "unsigned": "uint32", "long": "int64", "unsigned long": "uint64", "long long": "int64",
    "unsigned long long": "uint64", "size_t": "uint64", "ptrdiff_t": "int64", "uchar": "uint8",
    "ushort": "uint16", "uint": "uint32", "ulong": "uint64",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|std::)\b|std::"
)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
LONGEST_NAME = 100
MOST_CHARACTERS = 1 << 20
MOST_PARAMETERS = 256


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `dtype` of the value or of what it points to."""

    name: str
    dtype: str
    pointer: bool
    constant: bool  # points to what the function does not write


@dataclass(frozen=True, slots=True)
class Signature:
    """A `__global__` function. `body` is its text between the braces, without comments."""

    entry: str
    parameters: tuple[Parameter, ...]
    body: str
    threads: int | None = None  # of __launch_bounds__, where it is a number


def read_signatures(text: str, source: str) -> tuple[Signature, ...]:
    """The functions that a stage can name, in the order of the text.

    Raises UsageError where there is none, or where a parameter's type has no name in a manifest.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{source} is too long", allowed=f"at most {MOST_CHARACTERS} characters")
    plain, directives = _without_directives(without_comments(text))
    found, mangled = [], []
    for match in re.finditer(r"\b__global__\b", plain):
        head = _head(plain, match.end())
        if head is None:
            continue
        name, opening, threads = head
        closing = _closing(plain, opening, "()")
        after = re.compile(r"\s*").match(plain, closing + 1)
        start = after.end() if after else closing + 1
        if plain[start : start + 1] != "{":
            continue  # a declaration
        if not _is_c(plain, match.start()):
            mangled.append(name)
            continue
        parameters = tuple(_parameters(plain[opening + 1 : closing], name, source))
        if len(parameters) > MOST_PARAMETERS:
            raise UsageError(
                f"{source}: {name} has {len(parameters)} parameters", allowed=f"{MOST_PARAMETERS}"
            )
        found.append(Signature(name, parameters, plain[start + 1 : _closing(plain, start, "{}")], threads))
    if not found:
        others = f": {', '.join(mangled)} are C++" if mangled else ""
        remedy = 'put extern "C" before __global__, so that a stage can name the function'
        if not mangled and "__global__" in directives:
            others = ": __global__ stands in a macro, which is not expanded here"
            remedy = "write one function out, or the manifest by hand: docs/suites.md"
        raise UsageError(
            f'{source} has no extern "C" __global__ function{others}',
            allowed='extern "C" __global__ void name(…) { … }',
            remedy=remedy,
        )
    return tuple(found)


_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\r?\n)*[^\n]*", re.MULTILINE)


def _without_directives(text: str) -> tuple[str, str]:
    """The text with preprocessor lines as spaces, all lines where they were; and those lines."""
    found: list[str] = []

    def blank(match: re.Match[str]) -> str:
        found.append(match[0])
        return re.sub(r"[^\n]", " ", match[0])

    return _DIRECTIVE.sub(blank, text), "\n".join(found)


def without_comments(text: str) -> str:
    """The text with comments as spaces and what stands in quotes as it is, all lines where they were."""

    def blank(match: re.Match[str]) -> str:
        part = match[0]
        return part if part[0] in "\"'" else re.sub(r"[^\n]", " ", part)

    return re.sub(
        r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S
    )


def _head(text: str, at: int) -> tuple[str, int, int | None] | None:
    """The function's name, the place of its parameters' parenthesis, and its launch bound."""
    threads = None
    while True:
        found = re.compile(r"[\s*&]*([A-Za-z_]\w*)\s*(\(?)", re.ASCII).match(text, at)
        if found is None or len(found[1]) > LONGEST_NAME:
            return None
        name, opens = found.groups()
        if not opens:
            at = found.end()
        elif name == "__launch_bounds__":
            end = _closing(text, found.end() - 1, "()")
            bound = text[found.end() : end].partition(",")[0].strip()
            threads = int(bound) if re.fullmatch(r"[0-9]{1,4}", bound) else None
            at = end + 1
        else:
            return name, found.end() - 1, threads


def _closing(text: str, opening: int, pair: str) -> int:
    """Where what opens at `opening` closes; the end of the text where it does not."""
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(text, opening):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.start()
    return len(text)


def _is_c(text: str, at: int) -> bool:
    """Whether what is declared at a place has a plain name: by its own `extern "C"` or by a block of it."""
    start = max(text.rfind(mark, 0, at) for mark in ";{}") + 1
    line = text[start:at]
    if re.search(r"\btemplate\b", line):
        return False
    if re.search(r'\bextern\s*"C"', line):
        return True
    blocks = re.finditer(r'\bextern\s*"C"\s*\{', text[:at])
    return any(_closing(text, block.end() - 1, "{}") > at for block in blocks)


def _parameters(text: str, entry: str, source: str) -> Iterator[Parameter]:
    for part in text.split(","):
        words = part.strip()
        if not words or words == "void":
            continue
        constant = re.search(r"\bconst\b", words.split("*")[0]) is not None
        pointers = words.count("*") + words.count("[")
        plain = _QUALIFIERS.sub(" ", re.sub(r"\[[^\]]*\]|[*&]", " ", words))
        *kind, name = _WORD.findall(plain) or [""]
        dtype = DTYPES.get(" ".join(kind))
        if dtype is None or pointers > 1 or not 0 < len(name) <= LONGEST_NAME:
            raise UsageError(
                f"{source}: {entry} has the parameter {words[:200]!r}, which no manifest can pass",
                allowed=f"one of {', '.join(DTYPES)}, or a pointer to one",
                remedy="write the manifest by hand where a struct is meant: docs/suites.md",
            )
        yield Parameter(name, dtype, pointers == 1, constant)
