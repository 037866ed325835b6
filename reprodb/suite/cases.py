"""One [[case]] of a manifest: inputs, sizes, reference and pinned bits."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from reprodb.domain import DTYPE_BYTES, Buffer, Case, Input, Pairs, Role
from reprodb.errors import UsageError
from reprodb.suite.buffers import BufferPlan
from reprodb.suite.tables import (
    IDENTIFIER_FORM,
    LONGEST_NAME,
    NAME_FORM,
    Problem,
    Table,
    is_identifier,
    is_name,
    shown,
    suggest,
)

MOST_N = 1 << 40
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MOST_BYTES = 1 << 41  # of one case's inputs and buffers: more is a slip of the keyboard
DEFAULT_INPUT = "x"


@dataclass(frozen=True, slots=True)
class CaseRules:
    """What a case is read against: the kernel's buffers and numeric defines, and the names already taken."""

    buffers: tuple[BufferPlan, ...]
    numbers: Mapping[str, int]
    taken: frozenset[str]


def read_case(table: Table, rules: CaseRules) -> Case:
    """The case of a [[case]] table. Raises Problem; unknown and missing keys are noted in the table."""
    table.expect(("n",), ("name", "input", "inputs", "reference", "rel_tol", "expected"))
    n = _count(table, "n")
    inputs = _inputs(table, n)
    buffers = tuple(plan.sized({**rules.numbers, "n": n}) for plan in rules.buffers)
    _check_memory(table, inputs, buffers)
    reference, rel_tol = _reference(table, inputs, buffers)
    return Case(
        name=_name(table, inputs, n, rules.taken),
        n=n,
        inputs=inputs,
        buffers=buffers,
        reference=reference,
        rel_tol=rel_tol,
        expected=_expected(table, buffers),
    )


def _count(table: Table, key: str) -> int:
    value = table.data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_N:
        raise table.wrong(key, f"a whole number from 0 to {MOST_N}")
    return value


def _inputs(table: Table, n: int) -> tuple[Input, ...]:
    if ("input" in table.data) == ("inputs" in table.data):
        raise Problem(
            table.where,
            "needs one of input and inputs",
            "input = 'ramp1000', or inputs = {x = 'normal', y = {pattern = 'normal', seed = 1}}",
        )
    named = {DEFAULT_INPUT: table.data["input"]} if "input" in table.data else table.table("inputs")
    if not named or len(named) > 64:
        raise table.wrong("inputs", "1 to 64 inputs by name")
    return tuple(_input(table, name, value, n) for name, value in named.items())


def _input(table: Table, name: str, value: object, n: int) -> Input:
    from reprodb.inputs import resolve

    if not is_identifier(name) or name == "n":
        raise Problem(table.where, f"input {name!r}", f"{IDENTIFIER_FORM} other than n, which is the size")
    words = {"pattern": value} if isinstance(value, str) else value
    where = f"{table.where}, input {name}"
    if not isinstance(words, dict) or not isinstance(words.get("pattern"), str):
        raise Problem(where, shown(value), "a pattern's name, or {pattern = 'normal', seed = 68}")
    part = Table(where, words)
    count = _count(part, "n") if "n" in words else n
    dtype = part.choice("dtype", DTYPE_BYTES) if "dtype" in words else "float32"
    params = {k: v for k, v in words.items() if k not in ("pattern", "n", "dtype")}
    try:
        return resolve(name, str(words["pattern"]), count, dtype, params)
    except UsageError as error:
        raise Problem(where, error.problem, error.allowed, error.remedy) from None


def _check_memory(table: Table, inputs: tuple[Input, ...], buffers: tuple[Buffer, ...]) -> None:
    total = sum(i.n * DTYPE_BYTES[i.dtype] for i in inputs) + sum(b.nbytes for b in buffers)
    if total > MOST_BYTES:
        raise Problem(
            table.where, f"n = {table.data['n']} asks for {total} bytes", f"at most {MOST_BYTES} in all"
        )


def _name(table: Table, inputs: tuple[Input, ...], n: int, taken: frozenset[str]) -> str:
    from reprodb.inputs import label

    if "name" in table.data:
        name = table.name("name")
    else:
        labels = dict.fromkeys(label(i) if i.n == n else f"{label(i)}-{i.n}" for i in inputs)
        name = f"{'_'.join(labels)}-{n}"
        if not is_name(name):
            raise Problem(
                table.where,
                f"the case's own name {shown(name)} is no name",
                f"name = …: {NAME_FORM}"
                if len(name) <= LONGEST_NAME
                else f"at most {LONGEST_NAME} characters",
                "give the case a name",
            )
    if name in taken:
        raise Problem(
            table.where, f"second case {name!r}", "each name once", "give the case a name of its own"
        )
    return name


def _reference(
    table: Table, inputs: tuple[Input, ...], buffers: tuple[Buffer, ...]
) -> tuple[str | None, float | None]:
    if "reference" not in table.data:
        if "rel_tol" in table.data:
            raise table.wrong("rel_tol", "rel_tol beside a reference", "name the reference")
        return None, None
    from reprodb.accuracy import REFERENCES

    name = table.data["reference"]
    if not isinstance(name, str) or name not in REFERENCES:
        raise table.wrong("reference", ", ".join(REFERENCES), suggest(name, REFERENCES))
    tolerance = table.data.get("rel_tol")
    if (
        not isinstance(tolerance, int | float)
        or isinstance(tolerance, bool)
        or not 0 <= tolerance <= sys.float_info.max
    ):
        raise table.wrong("rel_tol", "a finite number of at least 0, with every reference")
    result = next((b for b in buffers if b.role is Role.RESULT), None)
    if result is not None:
        problem = REFERENCES[name].misfit(inputs, result)
        if problem:
            raise table.wrong("reference", problem)
    return name, float(tolerance)


def _expected(table: Table, buffers: tuple[Buffer, ...]) -> Pairs:
    """Pinned bits by buffer: `0x` and two digits a byte, as one number (most significant byte first).

    Bits of any buffer may be pinned by the SHA-256 of its pattern, `sha256:` and 64 digits.
    """
    recorded = {b.name: b for b in buffers if b.role is not Role.SCRATCH}
    pairs = []
    for name, bits in table.table("expected").items():
        buffer = recorded.get(name)
        if buffer is None:
            raise Problem(
                table.where,
                f"expected names {name!r}",
                f"a result or witness: {', '.join(recorded)}",
                suggest(name, recorded),
            )
        if isinstance(bits, str) and bits.startswith("sha256:"):
            if not _DIGEST.fullmatch(bits):
                raise Problem(
                    table.where, f"expected {name} = {shown(bits)}", "sha256: and 64 digits, a to f small"
                )
            pairs.append((name, bits))
            continue
        if buffer.elements != 1 or buffer.fields:
            raise Problem(
                table.where,
                f"expected pins {name!r}",
                "buffers of one element that is no struct, or 'sha256:…'",
            )
        digits = 2 * buffer.element_bytes
        try:
            value = int(bits, 16) if isinstance(bits, str) and bits.startswith("0x") else -1
        except ValueError:
            value = -1
        if value < 0 or len(bits) != 2 + digits:
            raise Problem(
                table.where, f"expected {name} = {shown(bits)}", f"0x and {digits} hexadecimal digits"
            )
        pairs.append((name, f"0x{value:0{digits}x}"))
    return tuple(pairs)
