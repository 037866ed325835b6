"""The `fingerprint` of a manifest: how the order of summation is measured, where a kernel asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reprodb.domain import Input, OrderProbe, Role
from reprodb.suite.buffers import BufferPlan
from reprodb.suite.defines import read_defines
from reprodb.suite.tables import Problem, Table, suggest

_FORM = "true, or {input = 'x', output = 'total', element = 0, defines = {…}}, of which all may be left out"


def read_probe(
    head: Table, inputs: Mapping[str, Input], plans: Sequence[BufferPlan], shaping: Iterable[str]
) -> OrderProbe | None:
    """The probe of a [kernel] table, its names checked; None where there is none.

    The first input and the first result are taken where none is named. `shaping` are the defines that launch
    shapes use: the probing build must have the same.
    """
    value = head.data.get("fingerprint", False)
    results = [plan.name for plan in plans if plan.role is Role.RESULT]
    if value is False or not inputs or not results:
        return None
    if value is not True and not isinstance(value, dict):
        raise head.wrong("fingerprint", _FORM)
    table = Table(f"{head.where}, fingerprint", {} if value is True else value, head.problems)
    table.expect((), ("input", "output", "element", "defines"))
    element = table.data.get("element", 0)
    if not isinstance(element, int) or isinstance(element, bool) or not 0 <= element < 1 << 40:
        raise table.wrong("element", "the number of an element, from 0")
    defines, _ = read_defines(table)
    for name, _ in defines:
        if name in shaping:
            raise Problem(table.where, f"define {name!r}", "defines that no launch shape uses")
    return OrderProbe(_named(table, "input", inputs), _named(table, "output", results), element, defines)


def _named(table: Table, key: str, known: Iterable[str]) -> str:
    known = tuple(known)
    value = table.data.get(key, known[0])
    if value not in known:
        raise table.wrong(key, ", ".join(known), suggest(value, known))
    return str(value)
