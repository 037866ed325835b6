"""The [[buffer]] tables of a manifest: what is declared, and what waits for a case's n."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprodb.domain import DTYPE_BYTES, Buffer, Determinism, Field, Role
from reprodb.suite.expressions import FORM, ExpressionError, evaluate
from reprodb.suite.tables import Problem, Table, collecting, is_identifier, is_size


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """A buffer as declared: its sizes wait for the case's n."""

    where: str
    name: str
    dtype: str
    shape: tuple[int | str, ...]
    role: Role
    init: str
    determinism: Determinism | None
    fields: tuple[Field, ...]
    itemsize: int

    def sized(self, names: Mapping[str, int]) -> Buffer:
        """The buffer with its shape at `names` (defines and n). Raises Problem for a size below 0."""
        try:
            shape = tuple(evaluate(size, names) for size in self.shape)
        except ExpressionError as error:
            raise Problem(self.where, f"size of {self.name!r}: {error}", FORM) from None
        if any(size < 0 for size in shape):
            raise Problem(self.where, f"size {list(shape)} of {self.name!r}", "0 or more elements")
        return Buffer(
            self.name, self.dtype, shape, self.role, self.init, self.determinism, self.fields, self.itemsize
        )


def read_buffers(tables: list[Table], numbers: Mapping[str, int]) -> list[BufferPlan]:
    """The readable buffers; what is wrong with others, or with all of them together, is noted."""
    plans = []
    for table in tables:
        table.expect(
            ("name", "dtype", "role"), ("size", "shape", "init", "determinism", "fields", "itemsize")
        )
        with collecting(table.problems):
            plans.append(_buffer_plan(table, numbers))
    if tables and not any(t.data.get("role") == Role.RESULT for t in tables):
        where = tables[0].where.rsplit(":", 1)[0]
        tables[0].problems.append(
            Problem(where, "no buffer has role = 'result'", "at least one result buffer")
        )
    return plans


def _buffer_plan(table: Table, numbers: Mapping[str, int]) -> BufferPlan:
    name = table.identifier("name")
    dtype = table.choice("dtype", (*DTYPE_BYTES, "struct"))
    fields: tuple[Field, ...] = ()
    itemsize = 0
    if dtype == "struct":
        itemsize = _whole(table, "itemsize", 1, 4096)
        fields = _fields(table, itemsize)
    elif "fields" in table.data or "itemsize" in table.data:
        raise Problem(table.where, f"fields of dtype {dtype!r}", "fields and itemsize with dtype = 'struct'")
    determinism = None
    if "determinism" in table.data:
        determinism = table.enum("determinism", Determinism, [d.value for d in Determinism])
    role = table.enum("role", Role, [r.value for r in Role])
    return BufferPlan(
        table.where, name, dtype, _shape(table, numbers), role, _init(table), determinism, fields, itemsize
    )


def _whole(table: Table, key: str, least: int, most: int) -> int:
    value = table.data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise table.wrong(key, f"a whole number from {least} to {most}")
    return value


def _shape(table: Table, numbers: Mapping[str, int]) -> tuple[int | str, ...]:
    """The declared sizes; names in them are defines or n, checked here so that n alone waits for a case."""
    if ("size" in table.data) == ("shape" in table.data):
        raise Problem(table.where, "needs one of size and shape", "size = 1, or shape = [4, 8]")
    key = "size" if "size" in table.data else "shape"
    value = table.data[key]
    sizes = [value] if key == "size" else value
    if not isinstance(sizes, list) or not 1 <= len(sizes) <= 4 or not all(is_size(s) for s in sizes):
        raise table.wrong(key, FORM if key == "size" else f"one to four of: {FORM}")
    for size in sizes:
        try:
            evaluate(size, {**numbers, "n": 0})
        except ExpressionError as error:
            raise table.wrong(key, FORM, str(error)) from None
    return tuple(sizes)


def _init(table: Table) -> str:
    value = table.text("init", "poison")
    if value not in ("poison", "zero") and not (value.startswith("copy:") and is_identifier(value[5:])):
        raise table.wrong("init", "poison, zero or copy:INPUT")
    return value


def _fields(table: Table, itemsize: int) -> tuple[Field, ...]:
    entries = table.data.get("fields")
    if not isinstance(entries, list) or not 1 <= len(entries) <= 256:
        raise table.wrong("fields", "a list of {name, dtype, offset}")
    fields: list[Field] = []
    end = 0
    for i, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise table.wrong("fields", "a list of {name, dtype, offset}")
        part = Table(f"{table.where}, field {i}", entry, table.problems)
        part.expect(("name", "dtype", "offset"))
        name, dtype = part.identifier("name"), part.choice("dtype", DTYPE_BYTES)
        last = itemsize - DTYPE_BYTES[dtype]
        if last < end:
            raise Problem(part.where, f"{name!r} does not fit", f"{itemsize} bytes in all")
        offset = _whole(part, "offset", end, last)
        if name in (f.name for f in fields):
            raise Problem(part.where, f"second field {name!r}", "each name once")
        fields.append(Field(name, dtype, offset))
        end = offset + DTYPE_BYTES[dtype]
    return tuple(fields)
