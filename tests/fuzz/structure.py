"""The lines of a bundle, spoilt as values: still canonical JSON, and named by their right digests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from tests.fuzz.mutation import one_of

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 255, 1 << 31, 1 << 63, 1 << 64, 10**30, 0.5, -0.0, 1e308, "", "x", "nan",
    "inf", "-0", "../x", "\u202e", "\x00", "x" * 300, "0" * 64, [], {}, [[]], [0] * 50,
)  # fmt: skip
_MARK = b"\x1e"  # between members; JSON and code have none


def split(data: bytes) -> dict[str, bytes]:
    """Member name → its bytes, from one text: `name NUL data` each, joined by 0x1e."""
    parts = {}
    for part in data.split(_MARK):
        name, _, body = part.partition(b"\0")
        parts[name.decode("utf-8", "replace")] = body
    return parts


def join(parts: dict[str, bytes]) -> bytes:
    return _MARK.join(name.encode() + b"\0" + body for name, body in parts.items())


def canonical(value: Any) -> str:
    """As `codec.dumps` writes it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def values_exchanged(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """The members of a bundle after one to three exchanges of values in their lines."""
    parts = split(one_of(rng, seeds))
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice([name for name in parts if name.endswith(".jsonl") and parts[name].strip()])
        lines = parts[name].decode().split("\n")[:-1]
        at = rng.randrange(len(lines))
        value = json.loads(lines[at])
        before = _key(name, value)
        exchange(rng, value)
        lines[at] = canonical(value)
        after = _key(name, value)
        if before is not None and after is not None and before != after:
            for run in [n for n in parts if n.startswith("runs/")]:
                parts[run] = parts[run].replace(before.encode(), after.encode())
            lines.sort(key=lambda line: _key(name, json.loads(line)) or "")
        parts[name] = ("\n".join(lines) + "\n").encode("utf-8", "replace")
    return join(parts)


def _key(name: str, value: Any) -> str | None:
    """The digest by which results name a line of that member; None where they do not, or none can be made."""
    from reprodb.store.write import build_key, case_key

    try:
        if name == "cases.jsonl":
            return case_key(canonical(value["kernel"]), value["input_digest"])
        if name == "builds.jsonl":
            return build_key(canonical(value["build"]), value["ptx"], value["sass"])
    except (KeyError, TypeError, AttributeError):
        return None
    return None


def exchange(rng: random.Random, value: Any) -> None:
    """Change one place in a JSON value: another value there, a key or item gone, doubled or added."""
    places = list(_places(value))
    if not places:
        return
    holder, at = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del holder[at]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(at, holder[at])
    elif kind == 1:
        holder[rng.choice(("x", "id", "", "name", str(at) + "_"))] = rng.choice(_ODD)
    elif kind in {2, 3}:
        other, there = rng.choice(places)
        holder[at] = json.loads(json.dumps(other[there]))
    elif kind in {4, 5} and isinstance(holder[at], int):
        holder[at] += rng.choice((-1, 1, 2, 1000))
    elif kind in {4, 5} and isinstance(holder[at], str) and holder[at]:
        cut = rng.randrange(len(holder[at]))
        holder[at] = holder[at][:cut] + rng.choice("0aZ/.:~ \u00e9") + holder[at][cut + rng.randrange(2) :]
    else:
        holder[at] = json.loads(json.dumps(rng.choice(_ODD)))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in it: the list or object, and index or key."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for at in keys:
            found.append((holder, at))
            if isinstance(holder[at], dict | list):
                waiting.append(holder[at])
    return found
