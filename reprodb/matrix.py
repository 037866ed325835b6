"""The profile matrix: which profiles of a run agree, by bits and by code."""

from __future__ import annotations

from collections.abc import Mapping

from reprodb.digest import content_key, hex64
from reprodb.domain import Code, Lane, Result, Run, Status
from reprodb.findings import MatrixGroup, MatrixRow

Row = tuple[str, str, str, str, str]
References = Mapping[Row, tuple[Result, Run | None, str]]
# What two results agree on: every recorded output's patterns as a set, by name.
Key = tuple[tuple[str, frozenset[str]], ...]


def code_key(code: Code | None, lane: Lane) -> tuple[str, ...] | None:
    """What identifies code on a lane: instructions and constants; on the model, without them, the PTX.

    None where it is unknown. PTX alone says nothing of what a GPU ran.
    """
    if code is None:
        return None
    if code.sass is not None and code.constants is not None:
        return (code.sass, code.constants)
    return (code.ptx,) if code.ptx is not None and lane is Lane.MODELLED else None


def _key(result: Result) -> Key:
    return tuple((o.name, frozenset(p.sha256 for p in o.patterns)) for o in result.outputs)


def _group(
    results: list[Result], names: dict[int, str], references: References, wanted: set[Key]
) -> MatrixGroup:
    first = results[0]
    outputs = first.results
    witnesses = first.witnesses
    top = outputs[0] if outputs else None
    bits = (top.first_bits or top.sha256[:16]) if top else ""
    if len(outputs) > 1:
        bits = content_key("reprodb.matrix", *(o.sha256 for o in outputs))[:16]
    return MatrixGroup(
        profiles=tuple(names[id(r)] for r in results),
        bits=bits,
        run_hash=hex64(top.run_hash) if top else "",
        witness=content_key("reprodb.matrix", *(o.sha256 for o in witnesses))[:16] if witnesses else "",
        distinct=max((o.distinct for o in outputs), default=0),
        reference=_key(first) in wanted,
        unreferenced=tuple(names[id(r)] for r in results if r.row not in references),
    )


def _inert(results: list[Result], names: dict[int, str]) -> tuple[str, ...]:
    """Profiles of one code group that one toolchain built with different options."""
    options: dict[object, set[tuple[str, ...]]] = {}
    members: dict[object, list[Result]] = {}
    for result in results:
        if result.build is not None:
            toolchain = result.build.toolchain.identity
            options.setdefault(toolchain, set()).add(result.build.options)
            members.setdefault(toolchain, []).append(result)
    return tuple(names[id(r)] for tool, group in members.items() if len(options[tool]) > 1 for r in group)


def _row(kernel: str, case: str, results: list[Result], references: References) -> MatrixRow:
    several_archs = len({r.arch for r in results}) > 1
    several_conditions = len({r.condition for r in results}) > 1
    names = {
        id(r): r.profile
        + (f" {r.arch}" if several_archs else "")
        + (f" [{r.condition}]" if several_conditions else "")
        for r in results
    }
    wanted = {_key(references[r.row][0]) for r in results if r.row in references}
    by_bits: dict[Key, list[Result]] = {}
    by_code: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        if result.status is Status.OK:
            by_bits.setdefault(_key(result), []).append(result)
        # Code that nobody could identify agrees with nothing.
        code = code_key(result.build.code if result.build else None, result.lane)
        by_code.setdefault((*(code or ("unknown", names[id(result)])), result.arch), []).append(result)
    return MatrixRow(
        kernel=kernel,
        case=case,
        guaranteed=any(r.kernel.determinism.guaranteed for r in results),
        groups=tuple(_group(group, names, references, wanted) for group in by_bits.values()),
        code_groups=tuple(tuple(names[id(r)] for r in group) for group in by_code.values()),
        inert=tuple(found for group in by_code.values() if (found := _inert(group, names))),
        no_result=tuple((names[id(r)], r.status.value) for r in results if r.status is not Status.OK),
    )


def matrix(results: tuple[Result, ...], references: References | None = None) -> tuple[MatrixRow, ...]:
    """One row for each kernel and case, in order of appearance: profiles grouped by bits and by code.

    A group is marked where it holds the bits of a reference of that kernel and case. Profiles carry their
    architecture or condition in their name where a row has several.
    """
    rows: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        rows.setdefault((result.kernel.name, result.case.name), []).append(result)
    return tuple(_row(*name, group, references or {}) for name, group in rows.items())
