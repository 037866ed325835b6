"""Generated code of two builds: counts before and after, texts side by side; for terminals and as JSON."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reprodb.attribute import causes
from reprodb.codegen import code_delta, delta_phrase, normalise_ptx, normalise_sass, step_phrase
from reprodb.domain import Code, FunctionCounts, Result
from reprodb.findings import Cause, CodeDelta, State
from reprodb.render.text import count, name, visible
from reprodb.sidebyside import Line, Stretch, side_by_side, stretches

if TYPE_CHECKING:
    from rich.console import Console

# Two columns need so many characters; below it lines stand one below the other.
NARROWEST = 72
_GUTTER = 3
_MISSING = "the database has no text of it"


@dataclass(frozen=True, slots=True)
class Side:
    """One build as a run recorded it, with its texts where the database has them."""

    run: int
    result: Result
    ptx: str | None
    sass: str | None

    @property
    def code(self) -> Code:
        build = self.result.build
        return (build.code if build else None) or Code(None, None, None)

    @property
    def label(self) -> str:
        return f"run {self.run} {name(self.result.profile)}"


@dataclass(frozen=True, slots=True)
class Pair:
    before: Side
    after: Side


def states(pair: Pair) -> tuple[tuple[str, State], ...]:
    """Whether PTX, SASS and constants are the same, differ, or are unknown on a side."""
    old, new = pair.before.code, pair.after.code
    pairs = (
        ("ptx", old.ptx, new.ptx),
        ("sass", old.sass, new.sass),
        ("constants", old.constants, new.constants),
    )
    return tuple(
        (what, State.UNKNOWN if None in (a, b) else State.SAME if a == b else State.DIFFERS)
        for what, a, b in pairs
    )


def _steps(pair: Pair, delta: CodeDelta) -> str | None:
    old, new = (
        next((c for c in side.code.counts if c.function == delta.function), FunctionCounts(delta.function))
        for side in (pair.before, pair.after)
    )
    return step_phrase(old, new)


def _deltas(pair: Pair, *, full: bool) -> tuple[tuple[CodeDelta, ...], int]:
    """The launched functions whose counts differ, and how many others are left out.

    `full` leaves none out, nor is any where no launched function is counted under its name.
    """
    deltas = code_delta(pair.before.code, pair.after.code)
    launched = {s.entry for side in (pair.before, pair.after) for s in side.result.kernel.stages}
    own = tuple(d for d in deltas if d.function in launched)
    counted = {c.function for side in (pair.before, pair.after) for c in side.code.counts}
    if full or not launched & counted:
        return deltas, 0
    return own, len(deltas) - len(own)


def _moved(pair: Pair) -> tuple[str, ...]:
    """What made the two builds differ, as far as it is a matter of builds."""
    rows = causes(pair.before.result, pair.after.result, None, None)
    kinds = (Cause.LAUNCH_SHAPE, Cause.SOURCE, Cause.FLAGS, Cause.TOOLCHAIN, Cause.ARCHITECTURE)
    return tuple(
        f"{row.name}: {row.detail}" for row in rows if row.name in kinds and row.state is State.DIFFERS
    )


def _lines(pair: Pair, what: str) -> tuple[Line, ...] | None:
    """Both texts as they are compared, beside each other; None where one is not at hand."""
    normalise = normalise_ptx if what == "ptx" else normalise_sass
    texts = [getattr(side, what) for side in (pair.before, pair.after)]
    if None in texts:
        return None
    old, new = (normalise(text).splitlines() for text in texts)
    return side_by_side(old, new)


# --- Terminal ----------------------------------------------------------------------------------


def show(out: "Console", pair: Pair, *, counts: bool, ptx: bool, sass: bool, full: bool) -> None:
    """Prints what differs between the two builds."""
    _print(out, _title(pair), "bold")
    for line in _moved(pair):
        _print(out, line)
    _print(out, "; ".join(f"{_NAMES[what]} {_STATES[state]}" for what, state in states(pair)))
    if counts:
        _counts(out, pair, full=full)
    for what, wanted in (("ptx", ptx), ("sass", sass)):
        if wanted:
            _text(out, pair, what, full=full)


_NAMES = {"ptx": "PTX", "sass": "SASS", "constants": "constants"}
_STATES = {State.SAME: "the same", State.DIFFERS: "differs", State.UNKNOWN: "unknown"}


def _title(pair: Pair) -> str:
    old, new = pair.before.result, pair.after.result
    kernels = dict.fromkeys((name(old.kernel.name), name(new.kernel.name)))
    arches = dict.fromkeys((old.arch, new.arch))
    tools = dict.fromkeys(r.build.toolchain.label for r in (old, new) if r.build is not None)
    sides = f"{pair.before.label} → {pair.after.label}"
    return f"{' → '.join(kernels)}: {sides} ({' → '.join(arches)}, {' → '.join(tools)})"


def _counts(out: "Console", pair: Pair, *, full: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    deltas, others = _deltas(pair, full=full)
    if others:
        _print(out, f"{count(others, 'other function')} of the same source with other counts: --full", "dim")
    if not deltas:
        _print(out, "every opcode is counted as often on both sides")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for heading in ("function", "", "opcode", "before", "after"):
        table.add_column(heading, justify="right" if heading in ("before", "after") else "left")
    for delta in deltas:
        for kind, rows in (("SASS", delta.sass), ("PTX", delta.ptx)):
            for opcode, before, after in rows:
                cells = (visible(delta.function), kind, visible(opcode), f"{before:,}", f"{after:,}")
                table.add_row(*map(Text, cells))
    out.print(table)
    for delta in deltas:
        _print(out, f"{delta.function}: {delta_phrase(delta)}")
        if phrase := _steps(pair, delta):
            _print(out, f"{delta.function}: {phrase}")


def _text(out: "Console", pair: Pair, what: str, *, full: bool) -> None:
    lines = _lines(pair, what)
    _print(out, "")
    if lines is None:
        _print(out, f"{_NAMES[what]}: {_MISSING}", "yellow")
        return
    shown = (Stretch(0, lines),) if full and lines else stretches(lines)
    if not shown:
        _print(out, f"{_NAMES[what]}: the same text, {count(len(lines), 'line')}")
    widths = _widths(out.width, shown)
    for stretch in shown:
        if stretch.skipped:
            _print(out, f"… {count(stretch.skipped, 'equal line')}", "dim")
        for line in stretch.lines:
            style = {" ": "dim", "|": "yellow", "<": "red", ">": "green"}[line.mark]
            for row in _rows(line, widths):
                _print(out, row, style)


def _widths(width: int, shown: tuple[Stretch, ...]) -> tuple[int, int] | None:
    """The columns of both sides: as wide as their lines need and the terminal has; None: no two columns."""
    if width < NARROWEST:
        return None
    half = (width - _GUTTER) // 2
    lines = [line for stretch in shown for line in stretch.lines]
    needs = [max((len(text) for text in side if text), default=1) for side in _sides(lines)]
    left = min(needs[0], max(half, width - _GUTTER - needs[1]))
    return left, min(needs[1], width - _GUTTER - left)


def _sides(lines: list[Line]) -> tuple[list[str | None], list[str | None]]:
    return [line.before for line in lines], [line.after for line in lines]


def _rows(line: Line, widths: tuple[int, int] | None) -> Iterator[str]:
    """The rows of one line: wrapped into its columns, or marked one below the other."""
    before, after = (None if side is None else visible(side, 100_000) for side in (line.before, line.after))
    if widths is None:
        if line.mark == " ":
            yield f"  {before}"
            return
        yield from (f"{mark} {side}" for mark, side in (("-", before), ("+", after)) if side is not None)
        return
    left, right = widths
    old, new = _wrapped(before or "", left), _wrapped(after or "", right)
    for at in range(max(len(old), len(new))):
        mark = line.mark if at == 0 else " "
        cells = (old[at] if at < len(old) else "", new[at] if at < len(new) else "")
        yield f"{cells[0]:<{left}} {mark} {cells[1]}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)] or [""]


def _print(out: "Console", text: str, style: str = "") -> None:
    from rich.text import Text

    out.print(Text(visible(text, 100_000), style=style))


# --- JSON --------------------------------------------------------------------------------------


def record(pair: Pair, *, counts: bool, ptx: bool, sass: bool, full: bool) -> dict[str, Any]:
    """One entry of `reprodb.code/1`. Texts are lists of lines, each with mark, before and after."""
    deltas, others = _deltas(pair, full=full)
    functions = [
        {
            "function": delta.function,
            "sass": {opcode: [before, after] for opcode, before, after in delta.sass},
            "ptx": {opcode: [before, after] for opcode, before, after in delta.ptx},
            "sentence": delta_phrase(delta),
            "step": _steps(pair, delta),
        }
        for delta in deltas
    ]
    texts = {
        what: _text_record(pair, what, full=full) for what, wanted in (("ptx", ptx), ("sass", sass)) if wanted
    }
    return {
        "baseline": _side_record(pair.before),
        "candidate": _side_record(pair.after),
        "moved": list(_moved(pair)),
        "states": {what: state.value for what, state in states(pair)},
        **({"functions": functions, "other_functions": others} if counts else {}),
        **texts,
    }


def _side_record(side: Side) -> dict[str, Any]:
    result = side.result
    return {
        "run": side.run,
        "kernel": result.kernel.name,
        "profile": result.profile,
        "arch": result.arch,
        "toolchain": result.build.toolchain.label if result.build else None,
        "artifact": result.build.key if result.build else None,
        "ptx": side.code.ptx,
        "sass": side.code.sass,
        "constants": side.code.constants,
    }


def _text_record(pair: Pair, what: str, *, full: bool) -> list[dict[str, Any]] | None:
    lines = _lines(pair, what)
    if lines is None:
        return None
    shown = lines if full else [line for stretch in stretches(lines) for line in stretch.lines]
    return [{"mark": line.mark, "before": line.before, "after": line.after} for line in shown]
