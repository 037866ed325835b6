"""One kernel manifest: TOML tables → `Kernel`, with every key, type and value checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprodb.domain import (
    DTYPE_BYTES,
    Case,
    Composition,
    Determinism,
    Input,
    Kernel,
    OrderProbe,
    Pairs,
    Program,
)
from reprodb.suite.buffers import BufferPlan, read_buffers
from reprodb.suite.cases import CaseRules, read_case
from reprodb.suite.composition import (
    PROBES,
    CompositionPlan,
    check_rows,
    check_stages,
    in_parts,
    read_composition,
)
from reprodb.suite.defines import read_defines
from reprodb.suite.expressions import names_in
from reprodb.suite.probe import read_probe
from reprodb.suite.program import ALLOWED, CUDA, NEEDED, kind_of, read_program, source_of
from reprodb.suite.stages import read_stages
from reprodb.suite.tables import (
    Problem,
    Table,
    collecting,
    is_size,
    suggest,
)

MOST_TABLES = 1000  # buffers, stages or cases of a kernel

# What a size of a kernel with `device_derived = true` may use beside defines.
SM_COUNT = "SM_COUNT"
# The multiprocessors that the model stands for: those of an H100 SXM and of an H200.
MODEL_SM_COUNT = 132


def read_kernel(
    root: Path, manifest: str, data: Mapping[str, Any], sm_count: int = MODEL_SM_COUNT
) -> tuple[Kernel | None, list[Problem]]:
    """The kernel of a parsed manifest, or None with the problems found. `manifest` is relative to `root`.

    `sm_count` is the device's number of multiprocessors, which device-derived shapes follow.
    """
    problems: list[Problem] = []
    top = Table(manifest, data, problems)
    kind = kind_of(data)
    staged = ("stage",) if kind == CUDA else ()
    top.expect(("kernel", "buffer", *staged, "case"), ("composition",) if staged else ())
    groups: dict[str, list[Table]] = {}
    groups["stage"] = []
    for key in ("buffer", *staged, "case"):
        groups[key] = []
        with collecting(problems):
            groups[key] = _tables(top, key)
    kernel: Kernel | None = None
    with collecting(problems):
        head = Table(f"{manifest}: [kernel]", top.table("kernel"), problems)
        if "kernel" in data:
            kernel = _kernel(root, top, head, groups, sm_count)
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


def _kernel(root: Path, top: Table, head: Table, groups: Mapping[str, list[Table]], sm_count: int) -> Kernel:
    problems, manifest = head.problems, top.where
    kind = kind_of(top.data)
    head.expect(
        ("name", *NEEDED[kind], "operation", "determinism", "accumulator"),
        (
            "kind",
            *ALLOWED[kind],
            "defines",
            "shape_defines",
            "order",
            "tags",
            "teaches",
            "no_reference",
            "batch_invariant",
            "device_derived",
            "atomics",
            "fingerprint",
        ),
    )
    defines: Pairs = ()
    numbers: dict[str, int] = {}
    with collecting(problems):
        defines, numbers = read_defines(head)
    derived, noted = False, len(problems)
    with collecting(problems):
        derived = _device_derived(head, groups, numbers)
    if derived or len(problems) > noted:  # after a problem with it sizes still know SM_COUNT
        numbers = {SM_COUNT: sm_count, **numbers}
    composed: CompositionPlan | None = None
    with collecting(problems):
        composed = read_composition(top, numbers)
    # After a problem in a composition sizes still know PROBES and BATCH: one mistake is one complaint.
    probes, batches = (composed.declared.probes, composed.declared.batches) if composed else (1, (1,))
    serves = "composition" in top.data
    sizes = {**numbers, PROBES: probes} if serves else numbers
    plans = read_buffers(groups["buffer"], sizes)
    cases = _cases(groups["case"], plans, sizes)
    inputs = _common_inputs(groups["case"], cases, problems)
    _check_names(manifest, inputs, plans, problems)
    composition = None
    if composed is not None:
        composition = _composition(composed, groups["case"], inputs, plans, cases, problems)
    # After problems in buffers or cases not every name is known: stages then complain of none.
    names_known = bool(inputs) and len(plans) == len(groups["buffer"]) > 0
    names = {p.name for p in plans} if names_known else None
    stages = read_stages(groups["stage"], numbers, inputs, names, batches if serves else ())
    if composition is not None:
        with collecting(problems):
            check_stages(manifest, stages, composition)
        if not head.data.get("batch_invariant"):
            cases = [in_parts(case, composition) for case in cases]
    used = _shape_names(head, groups, numbers)
    probe: OrderProbe | None = None
    with collecting(problems):
        probe = read_probe(head, inputs, plans, used)
        if probe is not None and composed is not None:
            raise head.wrong(
                "fingerprint", "none beside a [composition]: an order is probed launch by launch"
            )
    program: Program | None = None
    with collecting(problems):
        program = read_program(root, head, kind, inputs, plans)
    with collecting(problems):
        return Kernel(
            name=head.name("name"),
            source=source_of(root, manifest, head, kind),
            operation=head.text("operation"),
            determinism=head.enum("determinism", Determinism, [d.value for d in Determinism]),
            accumulator=head.choice("accumulator", DTYPE_BYTES),
            defines=defines,
            shape_defines=used,
            stages=tuple(stages),
            cases=tuple(cases),
            order=head.optional_text("order"),
            tags=head.texts("tags"),
            teaches=head.optional_text("teaches") or "",
            no_reference=head.optional_text("no_reference") or "",
            batch_invariant=head.flag("batch_invariant"),
            manifest=manifest,
            sm_count=sm_count if derived else None,
            atomics=head.text("atomics") if "atomics" in head.data else "",
            composition=composition,
            fingerprint=probe,
            program=program,
        )
    raise problems.pop()


def _device_derived(head: Table, groups: Mapping[str, list[Table]], numbers: Mapping[str, int]) -> bool:
    """Whether sizes follow the device: the manifest must say so, and then promises nothing across GPUs."""
    derived = head.flag("device_derived")
    used = SM_COUNT in _names_in_sizes(groups)
    if not derived:
        if used and SM_COUNT not in numbers:
            raise Problem(
                head.where,
                f"{SM_COUNT} in a size",
                "defines; the device's number of multiprocessors with device_derived = true",
                "say device_derived = true, or write the number as a define",
            )
        return False
    if SM_COUNT in numbers:
        raise Problem(head.where, f"define {SM_COUNT!r}", f"with device_derived, {SM_COUNT} is the device's")
    if not used:
        raise head.wrong("device_derived", f"a size that uses {SM_COUNT}", "leave device_derived out")
    tables = (head, *groups["buffer"])
    claims = [t for t in tables if t.data.get("determinism") == Determinism.GPU_TO_GPU]
    if claims:
        raise claims[0].wrong(
            "determinism",
            "not_guaranteed or run_to_run: a shape that follows the device is another order on another GPU",
            "make the shape constant, or claim less",
        )
    return True


def _names_in_sizes(groups: Mapping[str, list[Table]]) -> set[str]:
    """The names that grids, blocks, shared memory and buffers use."""
    sizes: list[object] = []
    for table in (*groups["stage"], *groups["buffer"]):
        for key in ("grid", "block", "shared", "size", "shape"):
            value = table.data.get(key, [])
            sizes += value if isinstance(value, list) else [value]
    return {name for size in sizes if is_size(size) for name in names_in(size)}


def _shape_names(
    head: Table, groups: Mapping[str, list[Table]], numbers: Mapping[str, int]
) -> tuple[str, ...]:
    """The defines that grids, blocks, shared memory and buffer sizes use, and those the manifest adds."""
    used = {name for name in _names_in_sizes(groups) if name in numbers and name != SM_COUNT}
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


# --- Cases and names ---------------------------------------------------------------------------


def _cases(tables: list[Table], plans: list[BufferPlan], numbers: Mapping[str, int]) -> list[Case]:
    cases: list[Case] = []
    for table in tables:
        with collecting(table.problems):
            cases.append(read_case(table, CaseRules(tuple(plans), numbers, frozenset(c.name for c in cases))))
    return cases


def _composition(
    composed: CompositionPlan,
    tables: list[Table],
    inputs: Mapping[str, Input],
    plans: list[BufferPlan],
    cases: list[Case],
    problems: list[Problem],
) -> Composition | None:
    """The composition, checked against every case; None where something is wrong, which is noted."""
    try:
        composition = composed.over(inputs, plans)
        for table, case in zip(tables, cases, strict=False):
            check_rows(table, case, composition)
    except Problem as problem:
        problems.append(problem)
        return None
    return composition


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
