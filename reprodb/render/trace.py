"""A trace as lines for people and as the document `reprodb.trace/1`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprodb import bits
from reprodb.domain import Dim3, Lane, SourceFile
from reprodb.executors.model.events import Kind
from reprodb.findings import ElementDelta
from reprodb.render.text import count, joined, name, visible

if TYPE_CHECKING:
    from reprodb.findings import Comparison
    from reprodb.provenance import Moment
    from reprodb.trace import Alignment, Difference
    from reprodb.tracing import Cell, Leg, Trace, Where

SCHEMA = "reprodb.trace/1"
_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_BYTES = {"f16x2": 4, "bf16x2": 4}
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
_SIDES = ("baseline", "candidate")

Names = Mapping[int, "Cell"]


# --- For people ----------------------------------------------------------------------------------


def lines(found: Trace, others: Sequence[Comparison] = (), *, quiet: bool = False) -> Iterator[str]:
    """What people read: the value, where it began, both instructions, then what was checked."""
    comparison, output, element = found.comparison, found.output, found.element
    labels = _labels(found)
    yield (
        f"{name(comparison.kernel)} {name(comparison.case)} {labels[0]} → {labels[1]} "
        f"({found.builds[1].arch}, on the model)"
    )
    yield f"  {_element(found, element)}; {output.changed:,} of {output.of:,} differ"
    for number, leg in enumerate(found.legs):
        yield from _leg(found, leg, labels, last=number == len(found.legs) - 1, quiet=quiet)
    if found.end:
        yield f"  the trace ends here: {visible(found.end)}"
    if quiet:
        return
    yield f"  {_checked(found)}"
    for note in found.notes:
        yield f"  note: {visible(note)}"
    if others:
        rows = joined([f"{name(o.kernel)} {name(o.case)} {name(o.either.profile)}" for o in others])
        yield f"  also differing, not traced: {rows} (choose with --case and --profile)"


def _labels(found: Trace) -> tuple[str, str]:
    """What tells the sides apart: the profiles, else the toolchains, else nothing but their places."""
    for pair in (
        [build.profile.name for build in found.builds],
        [build.toolchain.label for build in found.builds],
        [build.arch for build in found.builds],
    ):
        if pair[0] != pair[1]:
            return name(pair[0]), name(pair[1])
    return _SIDES


def _element(found: Trace, element: ElementDelta) -> str:
    where = f"{name(found.output.name)}[{element.index}]" + (
        f".{name(element.field)}" if element.field else ""
    )
    far = f", {element.ulp:,} ULP" if element.ulp is not None else ""
    return (
        f"{where} differs: {element.before} ({element.before_value}) → {element.after} "
        f"({element.after_value}){far}"
    )


def _leg(found: Trace, leg: Leg, labels: tuple[str, str], *, last: bool, quiet: bool) -> Iterator[str]:
    yield from dict.fromkeys(
        f"  {leg.cell} was stored by thread {_at(where.stage.block, where.thread)} of block "
        f"{_at(where.stage.grid, where.target.block)} of {name(where.stage.entry)}, {where.step.place}"
        for where in leg.wheres
    )
    alignment = leg.alignment
    difference = alignment.difference
    if difference is None:
        yield "  no value that could be aligned differs in that block"
    elif not last:
        yield f"  which loaded it at {difference.born.candidate.step.place} as {_from(leg, difference)}"
    else:
        yield from _difference(found, leg, difference, labels)
        if not quiet:
            yield "  all values of that line at that time:"
            width = max(map(len, labels))
            for side, label in enumerate(labels):
                for moment in difference.lines[side]:
                    word = f"{label:{width}}"
                    yield f"    {word}  {_hex(moment)}{_number(moment)}  {visible(moment.step.text)}"
    if not quiet:
        yield f"  {_aligned(alignment)}"
    for apart in alignment.apart:
        yield (
            f"  not aligned: {visible(apart.file)}:{apart.line} ran {apart.baseline:,} times on {labels[0]} "
            f"and {apart.candidate:,} on {labels[1]}, in {count(apart.threads, 'thread')}"
        )
    if alignment.cut:
        yield "  the record is full: what came later was not compared; --limit takes more"


def _difference(found: Trace, leg: Leg, difference: Difference, labels: tuple[str, str]) -> Iterator[str]:
    born = (difference.born.baseline, difference.born.candidate)
    place = born[1].step.place
    where = leg.wheres[1]
    seen = difference.seen.candidate
    later = ""
    if seen.step.place != place or seen.thread != born[1].thread:
        later = f"; it showed first at {seen.step.place} in thread {_at(where.stage.block, seen.thread)}"
    yield (
        f"  the first value that differs: {place}, thread {_at(where.stage.block, born[1].thread)} of block "
        f"{_at(where.stage.grid, where.target.block)}{_times(difference)}{later}"
    )
    if not difference.related:
        yield f"    (the first in the block; that {leg.cell} was computed from it could not be followed)"
    for line in dict.fromkeys(moment.step.place for moment in born):
        text = source_line(found.files[1], line.file, line.line) or source_line(
            found.files[0], line.file, line.line
        )
        if text:
            yield f"    {line.line} | {visible(text)}"
    for side, moment in enumerate(born):
        yield f"    {labels[side]}: PTX line {moment.step.ptx_line}: {visible(moment.step.text)}"
        for operand in dict.fromkeys(_operands(moment, leg.names[side])):
            yield f"      {operand}"
        yield f"      = {_hex(moment)}{_number(moment)}"


def _times(difference: Difference) -> str:
    n = difference.occurrence
    suffix = "th" if n % 100 in (11, 12, 13) else _ORDINALS.get(n % 10, "th")
    return f", the {n:,}{suffix} time"


def _operands(moment: Moment, names: Names) -> Iterator[str]:
    """Each source: its bits and value, and where they come from."""
    if moment.step.kind is Kind.LOAD:
        yield visible(f"{moment.step.operands[0].text} is {_cell(moment, names)}")
        return
    for index, (operand, origin) in enumerate(zip(moment.step.operands, moment.origins, strict=True)):
        word = moment.bits(index)
        if word is None or (moment.step.kind is Kind.STORE and index == 0):
            continue
        source = ""
        if origin is not None:
            cell = f" of {_cell(origin, names)}" if origin.step.kind is Kind.LOAD else ""
            source = f" from {origin.step.text}{cell} (PTX line {origin.step.ptx_line})"
        elif operand.register:
            source = ", which no recorded instruction set"
        yield visible(f"{operand.text} = {_word(word, operand.dtype)}{_value(word, operand.dtype)}{source}")


def _cell(moment: Moment, names: Names) -> str:
    address = moment.address
    if address is not None and address in names and moment.step.space not in ("shared", "local", "param"):
        return str(names[address])
    return f"{moment.step.space} memory"


def _from(leg: Leg, difference: Difference) -> str:
    moment = difference.born.candidate
    return f"{_hex(moment)} from {_cell(moment, leg.names[1])}, which was {_hex(difference.born.baseline)}"


def _aligned(alignment: Alignment) -> str:
    text = (
        f"compared were {count(alignment.compared, 'value')} of {count(alignment.threads, 'thread')}, by the "
        f"last of each occurrence of a line: {alignment.differing:,} differ"
    )
    if alignment.forms:
        text += (
            f"; {alignment.forms:,} are of another form on each side (a product, a sum) and were not compared"
        )
    if alignment.without_line:
        text += f"; {alignment.without_line:,} have no line"
    if alignment.alone:
        text += f"; {count(alignment.alone, 'thread')} ran on one side only"
    return text


def _checked(found: Trace) -> str:
    ptx = "SASS and PTX" if all(found.same_ptx) else "SASS (their PTX differs)"
    text = (
        f"checked: the builds with line information have the recorded {ptx}; the model has the recorded bits "
        f"of {joined([name(o) for o in found.reproduced])} on both sides"
    )
    sides = (found.comparison.baseline, found.comparison.candidate)
    if any(side is not None and side.lane is Lane.MEASURED for side in sides):
        text += "; those were measured on a GPU, this trace is the model's re-execution"
    return text


def source_line(files: Sequence[SourceFile], path: str, line: int) -> str:
    """A line of the recorded sources, empty where it is not among them."""
    text = next((f.text for f in files if f.path == path), "")
    every = text.splitlines()
    return every[line - 1].strip() if 0 < line <= len(every) else ""


def _at(shape: Dim3, linear: int) -> str:
    """An index in a grid or block: a number where it has one dimension."""
    where = coordinates(shape, linear)
    return str(where[0]) if shape[1] == shape[2] == 1 else f"({', '.join(map(str, where))})"


def coordinates(shape: Dim3, linear: int) -> Dim3:
    x, y, _ = shape
    return linear % x, linear // x % y, linear // (x * y)


def _hex(moment: Moment) -> str:
    return _word(moment.value, moment.step.dtype)


def _number(moment: Moment) -> str:
    return _value(moment.value, moment.step.dtype)


def _word(word: int, dtype: str) -> str:
    known = _DTYPES.get(dtype)
    return bits.hex_word(word, known) if known else f"0x{word:0{2 * _BYTES.get(dtype, 0)}x}"


def _value(word: int, dtype: str) -> str:
    number = value_of(word, dtype)
    return "" if number is None else f" ({number})"


def value_of(word: int, dtype: str) -> float | int | str | None:
    """A word as the number that it is, None for packed and untyped ones."""
    import numpy as np

    known = _DTYPES.get(dtype)
    if known is None:
        return None
    nbytes = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[known]
    number = bits.to_array(word.to_bytes(nbytes, "little"), known)[0]
    # The shortest digits that tell the number from its neighbours in its own format.
    return bits.plain(number) if not np.isfinite(number) else float(str(number))


# --- For programs --------------------------------------------------------------------------------


def document(
    runs: tuple[str, str],
    comparison: Comparison | None,
    found: Trace | None,
    others: Sequence[Comparison],
    exit_code: int,
) -> dict[str, Any]:
    """The whole trace; `trace` is null where nothing differs."""
    return {
        "schema": SCHEMA,
        "baseline": runs[0],
        "candidate": runs[1],
        "exit_code": int(exit_code),
        "kernel": comparison.kernel if comparison else None,
        "case": comparison.case if comparison else None,
        "differs": found is not None,
        "trace": _trace(found) if found else None,
        "others": [
            {"kernel": o.kernel, "case": o.case, "profile": o.either.profile, "arch": o.either.arch}
            for o in others
        ],
    }


def _trace(found: Trace) -> dict[str, Any]:
    element = found.element
    recorded = (found.comparison.baseline, found.comparison.candidate)
    return {
        "lane": Lane.MODELLED.value,
        "recorded": {
            which: {
                "profile": side.profile if side else None,
                "lane": side.lane.value if side else None,
                "arch": build.arch,
                "toolchain": build.toolchain.label,
                "options": list(build.options),
                "sass": "same",
                "ptx": "same" if same else "differs",
            }
            for which, side, build, same in zip(_SIDES, recorded, found.builds, found.same_ptx, strict=True)
        },
        "reproduced": list(found.reproduced),
        "output": {
            "name": found.output.name,
            "role": found.output.role.value,
            "changed": found.output.changed,
            "of": found.output.of,
        },
        "element": {
            "index": element.index,
            "field": element.field,
            "before": element.before,
            "after": element.after,
            "before_value": element.before_value,
            "after_value": element.after_value,
            "ulp": element.ulp,
        },
        "found": found.found,
        "legs": [_leg_record(found, leg) for leg in found.legs],
        "end": found.end or None,
        "notes": list(found.notes),
    }


def _leg_record(found: Trace, leg: Leg) -> dict[str, Any]:
    alignment = leg.alignment
    return {
        "cell": str(leg.cell),
        "stored_by": {which: _where(where) for which, where in zip(_SIDES, leg.wheres, strict=True)},
        "aligned": {
            "compared": alignment.compared,
            "differing": alignment.differing,
            "threads": alignment.threads,
            "other_form": alignment.forms,
            "without_line": alignment.without_line,
            "threads_on_one_side": alignment.alone,
            "cut": alignment.cut,
            "not_aligned": [
                {
                    "file": a.file,
                    "line": a.line,
                    "baseline": a.baseline,
                    "candidate": a.candidate,
                    "threads": a.threads,
                }
                for a in alignment.apart
            ],
        },
        "difference": _difference_record(found, leg, alignment.difference) if alignment.difference else None,
    }


def _where(where: Where) -> dict[str, Any]:
    return {
        "stage": where.stage.entry,
        "block": list(coordinates(where.stage.grid, where.target.block)),
        "thread": list(coordinates(where.stage.block, where.thread)),
        "instruction": where.step.text,
        "place": str(where.step.place) if where.step.place.known else None,
    }


def _difference_record(found: Trace, leg: Leg, difference: Difference) -> dict[str, Any]:
    place = difference.born.candidate.step.place
    sides = {
        "born": (difference.born.baseline, difference.born.candidate),
        "seen": (difference.seen.baseline, difference.seen.candidate),
    }
    return {
        "file": place.file or None,
        "line": place.line or None,
        "source": source_line(found.files[1], place.file, place.line) or None,
        "occurrence": difference.occurrence,
        "steps_back": difference.steps,
        "related": difference.related,
        **{
            which: {
                side: _moment(leg, n, moment)
                for n, (side, moment) in enumerate(zip(_SIDES, pair, strict=True))
            }
            for which, pair in sides.items()
        },
        "values": {
            side: [_moment(leg, n, moment) for moment in difference.lines[n]] for n, side in enumerate(_SIDES)
        },
    }


def _moment(leg: Leg, side: int, moment: Moment) -> dict[str, Any]:
    step = moment.step
    operands = []
    if step.kind is not Kind.LOAD:
        for index, (operand, origin) in enumerate(zip(step.operands, moment.origins, strict=True)):
            word = moment.bits(index)
            dtype = operand.dtype
            if step.kind is Kind.STORE and index == 0:
                continue
            operands.append(
                {
                    "text": operand.text,
                    "bits": None if word is None else _word(word, dtype),
                    "value": None if word is None else value_of(word, dtype),
                    "from": origin.step.text if origin else None,
                    "from_ptx_line": origin.step.ptx_line if origin else None,
                    "cell": _named(origin, leg.names[side]) if origin else None,
                }
            )
    return {
        "thread": list(coordinates(leg.wheres[side].stage.block, moment.thread)),
        "place": str(step.place) if step.place.known else None,
        "ptx_line": step.ptx_line,
        "instruction": step.text,
        "kind": step.kind.value,
        "dtype": step.dtype,
        "bits": _hex(moment),
        "value": value_of(moment.value, step.dtype),
        "cell": _named(moment, leg.names[side]),
        "operands": operands,
    }


def _named(moment: Moment, names: Names) -> str | None:
    """The element that an access reaches in global memory."""
    if moment.step.kind not in (Kind.LOAD, Kind.STORE) or moment.step.space in ("shared", "local", "param"):
        return None
    cell = names.get(moment.address) if moment.address is not None else None
    return None if cell is None else str(cell)
