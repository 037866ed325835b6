"""The atlas as a page, in Markdown and as the view of HTML: what moves where in short, then step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reprodb.atlas.table import Atlas, Entry, Move
from reprodb.render.atlas import (
    INCOMPLETE,
    call,
    labels,
    moving,
    nearer_counts,
    nearer_side,
    percent,
    reach,
    share,
    since,
    span,
    steps,
    uncompared,
    value,
    verdict,
    where,
)
from reprodb.render.text import count, joined, sentence, visible
from reprodb.render.top import Fact, Top
from reprodb.render.words import Step

_TO = " → "


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One function at one step under one set of flags."""

    function: str
    share: str
    distance: str
    side: str
    counts: str
    call: str
    before: str
    after: str
    exact: str
    example_side: str


@dataclass(frozen=True, slots=True)
class FlagsPart:
    """A step under one set of flags: what moved, and the names of what moved in code only."""

    flags: str
    rows: tuple[MoveRow, ...]
    code_only: tuple[str, ...]
    uncompared: int  # functions without a result on a side


@dataclass(frozen=True, slots=True)
class StepPart:
    name: str  # `12.9 → 13.0`
    after: str  # the version that it leads to
    anchor: str
    parts: tuple[FlagsPart, ...]

    @property
    def moves(self) -> bool:
        return any(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class Cell:
    """What a function does at a step: `19 %`, `NaN`, nothing; and where it is told."""

    text: str
    tone: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Grid:
    """Functions that move by steps that move something, of one set of flags."""

    flags: str
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, slots=True)
class AtlasPage:
    top: Top
    columns: tuple[str, ...]
    grids: tuple[Grid, ...]
    steps: tuple[StepPart, ...]
    still: tuple[str, ...]  # functions that have results everywhere and move nowhere
    absent: tuple[str, ...]
    notes: tuple[tuple[str, tuple[str, ...]], ...]  # what results note, and whose
    stamp: str


def atlas_page(atlas: Atlas) -> AtlasPage:
    """The view of an atlas."""
    parts = tuple(_step(atlas, number, *pair) for number, pair in enumerate(steps(atlas), 1))
    told = frozenset((*moving(atlas), *(e.function for e in atlas.entries if e.absences)))
    columns = tuple(part for part in parts if part.moves)
    return AtlasPage(
        top=_top(atlas),
        columns=tuple(part.name for part in columns),
        grids=tuple(_grid(atlas, flags, columns) for flags, _ in atlas.flags),
        steps=parts,
        still=tuple(dict.fromkeys(e.function for e in atlas.entries if e.function not in told)),
        absent=_absent(atlas),
        notes=tuple(atlas.notes.items()),
        stamp=f"Made by reprodb from the atlas of {_date(atlas)}, inputs {atlas.inputs[:12]}.",
    )


def _date(atlas: Atlas) -> str:
    return visible(atlas.started_at.replace("T", " ").removesuffix("Z")[:16] + " UTC")


def _of(atlas: Atlas, flags: str) -> list[Entry]:
    return [entry for entry in atlas.entries if entry.flags == flags]


def _step(atlas: Atlas, number: int, before: str, after: str) -> StepPart:
    parts = []
    for flags, _ in atlas.flags:
        entries = _of(atlas, flags)
        moved = [(e, m) for e in entries for m in e.moves if m.after == after]
        rows = tuple(_row(atlas, e, m) for e, m in sorted(moved, key=lambda pair: -pair[1].changed))
        only = tuple(e.function for e in entries if after in e.code_only)
        parts.append(FlagsPart(flags, rows, only, uncompared(entries, before, after)))
    called = labels(atlas)
    name = f"{called[before]}{_TO}{called[after]}"
    return StepPart(name, after, f"step-{number}", tuple(parts))


def _row(atlas: Atlas, entry: Entry, move: Move) -> MoveRow:
    example = move.example
    return MoveRow(
        function=entry.function,
        share=share(move) + since(atlas, move),
        distance=reach(move),
        side="" if move.nans_only else nearer_side(move),
        counts=nearer_counts(move),
        call=call(entry, example),
        before=f"{example.before.bits} = {value(example.before)}",
        after=f"{example.after.bits} = {value(example.after)}",
        exact=example.exact or "",
        example_side=example.nearer or "",
    )


def _grid(atlas: Atlas, flags: str, columns: tuple[StepPart, ...]) -> Grid:
    found = {(entry.function, move.after): move for entry in _of(atlas, flags) for move in entry.moves}
    names = dict.fromkeys(function for function, _ in found)
    return Grid(
        flags,
        tuple((name, tuple(_cell(found.get((name, c.after)), c) for c in columns)) for name in names),
    )


def _cell(move: Move | None, column: StepPart) -> Cell:
    if move is None:
        return Cell("", "", "")
    return Cell("NaN" if move.nans_only else percent(move), "" if move.nans_only else "warn", column.anchor)


def _absent(atlas: Atlas) -> tuple[str, ...]:
    """Functions without a result, with the reason; those whose repetitions differed."""
    called = labels(atlas)
    told = [
        f"{e.function} ({e.flags}) under {joined([called.get(v, v) for v in a.versions])}: "
        f"{a.status.replace('_', ' ')}: {a.reason}"
        for e in atlas.entries
        for a in e.absences
    ]
    for entry in atlas.entries:
        if entry.unstable:
            under = joined([called.get(version, version) for version in entry.unstable])
            told.append(f"{entry.function} ({entry.flags}) gave more than one answer under {under}")
    return tuple(told)


def _top(atlas: Atlas) -> Top:
    first, last = span(atlas)
    driver = (f"driver {atlas.driver}",) if atlas.driver else ()
    flags = tuple(f"{name}: {' '.join(options)}" for name, options in atlas.flags)
    exact = "mpmath, 180 bits" if atlas.exact else "not looked at: mpmath was not installed"
    looked = "of up to 200 moved inputs a function and step; errors in ULP at the exact value"
    moved = bool(atlas.moves)
    return Top(
        eyebrow=f"math atlas · {atlas.compiler} {first} to {last} · {_date(atlas)}",
        mark="≠" if moved else "=",
        tone="warn" if moved else "good",
        headline=sentence(verdict(atlas)).replace(_TO, "\u00a0→\u00a0"),
        tally=(),
        reasons=() if atlas.complete else (INCOMPLETE,),
        facts=(
            Fact("Where", where(atlas), driver),
            Fact("Releases", count(len(atlas.versions), "release"), (", ".join(atlas.versions),)),
            Fact("Flags", joined([name for name, _ in atlas.flags]), flags),
            Fact("Inputs", f"{atlas.count:,} a function", (f"SHA-256 over all {atlas.inputs}",)),
            Fact("Exact values", exact, (looked,) if atlas.exact else ()),
        ),
        unanswered=tuple(Step(line) for line in _absent(atlas)[:20]),
        alarms=(),
    )


# --- Markdown ----------------------------------------------------------------------------------


def markdown(atlas: Atlas) -> str:
    """The page in Markdown, as GitHub and most readers of it take tables."""
    return "\n".join(_markdown(atlas, atlas_page(atlas))).rstrip("\n") + "\n"


def _markdown(atlas: Atlas, page: AtlasPage) -> Iterator[str]:
    first, last = span(atlas)
    yield f"# The CUDA math API from {_text(atlas.compiler)} {_text(first)} to {_text(last)}"
    yield ""
    yield f"**{atlas.lane.value}**: {_text(sentence(verdict(atlas)))}"
    if not atlas.complete:
        yield from ("", INCOMPLETE)
    yield ""
    yield from _table(
        ("what", "", ""), ((f.name.lower(), _text(f.text), _text("; ".join(f.more))) for f in page.top.facts)
    )
    yield ""
    yield "## What moves at which step"
    yield ""
    yield "The share of the inputs whose result has other bits. NaN: no number moved, only the bits of NaNs."
    for grid in page.grids:
        yield from ("", f"### {_text(grid.flags)}", "")
        if not grid.rows:
            yield "Nothing moved."
            continue
        rows = ((_code(name), *(cell.text for cell in cells)) for name, cells in grid.rows)
        yield from _table(("function", *map(_text, page.columns)), rows)
    for part in page.steps:
        if part.moves:
            yield from ("", f"## {_text(part.name)}")
            for flags in part.parts:
                yield from _flags(flags)
    yield from _quiet(page, [name for name, _ in atlas.flags])
    if page.absent:
        yield from ("", "## Without a result", "")
        yield from (f"- {_text(line)}" for line in page.absent)
    if page.notes:
        yield from ("", "## Notes", "")
        yield from (f"- {_text(note)}: {_names(names)}" for note, names in page.notes)
    if page.still:
        yield from ("", "## Functions that did not move", "", f"{len(page.still):,}: {_names(page.still)}.")
    yield from ("", _text(page.stamp))


def _flags(part: FlagsPart) -> Iterator[str]:
    yield from ("", f"### {_text(part.flags)}", "")
    if part.rows:
        columns = ("function", "inputs that moved", "by up to", "nearer the exact value", "for example")
        yield from _table(columns, (_cells(row) for row in part.rows))
    else:
        yield "Nothing moved."
    if part.uncompared:
        yield from ("", f"{part.uncompared:,} not compared: see [without a result](#without-a-result).")
    if part.code_only:
        names = _names(part.code_only)
        yield from ("", f"<details><summary>{len(part.code_only):,} moved in code only</summary>", "")
        yield from (names, "", "</details>")


def _cells(row: MoveRow) -> tuple[str, ...]:
    example = f"{_code(row.call)}: {_code(row.before)} → {_code(row.after)}"
    if row.exact:
        example += f"; exact {_text(row.exact)}" + (f" ({row.example_side})" if row.example_side else "")
    counts = f": {row.counts}" if row.counts else ""
    return (_code(row.function), _text(row.share), row.distance, f"{row.side}{counts}", example)


def _quiet(page: AtlasPage, flags: list[str]) -> Iterator[str]:
    still = [part for part in page.steps if not part.moves]
    if not still:
        return
    yield from (
        "",
        "## Steps at which nothing moved",
        "",
        "Functions whose code moved and whose bits did not:",
    )
    yield ""
    rows = ((_text(part.name), *(f"{len(f.code_only):,}" for f in part.parts)) for part in still)
    yield from _table(("step", *(_text(name) for name in flags)), rows)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = tuple(heads)
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    yield from (f"| {' | '.join(cells)} |" for cells in rows)


def _names(names: Iterable[str]) -> str:
    return ", ".join(_code(name) for name in names)


def _code(text: str) -> str:
    return f"`{visible(text).replace('`', chr(39)).replace('|', chr(166))}`"


def _text(text: str) -> str:
    """Text from outside in Markdown: no tag, no cell, no emphasis of its own."""
    shown = visible(text).replace("&", "&amp;").replace("<", "&lt;")
    for character in "\\`*_[]|#":
        shown = shown.replace(character, f"\\{character}")
    return shown
