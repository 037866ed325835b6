"""One kernel manifest: TOML tables → `Kernel`, with every key, type and value checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprodb.domain import (
    DTYPE_BYTES,
    Arg,
    ArgKind,
    Buffer,
    Case,
    Determinism,
    Dim3,
    Field,
    Input,
    Kernel,
    Pairs,
    Role,
    Stage,
)
from reprodb.suite.cases import CaseRules, read_case
from reprodb.suite.expressions import FORM, ExpressionError, evaluate, names_in
from reprodb.suite.sources import PLAIN_PATH_FORM, is_plain_path, resolve_inside
from reprodb.suite.tables import (
    IDENTIFIER_FORM,
    Problem,
    Table,
    collecting,
    is_identifier,
    is_size,
    shown,
    suggest,
)

MOST_GRID = 2**31 - 1
MOST_GRID_YZ = 65535
MOST_THREADS = 65536  # above CUDA's 1,024, so that a launch that fails can be written down
MOST_SHARED = 1 << 20  # bytes
MOST_TABLES = 1000  # buffers, stages or cases of a kernel


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


def read_kernel(root: Path, manifest: str, data: Mapping[str, Any]) -> tuple[Kernel | None, list[Problem]]:
    """The kernel of a parsed manifest, or None with the problems found. `manifest` is relative to `root`."""
    problems: list[Problem] = []
    top = Table(manifest, data, problems)
    top.expect(("kernel", "buffer", "stage", "case"))
    groups: dict[str, list[Table]] = {}
    for key in ("buffer", "stage", "case"):
        groups[key] = []
        with collecting(problems):
            groups[key] = _tables(top, key)
    kernel: Kernel | None = None
    with collecting(problems):
        head = Table(f"{manifest}: [kernel]", top.table("kernel"), problems)
        if "kernel" in data:
            kernel = _kernel(root, manifest, head, groups)
    return (None if problems else kernel), problems


def _tables(top: Table, key: str) -> list[Table]:
    if key not in top.data:
        return []  # expect() has said so
    value = top.data[key]
    if not isinstance(value, list) or not value or not all(isinstance(entry, dict) for entry in value):
        raise top.wrong(key, f"one or more [[{key}]] tables")
    if len(value) > MOST_TABLES:
        raise Problem(top.where, f"{len(value)} [[{key}]] tables", f"at most {MOST_TABLES}")
    return [Table(f"{top.where}: [[{key}]] {i}", entry, top.problems) for i, entry in enumerate(value, 1)]


def _kernel(root: Path, manifest: str, head: Table, groups: Mapping[str, list[Table]]) -> Kernel:
    problems = head.problems
    head.expect(
        ("name", "source", "operation", "determinism", "accumulator"),
        ("defines", "shape_defines", "order", "tags", "batch_invariant"),
    )
    defines: Pairs = ()
    numbers: dict[str, int] = {}
    with collecting(problems):
        defines, numbers = _defines(head)
    plans = _buffer_plans(groups["buffer"], numbers)
    cases = _cases(groups["case"], plans, numbers)
    inputs = _common_inputs(groups["case"], cases, problems)
    _check_names(manifest, inputs, plans, problems)
    # After problems in buffers or cases not every name is known: stages then complain of none.
    names_known = bool(inputs) and len(plans) == len(groups["buffer"]) > 0
    stages = _stages(groups["stage"], numbers, inputs, {p.name for p in plans} if names_known else None)
    used = _shape_names(head, groups, numbers)
    with collecting(problems):
        return Kernel(
            name=head.name("name"),
            source=_source(root, manifest, head),
            operation=head.text("operation"),
            determinism=head.enum("determinism", Determinism, [d.value for d in Determinism]),
            accumulator=head.choice("accumulator", DTYPE_BYTES),
            defines=defines,
            shape_defines=used,
            stages=tuple(stages),
            cases=tuple(cases),
            order=head.optional_text("order"),
            tags=head.texts("tags"),
            batch_invariant=head.flag("batch_invariant"),
            manifest=manifest,
        )
    raise problems.pop()


def _source(root: Path, manifest: str, head: Table) -> str:
    text = head.text("source")
    path = resolve_inside(root, (root / manifest).parent, text)
    if path is None:
        raise head.wrong("source", f"a file under {root}", "copy the file into the suite")
    if not path.is_file():
        raise head.wrong("source", "an existing file, named from the manifest's folder")
    shown = path.relative_to(root.resolve()).as_posix()
    if not is_plain_path(shown):
        raise head.wrong("source", PLAIN_PATH_FORM)
    return shown


def _defines(head: Table) -> tuple[Pairs, dict[str, int]]:
    """Defines as text for the compiler, sorted by name, and the whole numbers among them."""
    pairs, numbers = {}, {}
    for key, value in head.table("defines").items():
        if not is_identifier(key) or key == "n" or key.startswith("__"):
            raise Problem(head.where, f"define {key!r}", f"{IDENTIFIER_FORM}; not n, and no __ at its start")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise Problem(
                head.where, f"define {key} = {shown(value)}", "a number or a string; 1 and 0 for flags"
            )
        if isinstance(value, str) and not (value.isprintable() and len(value) <= 400):
            raise Problem(head.where, f"define {key} = {shown(value)}", "one line of text")
        pairs[key] = str(value)
        if isinstance(value, int):
            numbers[key] = value
    return tuple(sorted(pairs.items())), numbers


def _shape_names(
    head: Table, groups: Mapping[str, list[Table]], numbers: Mapping[str, int]
) -> tuple[str, ...]:
    """The defines that grids, blocks, shared memory and buffer sizes use, and those the manifest adds."""
    sizes: list[int | str] = []
    for table in (*groups["stage"], *groups["buffer"]):
        for key in ("grid", "block", "shared", "size", "shape"):
            value = table.data.get(key, [])
            sizes.extend(v for v in (value if isinstance(value, list) else [value]) if is_size(v))
    used = {name for size in sizes for name in names_in(size) if name in numbers}
    with collecting(head.problems):
        defines = head.table("defines")
        for name in head.texts("shape_defines"):
            if name not in defines:
                raise Problem(
                    head.where,
                    f"shape_defines names {name!r}",
                    ", ".join(defines) or "no defines are declared",
                    suggest(name, defines),
                )
            used.add(name)
    return tuple(sorted(used))


# --- Buffers -----------------------------------------------------------------------------------


def _buffer_plans(tables: list[Table], numbers: Mapping[str, int]) -> list[BufferPlan]:
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


# --- Cases and names ---------------------------------------------------------------------------


def _cases(tables: list[Table], plans: list[BufferPlan], numbers: Mapping[str, int]) -> list[Case]:
    cases: list[Case] = []
    for table in tables:
        with collecting(table.problems):
            cases.append(read_case(table, CaseRules(tuple(plans), numbers, frozenset(c.name for c in cases))))
    return cases


def _common_inputs(tables: list[Table], cases: list[Case], problems: list[Problem]) -> dict[str, Input]:
    """The inputs by name; every case of a kernel has the same names, since stages name them."""
    if not cases:
        return {}
    first = {i.name: i for i in cases[0].inputs}
    for table, case in zip(tables, cases, strict=False):
        if {i.name for i in case.inputs} != set(first):
            problems.append(
                Problem(
                    table.where,
                    f"inputs {sorted(i.name for i in case.inputs)}",
                    f"the names that the first case has: {sorted(first)}",
                )
            )
    return first


def _check_names(
    manifest: str, inputs: Mapping[str, Input], plans: list[BufferPlan], problems: list[Problem]
) -> None:
    taken = {"n": "the size", **dict.fromkeys(inputs, "an input")}
    for plan in plans:
        if plan.name in taken:
            problems.append(
                Problem(plan.where, f"name = {plan.name!r} is also {taken[plan.name]}", "a name of its own")
            )
        taken[plan.name] = "another buffer"
        source = plan.init.removeprefix("copy:")
        if source != plan.init and inputs and source not in inputs:
            problems.append(
                Problem(
                    plan.where,
                    f"init = {plan.init!r}: no input is called {source!r}",
                    ", ".join(inputs),
                    suggest(source, inputs),
                )
            )


# --- Stages ------------------------------------------------------------------------------------


def _stages(
    tables: list[Table], numbers: Mapping[str, int], inputs: Mapping[str, Input], buffers: set[str] | None
) -> list[Stage]:
    stages = []
    for table in tables:
        table.expect(("entry", "grid", "block", "args"), ("shared",))
        with collecting(table.problems):
            grid = _dim3(table, "grid", numbers, (MOST_GRID, MOST_GRID_YZ, MOST_GRID_YZ))
            block = _dim3(table, "block", numbers, (MOST_THREADS,) * 3)
            if block[0] * block[1] * block[2] > MOST_THREADS:
                raise table.wrong("block", f"at most {MOST_THREADS} threads, of which CUDA launches 1024")
            stages.append(
                Stage(
                    table.identifier("entry"),
                    grid,
                    block,
                    _args(table, inputs, buffers),
                    _resolved(table, "shared", table.size("shared", 0), numbers, (0, MOST_SHARED)),
                )
            )
    return stages


def _resolved(
    table: Table, key: str, size: int | str, numbers: Mapping[str, int], limits: tuple[int, int]
) -> int:
    """A launch constant. n is refused in it: a launch shape never follows the data or the device."""
    if "n" in names_in(size):
        raise table.wrong(key, "constants: a launch shape does not follow n", "write the number as a define")
    try:
        value = evaluate(size, numbers)
    except ExpressionError as error:
        known = ", ".join(numbers) or "none"
        close = [suggest(name, numbers) for name in names_in(size) if name not in numbers]
        remedy = "; ".join([str(error), *filter(None, close)])
        raise table.wrong(key, f"whole numbers, defines ({known}), sums and products", remedy) from None
    least, most = limits
    if not least <= value <= most:
        raise table.wrong(key, f"{least} to {most}", f"it is {value}" if isinstance(size, str) else "")
    return value


def _dim3(table: Table, key: str, numbers: Mapping[str, int], most: Dim3) -> Dim3:
    value = table.data.get(key)
    sizes = value if isinstance(value, list) else [value]
    if not 1 <= len(sizes) <= 3 or not all(is_size(s) for s in sizes):
        raise table.wrong(key, "one to three of: whole numbers, defines, sums and products")
    dims = [_resolved(table, key, s, numbers, (1, m)) for s, m in zip(sizes, most, strict=False)]
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


def _args(table: Table, inputs: Mapping[str, Input], buffers: set[str] | None) -> tuple[Arg, ...]:
    value = table.data.get("args")
    if not isinstance(value, list) or len(value) > 256:
        raise table.wrong("args", "a list of names and {value, dtype} scalars")
    known = (*inputs, "n", *sorted(buffers or ()))
    args = []
    for i, entry in enumerate(value, 1):
        if isinstance(entry, dict):
            args.append(_scalar(Table(f"{table.where}, argument {i}", entry, table.problems), i))
        elif entry == "n":
            args.append(Arg(ArgKind.SIZE, "n", "uint64"))
        elif isinstance(entry, str) and entry in inputs:
            args.append(Arg(ArgKind.INPUT, entry))
        elif isinstance(entry, str) and (buffers is None or entry in buffers):
            args.append(Arg(ArgKind.BUFFER, entry))
        else:
            raise Problem(
                table.where,
                f"args: unknown argument {shown(entry)}",
                f"{', '.join(known)}, or {{value = 1.5, dtype = 'float32'}}",
                suggest(entry, known) if isinstance(entry, str) else "",
            )
    return tuple(args)


def _scalar(part: Table, position: int) -> Arg:
    """A scalar's bytes, little endian, rounded once to its type: exactly one element of `constant`."""
    from reprodb.errors import UsageError
    from reprodb.inputs import generate, resolve

    part.expect(("value", "dtype"), ("name",))
    dtype = part.choice("dtype", DTYPE_BYTES)
    name = part.identifier("name") if "name" in part.data else f"arg{position}"
    if "value" not in part.data:
        raise part.wrong("value", "a number")
    try:
        element = generate(resolve(name, "constant", 1, dtype, {"value": part.data["value"]}))
    except UsageError as error:
        raise part.wrong("value", error.allowed, error.problem) from None
    return Arg(ArgKind.SCALAR, name, dtype, element.tobytes())
