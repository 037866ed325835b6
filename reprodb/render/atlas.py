"""The atlas as lines and as the document `reprodb.atlas/1`, and the words that its pages share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reprodb.atlas.reading import SCHEMA
from reprodb.atlas.table import Atlas, Entry, Example, Move, Word
from reprodb.render.text import count, visible

INCOMPLETE = "The run did not finish: it knows nothing of the functions that it did not reach."
# Functions without a result whose reasons the terminal is told.
_TOLD = 8


def labels(atlas: Atlas) -> dict[str, str]:
    """What each version is called: its release, `12.9` of `12.9.86`, where no other is of the same one."""
    releases = [".".join(version.split(".")[:2]) for version in atlas.versions]
    return {
        version: visible(release if releases.count(release) == 1 else version, 20)
        for version, release in zip(atlas.versions, releases, strict=True)
    }


def span(atlas: Atlas) -> tuple[str, str]:
    """The labels of the first and the last version."""
    known = labels(atlas)
    return known[atlas.versions[0]], known[atlas.versions[-1]]


def percent(move: Move) -> str:
    """The share of the inputs that moved: `19 %`, `0.12 %`."""
    return _percent(100 * move.changed / move.of)


def _percent(part: float) -> str:
    return f"{part:.2g} %" if part < 10 else f"{part:.0f} %"


def share(move: Move) -> str:
    """How many inputs moved: `12,345 of 65,536 (19 %)`."""
    return f"{move.changed:,} of {move.of:,} ({percent(move)})"


def distance(move: Move) -> str:
    """How far at most: `2 ULP`; what became of NaNs where no number moved."""
    if move.nans_only:
        return "NaN for NaN"
    if move.max_ulp is None:
        return "NaN" if move.nans else "-"
    return f"{move.max_ulp:,} ULP" if move.max_ulp < 10**7 else f"{move.max_ulp:.1e} ULP"


def reach(move: Move) -> str:
    """The distance, and how many NaNs had a part in the move, where numbers moved too and it was counted."""
    if move.nan_to_nan is None or move.nans_only:
        return distance(move)
    crossed = move.nans - move.nan_to_nan
    told = [f"{move.nan_to_nan:,} NaN for NaN"] if move.nan_to_nan else []
    told += [f"{crossed:,} between NaN and a number"] if crossed else []
    return ", ".join((distance(move), *told))


def value(word: Word) -> str:
    """The number in as many digits as tell it from its neighbours."""
    digits = 17 if len(word.bits) > len("0x00000000") else 9
    return f"{word.value:.{digits}g}" if isinstance(word.value, float) else visible(str(word.value))


def call(entry: Entry, example: Example) -> str:
    """`atan2f(0xc6e908bc = -29828.3672, 0x48ae5d6c = 357099.375)`."""
    arguments = ", ".join(f"{visible(word.bits)} = {value(word)}" for word in example.arguments)
    return f"{visible(entry.function)}({arguments})"


def nearer_side(move: Move) -> str:
    """Which side is nearer the exact value for more of the inputs that were looked at."""
    near = move.nearness
    if near is None or not near.looked_at:
        return "not known"
    return "neither" if near.before == near.after else "after" if near.after > near.before else "before"


def nearer_counts(move: Move) -> str:
    """`156 after, 42 before, 2 neither; worst 1.53 → 1.03 ULP`; empty where nothing was looked at."""
    near = move.nearness
    if near is None or not near.looked_at:
        return ""
    ties = near.looked_at - near.before - near.after
    shares = f"{near.after} after, {near.before} before" + (f", {ties} neither" if ties else "")
    return f"{shares}; worst {near.before_error:.3g} → {near.after_error:.3g} ULP"


def nearer(move: Move) -> str:
    """Which side is nearer the exact value, in words."""
    counts = nearer_counts(move)
    return f"{nearer_side(move)} ({counts})" if counts else nearer_side(move)


def lines(atlas: Atlas, *, quiet: bool = False) -> Iterator[str]:
    """What people read: a line a move, flags by flags and step by step; then what moved in code only."""
    yield headline(atlas)
    if not atlas.complete:
        yield INCOMPLETE
    if quiet:
        return
    called = labels(atlas)
    for flags, _ in atlas.flags:
        entries = [entry for entry in atlas.entries if entry.flags == flags]
        yield ""
        yield f"{visible(flags)}:"
        for before, after in steps(atlas):
            # A move over releases without a result belongs to the step at whose end it shows.
            here = [(e, m) for e in entries for m in e.moves if m.after == after]
            only = [e.function for e in entries if after in e.code_only]
            unseen = uncompared(entries, before, after)
            yield f"  {called[before]} → {called[after]}: {_counts(here, only, unseen)}"
            for entry, move in sorted(here, key=lambda pair: -pair[1].changed):
                yield f"    {visible(entry.function)}: {share(move)}, {how_far(move)}{since(atlas, move)}"
                yield f"      {example_words(entry, move)}"
        yield from _without_result(entries, called)
        for entry in entries:
            if entry.unstable:
                under = ", ".join(called.get(version, version) for version in entry.unstable)
                yield f"  {visible(entry.function)} gave more than one answer under {visible(under)}"
    noted = dict.fromkeys(entry.function for entry in atlas.entries if entry.notes)
    if noted:
        yield ""
        yield f"with notes, see atlas.md: {visible(', '.join(noted), 4000)}"
    if atlas.moves and not atlas.exact:
        yield ""
        yield "exact values were not looked at: pip install 'reprodb[atlas]', then reprodb atlas --run RUN"


def _without_result(entries: Iterable[Entry], called: dict[str, str]) -> Iterator[str]:
    """A line each with the reason; names alone where there are many, as on the model."""
    absent = [entry for entry in entries if entry.absences]
    if len(absent) > _TOLD:
        names = visible(", ".join(entry.function for entry in absent), 8000)
        yield f"  {len(absent)} have no result somewhere, see atlas.md for the reasons: {names}"
        return
    for entry in absent:
        for absence in entry.absences:
            told = f"{absence.status.replace('_', ' ')}: {absence.reason}"
            under = ", ".join(called.get(version, version) for version in absence.versions)
            yield f"  {visible(entry.function)} has no result under {visible(under)}: {visible(told)}"


def how_far(move: Move) -> str:
    """`up to 2 ULP; nearer: after (…)`; of NaNs only what became of them."""
    return distance(move) if move.nans_only else f"up to {reach(move)}; nearer: {nearer(move)}"


def headline(atlas: Atlas) -> str:
    """What moves between which releases, and how that is known."""
    return f"{verdict(atlas)} ({where(atlas)}, {atlas.count:,} inputs each)"


def verdict(atlas: Atlas) -> str:
    """`27 of 348 functions move between nvrtc 12.0 and 13.5, 4 of them only in the bits of NaNs`."""
    moved = moving(atlas)
    functions = {entry.function for entry in atlas.entries}
    numbers = {entry.function for entry, move in atlas.moves if not move.nans_only}
    nans = len(moved) - len(numbers)
    verb = "moves" if (len(moved) or len(functions)) == 1 else "move"
    told = (
        f"{len(moved) or 'none'} of {count(len(functions), 'function')} {verb} between "
        f"{visible(atlas.compiler)} {' and '.join(span(atlas))}"
    )
    told += f", {nans} of them only in the bits of NaNs" if nans else ""
    absent = len({entry.function for entry in atlas.entries if entry.absences})
    return told + (f"; {count(absent, 'has', 'have')} no result somewhere" if absent else "")


def moving(atlas: Atlas) -> tuple[str, ...]:
    """The functions that move anywhere, in the table's order."""
    return tuple(dict.fromkeys(entry.function for entry, _ in atlas.moves))


def where(atlas: Atlas) -> str:
    """`measured on NVIDIA H200, sm_90`."""
    place = f" on {visible(atlas.device)}" if atlas.device else ""
    return f"{atlas.lane.value}{place}, {visible(atlas.arch)}"


def _counts(moved: list[tuple[Entry, Move]], only: list[str], unseen: int) -> str:
    parts = [f"{count(len(moved), 'function')} moved" if moved else "nothing moved"]
    parts += [f"{len(only)} in code only"] if only else []
    parts += [f"{unseen} not compared"] if unseen else []
    return ", ".join(parts)


def uncompared(entries: Iterable[Entry], before: str, after: str) -> int:
    """How many functions lack a result on a side of a step."""
    return sum(any({before, after} & {*absence.versions} for absence in entry.absences) for entry in entries)


def since(atlas: Atlas, move: Move) -> str:
    """Where the release before has no result: ` (since 12.6)`."""
    if (move.before, move.after) in steps(atlas):
        return ""
    return f" (since {labels(atlas).get(move.before, visible(move.before))})"


def steps(atlas: Atlas) -> tuple[tuple[str, str], ...]:
    return tuple(zip(atlas.versions, atlas.versions[1:], strict=False))


def example_words(entry: Entry, move: Move) -> str:
    """`f(0x3f800000 = 1) was 0x… = …, is 0x… = …; exact …`."""
    example = move.example
    before, after = (f"{visible(w.bits)} = {value(w)}" for w in (example.before, example.after))
    text = f"{call(entry, example)}: {before} → {after}"
    if example.exact is not None:
        text += f"; exact {visible(example.exact)}"
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
        "complete": atlas.complete,
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
        "notes": list(entry.notes),
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
        "nan_to_nan": move.nan_to_nan,
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
