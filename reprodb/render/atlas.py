"""The atlas as lines, as a Markdown page, and as the document `reprodb.atlas/1`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reprodb.atlas.table import Atlas, Entry, Example, Move, Word
from reprodb.render.text import count, joined, visible

SCHEMA = "reprodb.atlas/1"


def short(version: str) -> str:
    """The release of a version: `12.9` of `12.9.86`."""
    return ".".join(version.split(".")[:2])


def step(move: Move) -> str:
    return f"{short(move.before)} → {short(move.after)}"


def share(move: Move) -> str:
    """How many inputs moved: `12,345 of 65,536 (18.8 %)`."""
    part = 100 * move.changed / move.of
    return (
        f"{move.changed:,} of {move.of:,} ({part:.2g} %)"
        if part < 10
        else (f"{move.changed:,} of {move.of:,} ({part:.0f} %)")
    )


def distance(move: Move) -> str:
    if move.max_ulp is None:
        return "NaN" if move.nans else "-"
    return f"{move.max_ulp:,} ULP" if move.max_ulp < 10**7 else f"{move.max_ulp:.1e} ULP"


def value(word: Word) -> str:
    return f"{word.value:.9g}" if isinstance(word.value, float) else str(word.value)


def call(entry: Entry, example: Example) -> str:
    """`atan2f(0xc6e908bc, 0x48ae5d6c)`."""
    return f"{entry.function}({', '.join(word.bits for word in example.arguments)})"


def nearer(move: Move) -> str:
    """Which side is nearer the exact value, in words."""
    near = move.nearness
    if near is None or not near.looked_at:
        return "not known"
    ties = near.looked_at - near.before - near.after
    side = "neither" if near.before == near.after else "after" if near.after > near.before else "before"
    shares = f"{near.after} after, {near.before} before" + (f", {ties} neither" if ties else "")
    return f"{side} ({shares}; worst {near.before_error:.3g} → {near.after_error:.3g} ULP)"


def lines(atlas: Atlas, *, quiet: bool = False) -> Iterator[str]:
    """What people read: a line a move, flags by flags and step by step; then what moved in code only."""
    yield headline(atlas)
    if quiet:
        return
    for flags, _ in atlas.flags:
        entries = [entry for entry in atlas.entries if entry.flags == flags]
        yield ""
        yield f"{flags}:"
        moved = [(entry, move) for entry in entries for move in entry.moves]
        for before, after in steps(atlas):
            here = [(e, m) for e, m in moved if m.before == before and m.after == after]
            only = [e.function for e in entries if after in e.code_only]
            yield f"  {short(before)} → {short(after)}: {_counts(here, only)}"
            for entry, move in sorted(here, key=lambda pair: -pair[1].changed):
                yield f"    {entry.function}: {share(move)}, up to {distance(move)}; nearer: {nearer(move)}"
                yield f"      {example_words(entry, move)}"
        refused = [entry for entry in entries if entry.absences]
        if refused:
            yield f"  without a result somewhere: {', '.join(entry.function for entry in refused)}"


def headline(atlas: Atlas) -> str:
    moved = {entry.function for entry in atlas.entries if entry.moves}
    functions = {entry.function for entry in atlas.entries}
    place = f"{atlas.lane.value} on {visible(atlas.device)}" if atlas.device else f"{atlas.lane.value}"
    return (
        f"{len(moved)} of {count(len(functions), 'function')} move between {atlas.compiler} "
        f"{short(atlas.versions[0])} and {short(atlas.versions[-1])} ({place}, {atlas.arch}, "
        f"{atlas.count:,} inputs each)"
    )


def _counts(moved: list[tuple[Entry, Move]], only: list[str]) -> str:
    parts = [f"{count(len(moved), 'function')} moved" if moved else "nothing moved"]
    parts += [f"{len(only)} in code only"] if only else []
    return ", ".join(parts)


def steps(atlas: Atlas) -> tuple[tuple[str, str], ...]:
    return tuple(zip(atlas.versions, atlas.versions[1:], strict=False))


def example_words(entry: Entry, move: Move) -> str:
    """`f(0x3f800000 = 1) was 0x… = …, is 0x… = …; exact …`."""
    example = move.example
    arguments = ", ".join(f"{word.bits} = {value(word)}" for word in example.arguments)
    before, after = example.before, example.after
    text = f"{entry.function}({arguments}): {before.bits} = {value(before)} → {after.bits} = {value(after)}"
    if example.exact is not None:
        text += f"; exact {example.exact}"
        text += f", nearer: {example.nearer}" if example.nearer else ""
    return text


# --- JSON --------------------------------------------------------------------------------------


def document(atlas: Atlas) -> dict[str, Any]:
    """The document of docs/json.md. Entries that never move and have nothing to say are one line each."""
    return {
        "schema": SCHEMA,
        "lane": atlas.lane.value,
        "device": atlas.device,
        "driver": atlas.driver,
        "arch": atlas.arch,
        "started_at": atlas.started_at,
        "compiler": atlas.compiler,
        "flags": {name: list(options) for name, options in atlas.flags},
        "versions": list(atlas.versions),
        "inputs": {"digest": atlas.inputs, "count": atlas.count},
        "exact": atlas.exact,
        "functions": [_entry(entry) for entry in atlas.entries],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "function": entry.function,
        "flags": entry.flags,
        "signature": entry.signature,
        "source": entry.source,
        "inputs": entry.inputs,
        "spans": [{"versions": list(span.versions), "sha256": span.sha256} for span in entry.spans],
        "moves": [_move(move) for move in entry.moves],
        "code_only": list(entry.code_only),
        "code_unknown": list(entry.code_unknown),
        "absences": [
            {"versions": list(a.versions), "status": a.status, "reason": a.reason} for a in entry.absences
        ],
        "unstable": list(entry.unstable),
    }


def _move(move: Move) -> dict[str, Any]:
    near = move.nearness
    return {
        "before": move.before,
        "after": move.after,
        "changed": move.changed,
        "of": move.of,
        "max_ulp": move.max_ulp,
        "nans": move.nans,
        "example": {
            "arguments": [_word(word) for word in move.example.arguments],
            "before": _word(move.example.before),
            "after": _word(move.example.after),
            "exact": move.example.exact,
            "before_error": move.example.before_error,
            "after_error": move.example.after_error,
            "nearer": move.example.nearer,
        },
        "nearness": None
        if near is None
        else {
            "looked_at": near.looked_at,
            "before": near.before,
            "after": near.after,
            "before_error": near.before_error,
            "after_error": near.after_error,
        },
    }


def _word(word: Word) -> dict[str, Any]:
    return {"bits": word.bits, "value": word.value}


__all__ = ["SCHEMA", "document", "example_words", "headline", "joined", "lines", "nearer", "share", "steps"]
