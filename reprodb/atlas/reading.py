"""An atlas read back from the document that `reprodb atlas` wrote, compressed or not."""

from __future__ import annotations

import json
import lzma
from dataclasses import fields
from pathlib import Path
from typing import Any

from reprodb import codec
from reprodb.atlas.table import Atlas, Entry, Example, Move, Nearness
from reprodb.domain import Lane
from reprodb.errors import UsageError

SCHEMA = "reprodb.atlas/1"
_XZ = b"\xfd7zXZ\x00"
# Of an unpacked document: the whole atlas takes half a megabyte. A file from outside may claim anything.
_LIMIT = 64 << 20


def read(file: Path) -> Atlas:
    """The table of an `atlas.json`, or of one packed with xz. Raises UsageError for anything else."""
    document = _document(file)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        raise UsageError(
            f"{file} is no atlas: its schema is {found!r}", allowed=f"an atlas.json, of schema {SCHEMA}"
        )
    try:
        return _atlas(document)
    except Exception as error:  # whatever a foreign document provokes in cattrs
        raise UsageError(
            f"{file} is no whole atlas: {type(error).__name__} while reading it",
            allowed=f"documents of {SCHEMA}, see docs/schemas/atlas.schema.json",
        ) from error


def _document(file: Path) -> Any:
    allowed = "an atlas.json that `reprodb atlas` wrote, or one packed with xz"
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}", allowed=allowed) from error
    try:
        if data.startswith(_XZ):
            unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LIMIT * 2)
            data = unpacking.decompress(data, max_length=_LIMIT)
            if not unpacking.eof:
                raise UsageError(f"{file} is cut off, or larger than {_LIMIT >> 20} MiB", allowed=allowed)
        return json.loads(data)
    except (lzma.LZMAError, UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise UsageError(f"{file} holds no JSON: {error}", allowed=allowed) from error


def _atlas(document: dict[str, Any]) -> Atlas:
    inputs = document["inputs"]
    atlas = Atlas(
        lane=Lane(document["lane"]),
        device=document["device"],
        driver=document["driver"],
        arch=document["arch"],
        started_at=document["started_at"],
        compiler=document["compiler"],
        flags=tuple((name, tuple(options)) for name, options in document["flags"].items()),
        versions=tuple(document["versions"]),
        inputs=inputs["digest"],
        count=int(inputs["count"]),
        exact=document["exact"] is True,
        entries=tuple(_entry(entry) for entry in document["functions"]),
        complete=document.get("complete", True) is True,
    )
    words = (atlas.arch, atlas.started_at, atlas.compiler, atlas.inputs, *atlas.versions)
    words += (atlas.device or "", atlas.driver or "")
    if not all(isinstance(word, str) for word in words) or not atlas.versions:
        raise ValueError("names are text")
    if any(not 0 < move.changed <= move.of for _, move in atlas.moves):
        raise ValueError("a move has inputs that moved")
    return atlas


def _entry(data: dict[str, Any]) -> Entry:
    return codec.decode(Entry, _known(Entry, data) | {"moves": [_move(move) for move in data["moves"]]})


def _move(data: dict[str, Any]) -> dict[str, Any]:
    near = data["nearness"]
    return _known(Move, data) | {
        "example": _known(Example, data["example"]),
        "nearness": None if near is None else _known(Nearness, near),
    }


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """The keys that this version knows: within a schema's version keys are only added."""
    return {field.name: data[field.name] for field in fields(kind) if field.name in data}
