"""One function's part of a unit's code: its PTX with all that it needs, and digests of its own code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


def ptx_parts(text: str) -> dict[str, PtxPart]:
    """Every `__global__` function of a unit, on its own."""
    clean = codegen.ptx_clean(text)
    header = "\n".join(codegen.ptx_header(text))
    items: dict[str, list[_Item]] = {}
    order: list[_Item] = []
    for item in _items(clean):
        items.setdefault(item.name, []).append(item)
        order.append(item)
    normal = {item: codegen.normalise_ptx(item.text) for item in order}
    parts = {}
    for item in order:
        if ".entry" not in item.text.split("(", 1)[0]:
            continue
        needed = _closure(item.name, items)
        mine = [i for i in order if i.name in needed]
        variables = "".join(sorted(normal[i] for i in mine if not i.function))
        parts[item.name] = PtxPart(
            text=header + "\n" + "\n".join(i.text for i in mine) + "\n",
            digest=content_key("reprodb.ptx.function/1", *(sorted(normal[i] for i in mine))),
            variables=variables,
        )
    return parts


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
