"""The [[stage]] tables of a manifest: launches of constant shape or along BATCH, and their arguments."""

from __future__ import annotations

from collections.abc import Mapping

from reprodb.domain import DTYPE_BYTES, Arg, ArgKind, Dim3, Input, Stage
from reprodb.errors import UsageError
from reprodb.suite.composition import BATCH
from reprodb.suite.expressions import ExpressionError, evaluate, names_in
from reprodb.suite.tables import Problem, Table, collecting, is_size, shown, suggest

MOST_GRID = 2**31 - 1
MOST_GRID_YZ = 65535
MOST_THREADS = 65536  # above CUDA's 1,024, so that a launch that fails can be written down
MOST_SHARED = 1 << 20  # bytes


def read_stages(
    tables: list[Table],
    numbers: Mapping[str, int],
    inputs: Mapping[str, Input],
    buffers: set[str] | None,
    batches: tuple[int, ...] = (),
) -> list[Stage]:
    """The readable stages; what is wrong with others is noted. `buffers` is None where not all are known.

    `batches` are the sizes of a composition, which grids may follow and arguments name.
    """
    stages = []
    for table in tables:
        table.expect(("entry", "grid", "block", "args"), ("shared",))
        with collecting(table.problems):
            grid, per_batch = _grid(table, numbers, batches)
            block = _dim3(table, "block", numbers, (MOST_THREADS,) * 3)
            if block[0] * block[1] * block[2] > MOST_THREADS:
                raise table.wrong("block", f"at most {MOST_THREADS} threads, of which CUDA launches 1024")
            stages.append(
                Stage(
                    table.identifier("entry"),
                    grid,
                    block,
                    _args(table, inputs, buffers, batches),
                    _resolved(table, "shared", table.size("shared", 0), numbers, (0, MOST_SHARED)),
                    per_batch,
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


def _grid(
    table: Table, numbers: Mapping[str, int], batches: tuple[int, ...]
) -> tuple[Dim3, tuple[bool, bool, bool]]:
    """The grid at BATCH = 1, and which of its dimensions are multiplied by BATCH."""
    value = table.data.get("grid")
    sizes = value if isinstance(value, list) else [value]
    used = tuple(is_size(size) and BATCH in names_in(size) for size in sizes)
    if not any(used):
        return _dim3(table, "grid", numbers, (MOST_GRID, MOST_GRID_YZ, MOST_GRID_YZ)), (False,) * 3
    if not batches:
        raise table.wrong("grid", f"constants; {BATCH} in a manifest with a [composition]")
    most = (MOST_GRID, MOST_GRID_YZ, MOST_GRID_YZ)
    at_one, at_two, at_most = (
        _dim3(table, "grid", {**numbers, BATCH: batch}, most) for batch in (1, 2, max(batches))
    )
    x, y, z = (*used, False, False, False)[:3]
    for one, two, last, scaled in zip(at_one, at_two, at_most, (x, y, z), strict=True):
        if scaled and (two, last) != (2 * one, max(batches) * one):
            raise table.wrong(
                "grid", f"{BATCH}, or a constant multiplied by it, in a dimension that names it"
            )
    return at_one, (x, y, z)


def _dim3(table: Table, key: str, numbers: Mapping[str, int], most: Dim3) -> Dim3:
    value = table.data.get(key)
    sizes = value if isinstance(value, list) else [value]
    if not 1 <= len(sizes) <= 3 or not all(is_size(s) for s in sizes):
        raise table.wrong(key, "one to three of: whole numbers, defines, sums and products")
    dims = [_resolved(table, key, s, numbers, (1, m)) for s, m in zip(sizes, most, strict=False)]
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


def _args(
    table: Table, inputs: Mapping[str, Input], buffers: set[str] | None, batches: tuple[int, ...]
) -> tuple[Arg, ...]:
    value = table.data.get("args")
    if not isinstance(value, list) or len(value) > 256:
        raise table.wrong("args", "a list of names and {value, dtype} scalars")
    known = (*inputs, "n", *([BATCH] if batches else ()), *sorted(buffers or ()))
    args = []
    for i, entry in enumerate(value, 1):
        if isinstance(entry, dict):
            args.append(_scalar(Table(f"{table.where}, argument {i}", entry, table.problems), i))
        elif entry == "n":
            args.append(Arg(ArgKind.SIZE, "n", "uint64"))
        elif entry == BATCH and batches:
            args.append(Arg(ArgKind.BATCH, BATCH, "uint64"))
        elif isinstance(entry, str) and entry in inputs:
            args.append(Arg(ArgKind.INPUT, entry))
        elif isinstance(entry, str) and (buffers is None or entry in buffers):
            args.append(Arg(ArgKind.BUFFER, entry))
        else:
            raise Problem(
                table.where,
                f"args: unknown argument {shown(entry)}",
                f"{', '.join(known)}, or {{value = 1.5, dtype = 'float32'}}",
                suggest(entry, known),
            )
    return tuple(args)


def _scalar(part: Table, position: int) -> Arg:
    """A scalar's bytes, little endian, rounded once to its type: exactly one element of `constant`."""
    from reprodb.inputs import generate, resolve

    part.expect(("dtype",), ("value", "bits", "name"))
    dtype = part.choice("dtype", DTYPE_BYTES)
    name = part.identifier("name") if "name" in part.data else f"arg{position}"
    given = {key: part.data[key] for key in ("value", "bits") if key in part.data}
    try:
        element = generate(resolve(name, "constant", 1, dtype, given))
    except UsageError as error:
        raise Problem(part.where, error.problem, error.allowed, error.remedy) from None
    return Arg(ArgKind.SCALAR, name, dtype, element.tobytes())
