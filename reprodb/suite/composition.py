"""The [composition] table of a manifest: requests that are served in ever other batches."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from reprodb.domain import ArgKind, Case, Composition, Input, Kernel, Role, Stage
from reprodb.suite.buffers import BufferPlan
from reprodb.suite.tables import Problem, Table, is_name, shown, suggest

# The launch parameter that grids and arguments may name, and the first size of a buffer with a row a request.
BATCH = "BATCH"
PROBES = "PROBES"

MOST_REQUESTS = 1 << 20
MOST_BATCH = 65535  # what CUDA launches along y
MOST_BATCHES = 1000


@dataclass(frozen=True, slots=True)
class CompositionPlan:
    """A composition as declared: its buffers are not known yet."""

    where: str
    input: str
    declared: Composition

    def over(self, inputs: Mapping[str, Input], buffers: Sequence[BufferPlan]) -> Composition:
        """The composition with its rows: the input's, and those of the buffers that begin with PROBES."""
        if inputs and self.input not in inputs:
            raise Problem(
                self.where,
                f"input = {self.input!r}: no input is called so",
                ", ".join(inputs),
                suggest(self.input, inputs),
            )
        rows = tuple(plan.name for plan in buffers if has_rows(plan))
        if buffers and not rows:
            raise Problem(
                self.where,
                "no buffer has a row a request",
                f"at least one buffer whose shape begins with '{PROBES}'",
            )
        return replace(self.declared, rows=(self.input, *rows))


def has_rows(plan: BufferPlan) -> bool:
    return plan.shape[0] == PROBES


def read_composition(top: Table, defines: Mapping[str, int]) -> CompositionPlan | None:
    """The [composition] of a manifest, None without one. Raises Problem; wrong keys are noted."""
    if "composition" not in top.data:
        return None
    table = Table(f"{top.where}: [composition]", top.table("composition"), top.problems)
    table.expect(("input", "requests", "probes", "batches"), ("strangers", "seed", "serial"))
    for name in (BATCH, PROBES):
        if name in defines:
            raise Problem(table.where, f"define {name!r}", f"with a composition, {name} is its own")
    requests = _count(table, "requests", 1, MOST_REQUESTS)
    probes = _count(table, "probes", 1, requests)
    strangers = _count(table, "strangers", 0, MOST_REQUESTS, probes)
    return CompositionPlan(
        table.where,
        table.identifier("input"),
        Composition(
            requests,
            probes,
            strangers,
            _batches(table),
            _count(table, "seed", 0, 2**63 - 1, 0),
            rows=(),
            serial=_serial(table),
        ),
    )


def _count(table: Table, key: str, least: int, most: int, default: int | None = None) -> int:
    value = table.data.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise table.wrong(key, f"a whole number from {least} to {most}")
    return value


def _batches(table: Table) -> tuple[int, ...]:
    value = table.data.get("batches")
    sound = (
        isinstance(value, list)
        and 1 <= len(value) <= MOST_BATCHES
        and len(set(map(str, value))) == len(value)
    )
    if not sound or not all(type(size) is int and 1 <= size <= MOST_BATCH for size in value or ()):
        raise table.wrong("batches", f"a list of different sizes from 1 to {MOST_BATCH}: [1, 3, 8]")
    return tuple(value or ())


def _serial(table: Table) -> str | None:
    if "serial" not in table.data:
        return None
    if not is_name(table.data["serial"]):
        raise table.wrong("serial", "the name of a kernel of the suite that serves one request a launch")
    return table.name("serial")


def check_rows(table: Table, case: Case, composition: Composition) -> None:
    """Raises Problem where a case and a composition do not go together.

    An input is a whole number of rows; no buffer copies rows of requests; references know nothing of probes.
    """
    if case.reference is not None:
        raise Problem(
            table.where,
            f"reference = {case.reference!r} beside a [composition]",
            "no reference",
            "pin the bits: expected = { y = 'sha256:…' }, or name a serial kernel that has a reference",
        )
    for wanted in case.inputs:
        if wanted.name == composition.rows[0] and (wanted.n == 0 or wanted.n % composition.requests):
            raise Problem(
                table.where,
                f"input {wanted.name!r} has {wanted.n} elements",
                f"a row for each of the {composition.requests} requests",
            )
    for buffer in case.buffers:
        rows = buffer.name in composition.rows or buffer.init == f"copy:{composition.rows[0]}"
        if rows and buffer.init.startswith("copy:"):
            raise Problem(
                table.where,
                f"buffer {buffer.name!r} has init = {shown(buffer.init)}",
                "poison or zero: rows are served in another order each time",
            )


def in_parts(case: Case, composition: Composition) -> Case:
    """The case of a kernel that promises no batch invariance: what is recorded has one part a batch size."""
    parts = len(composition.batches)
    buffers = (b if b.role is Role.SCRATCH else replace(b, shape=(parts, *b.shape)) for b in case.buffers)
    return replace(case, buffers=tuple(buffers))


def check_stages(where: str, stages: Sequence[Stage], composition: Composition) -> None:
    """Raises Problem where launches of several requests are asked for and no stage hears of their number."""
    follows = any(any(s.per_batch) or any(a.kind is ArgKind.BATCH for a in s.args) for s in stages)
    if stages and max(composition.batches) > 1 and not follows:
        raise Problem(
            f"{where}: [composition]",
            f"no stage follows {BATCH}",
            f"a grid or an argument that names {BATCH}, or batches = [1]",
        )


def check_serials(kernels: Sequence[Kernel], unread: Container[str] = ()) -> list[Problem]:
    """What is wrong with the kernels that compositions name as their serial ones, but for unread ones."""
    known = {kernel.name: kernel for kernel in kernels}
    problems = []
    for kernel in kernels:
        name = kernel.composition.serial if kernel.composition is not None else None
        if name is None or (name in unread and name not in known):
            continue
        serial = known.get(name)
        where = f"{kernel.manifest}: [composition]"
        if serial is None:
            others = [n for n in known if n != kernel.name]
            problems.append(
                Problem(
                    where,
                    f"serial = {name!r}: the suite has no such kernel",
                    ", ".join(others),
                    suggest(name, others),
                )
            )
        elif serial.composition is None or serial.composition.batches != (1,):
            problems.append(
                Problem(
                    where,
                    f"serial = {name!r} does not serve one request a launch",
                    "a kernel with batches = [1]",
                )
            )
        elif serial.composition.probes != kernel.composition.probes:  # type: ignore[union-attr]
            problems.append(
                Problem(
                    where,
                    f"serial = {name!r} has {serial.composition.probes} probes",
                    f"as many as this kernel: {kernel.composition.probes}",  # type: ignore[union-attr]
                )
            )
    return problems
