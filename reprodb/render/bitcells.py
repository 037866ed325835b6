"""Bits of both sides of an element as sign, exponent and fraction, the changed ones marked."""

from dataclasses import dataclass

from reprodb.findings import ElementDelta

# Widths of sign, exponent and fraction in bits.
_FLOATS = {"float16": (1, 5, 10), "bfloat16": (1, 8, 7), "float32": (1, 8, 23), "float64": (1, 11, 52)}


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring bits of one field that all changed or all did not."""

    digits: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a pattern: sign, exponent, fraction, or the plain bits of an integer."""

    name: str
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """Both sides of an element, field by field, and the numbers of the changed bits (0 is the lowest)."""

    before: tuple[Field, ...]
    after: tuple[Field, ...]
    changed: tuple[int, ...]


def cells(element: ElementDelta, dtype: str) -> Cells | None:
    """The cells of an element of `dtype`; None where its bits are not two hex words of one width."""
    try:
        digits = tuple(_binary(text) for text in (element.before, element.after))
    except ValueError:
        return None
    before, after = digits
    if len(before) != len(after):
        return None
    differs = [a != b for a, b in zip(before, after, strict=True)]
    widths = _FLOATS.get(dtype)
    named: tuple[tuple[str, int], ...] = (("bits", len(before)),)
    if widths and sum(widths) == len(before):
        named = tuple(zip(("sign", "exponent", "fraction"), widths, strict=True))
    changed = tuple(len(before) - 1 - place for place, moved in enumerate(differs) if moved)
    return Cells(_fields(before, differs, named), _fields(after, differs, named), changed)


def _binary(text: str) -> str:
    digits = text.removeprefix("0x")
    if not digits or len(digits) > 16:
        raise ValueError(text)
    return f"{int(digits, 16):0{4 * len(digits)}b}"


def _fields(digits: str, differs: list[bool], widths: tuple[tuple[str, int], ...]) -> tuple[Field, ...]:
    fields, start = [], 0
    for name, width in widths:
        fields.append(Field(name, _runs(digits[start : start + width], differs[start : start + width])))
        start += width
    return tuple(fields)


def _runs(digits: str, differs: list[bool]) -> tuple[Run, ...]:
    runs: list[Run] = []
    for digit, changed in zip(digits, differs, strict=True):
        if runs and runs[-1].changed == changed:
            runs[-1] = Run(runs[-1].digits + digit, changed)
        else:
            runs.append(Run(digit, changed))
    return tuple(runs)
