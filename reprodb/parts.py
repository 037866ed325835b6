"""One function's part of a unit's code: its PTX with all that it needs, and digests of its own code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from reprodb import codegen
from reprodb.digest import content_key

_DEFINED = re.compile(r"\.(?:global|const|shared)\b[^=;({]*?([%$A-Za-z_][\w$]*)\s*(?:\[|=|;)")
_WORD = re.compile(r"[%$A-Za-z_][\w$]*")
_ADDRESS_TABLE = re.compile(r"c\[0x4\]\[0x[0-9a-f]+\]")
_MODULE_DATA = re.compile(r"^\.nv\.constant\d+\.")


@dataclass(frozen=True, slots=True)
class PtxPart:
    """A function with the functions it calls and the variables it names. `text` is a unit of its own."""

    text: str
    digest: str  # of the normalised text; the same function in another unit has the same
    variables: str  # the variables that it reads, normalised


@dataclass(frozen=True, slots=True)
class _Item:
    name: str
    text: str
    function: bool
    words: frozenset[str]


def ptx_texts(text: str) -> dict[str, str]:
    """Every `__global__` function of a unit as a unit of its own."""
    header = "\n".join(codegen.ptx_header(text))
    return {name: _unit(header, items) for name, items in _closures(text).items()}


def ptx_parts(text: str) -> dict[str, PtxPart]:
    """The same with digests."""
    header = "\n".join(codegen.ptx_header(text))
    normal: dict[_Item, str] = {}
    parts = {}
    for name, items in _closures(text).items():
        normal |= {item: codegen.normalise_ptx(item.text) for item in items if item not in normal}
        parts[name] = PtxPart(
            text=_unit(header, items),
            digest=content_key("reprodb.ptx.function/1", *sorted(normal[item] for item in items)),
            variables="".join(sorted(normal[item] for item in items if not item.function)),
        )
    return parts


def _unit(header: str, items: Iterable[_Item]) -> str:
    return "\n".join((header, *(item.text for item in items))) + "\n"


def _closures(text: str) -> dict[str, tuple[_Item, ...]]:
    """What each `__global__` function needs, itself included, in the unit's order."""
    order = tuple(_items(codegen.ptx_clean(text)))
    by_name: dict[str, list[_Item]] = {}
    for item in order:
        by_name.setdefault(item.name, []).append(item)
    closures = {}
    for item in order:
        if ".entry" in item.text.split("(", 1)[0]:
            needed = _closure(item.name, by_name)
            closures[item.name] = tuple(other for other in order if other.name in needed)
    return closures


def _items(clean: str) -> Iterator[_Item]:
    for head, body in codegen.ptx_items(clean):
        text = (head + body.translate(codegen.VECTOR_BACK)).strip()
        name = _name(head)
        if name:
            yield _Item(name, text, "(" in head.split("=", 1)[0], frozenset(_WORD.findall(text)))


def _name(head: str) -> str:
    declared = head.split("=", 1)[0]
    functions = codegen.PTX_NAME.findall(declared)
    if functions and re.search(r"\.(?:entry|func)\b", declared):
        return str(functions[-1])
    match = _DEFINED.search(head)
    return match[1] if match else ""


def _closure(name: str, items: Mapping[str, list[_Item]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += [word for item in items[one] for word in item.words if word in items]
    return seen


def sass_digests(sass: str, ptx: Mapping[str, PtxPart]) -> dict[str, str]:
    """A digest of the normalised instructions of every function, its own constants and the tables it reads.

    Where a table's address lies among the unit's others says nothing about the function, and is left out.
    """
    constants: dict[str, list[str]] = {}
    for section in codegen.constants(sass).split("\n.nv."):
        name, _, data = ("." * (not section.startswith(".")) + section).partition("\n")
        constants.setdefault(name.rsplit(".", 1)[-1], []).append(data)
    digests = {}
    for part in re.split(r"^\.text ", codegen.normalise_sass(sass), flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        known = ptx.get(name)
        digests[name] = content_key(
            "reprodb.sass.function/1",
            _ADDRESS_TABLE.sub("c[0x4]", body),
            *constants.get(name, []),
            known.variables if known else "",
            *(codegen.nan_literals(known.text, body) if known else ()),
        )
    return digests
