"""What the terminal says beside a verdict: case, why a row does not gate, its bound, what was expected."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

from reprodb.compare import Side, compare_results, compare_runs, matrix
from reprodb.domain import CodeOrigin, Determinism, Lane, Result, Run
from reprodb.findings import Comparison, Diff
from reprodb.gate import judge
from reprodb.policy import parse_policy
from reprodb.render import terminal
from tests.builders import (
    ATOMIC_TOTAL,
    H200,
    NVRTC_12,
    NVRTC_13,
    T4,
    TREE_TOTAL,
    make_build,
    make_result,
    make_run,
    store_of,
)

NOW = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)


def shown(*rows: Comparison, policy: str = "", night: bool = False, results: tuple[Result, ...] = ()) -> str:
    found = Diff(None if night else make_run(1), make_run(2), rows, matrix=matrix(results))
    out = io.StringIO()
    terminal.diff(terminal.console(out), judge(found, parse_policy(policy), now=NOW))
    return out.getvalue()


def row(
    before: Result, after: Result, runs: tuple[Run, Run] | None = None, across: frozenset[str] = frozenset()
) -> Comparison:
    old, new = runs or (make_run(1), make_run(2))
    return compare_results(before, after, old, new, store_of(before, after).__getitem__, across=across)


def line(text: str, start: str) -> str:
    (found,) = (one.strip() for one in text.splitlines() if one.strip().startswith(start))
    return found


def named(result: Result, case: str) -> Result:
    return replace(result, case=replace(result.case, name=case))


def test_rows_of_several_cases_carry_their_case_and_others_do_not() -> None:
    sin = [named(make_result(kernel="sin"), case) for case in ("small", "large")]
    moved = [named(make_result([ATOMIC_TOTAL] * 100, kernel="sin"), case) for case in ("small", "large")]
    tree = make_result(kernel="tree")
    rows = [row(a, b) for a, b in zip(sin, moved, strict=True)]
    said = shown(*rows, row(tree, tree), results=(*moved, tree))
    for case in ("small", "large"):
        assert f"sin {case} " in line(said, f"sin {case}  ")  # of the matrix
        assert len([one for one in said.splitlines() if "≠ changed" in one and f"sin {case}" in one]) == 1
    assert f"tree {tree.case.name}" not in said


def test_quiet_rows_of_a_gpu_carry_their_bound() -> None:
    measured = make_result(lane=Lane.MEASURED, origin=CodeOrigin.CUBIN)
    runs = make_run(1, lane=Lane.MEASURED, device=H200), make_run(2, lane=Lane.MEASURED, device=H200)
    said = shown(*(row(measured, measured, runs) for _ in range(2)))
    assert "= 2 rows: the same; 0 of 100 bounds the rate below 3 % (95 %)" in said
    modelled = make_result()
    assert "= 1 row: the same\n" in shown(row(modelled, modelled))  # no bound is claimed of a model


def test_an_override_is_labelled_where_the_bits_are_the_same_too() -> None:
    result = make_result(lane=Lane.MEASURED)
    runs = make_run(1, lane=Lane.MEASURED, device=H200), make_run(2, lane=Lane.MEASURED, device=T4)
    said = shown(row(result, result, runs, frozenset({"gpu"})))
    told = "= 1 row: the same; not gated: another GPU model (NVIDIA H200 → Tesla T4), compared on request"
    assert told in said
    other = make_result([ATOMIC_TOTAL] * 100, lane=Lane.MEASURED)
    said = shown(row(result, other, runs, frozenset({"gpu"})))
    assert "not gated: another GPU model" in line(said, "≠ changed")


def test_an_expected_difference_is_shown_with_its_reason() -> None:
    moved = row(make_result(kernel="atan2f"), make_result([ATOMIC_TOTAL] * 100, kernel="atan2f"))
    policy = '[[expect]]\nkernel = "atan2f"\nreason = "13.0 moves it"\nuntil = 2026-03-02'
    assert "expected: 13.0 moves it (until 2026-03-02)" in line(shown(moved, policy=policy), "≠ changed")
    late = shown(moved, policy=policy.replace("03-02", "03-01"))
    assert "the expectation ended 2026-03-01" in line(late, "≠ changed")
    assert "expected" not in line(shown(moved), "≠ changed")


def test_a_redefined_profile_is_said_once_for_all_its_rows() -> None:
    """The profile's name was kept and the compiler swapped (PRUNERS/FLiT#88)."""
    pairs = []
    for kernel in ("cos", "exp", "sin", "tan"):
        before = make_result(kernel=kernel, build=make_build(toolchain=NVRTC_12))
        pairs.append((before, replace(before, build=make_build(toolchain=NVRTC_13))))
    old, new = (tuple(side) for side in zip(*pairs, strict=True))
    rows = compare_runs(Side(make_run(1), old), Side(make_run(2), new), store_of().__getitem__)
    told = "Profile redefined: toolchain nvrtc 12.6.85 → nvrtc 13.5.37: cos "
    assert line(shown(*rows), "? Profile").startswith(f"? {told}")
    assert line(shown(*rows), "? Profile").endswith(" and 1 more.")


def test_rules_that_no_row_shows_are_said_beside_a_graver_row() -> None:
    results = (make_result(), make_result([ATOMIC_TOTAL] * 100, profile="cuda12"))
    moved = row(make_result(kernel="sin"), make_result([ATOMIC_TOTAL] * 100, kernel="sin"))
    policy = '[[require_equal]]\nprofiles = ["default", "cuda12"]\n[gate]\nprofiles = ["nvcc13"]'
    said = shown(moved, policy=policy, night=True, results=results)
    assert "profiles must be equal: {default} ≠ {cuda12}" in said
    assert "Required profile nvcc13 did not run: not in this run." in said


def test_supports_of_a_churn_are_told_as_sets() -> None:
    old, new = (
        make_result(bits, determinism=Determinism.NOT_GUARANTEED)
        for bits in ([TREE_TOTAL, TREE_TOTAL, ATOMIC_TOTAL], [ATOMIC_TOTAL] * 3)
    )
    told = line(shown(row(old, new)), "~ ")
    assert told.endswith("overlapping support; 0x4b25426d: 2 of 3 → not seen")
