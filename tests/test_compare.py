"""Verdicts of single rows and of whole runs, as docs/verdicts.md states them."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.bounds import bound_phrase, flip_rate_bound, pool
from reprodb.compare import Side, compare_references, compare_results, compare_runs
from reprodb.deltas import Fetch
from reprodb.domain import Accuracy, CodeOrigin, Determinism, Field, Lane, Output, Result, Role, Run, Status
from reprodb.errors import UsageError
from reprodb.findings import Comparison, Moved, OutputDelta, Verdict
from reprodb.variation import where_odd
from tests.builders import (
    ATOMIC_TOTAL,
    H200,
    T4,
    TREE_TOTAL,
    floats,
    make_build,
    make_kernel,
    make_output,
    make_result,
    make_run,
    store_of,
)

NOT_GUARANTEED = Determinism.NOT_GUARANTEED
GPU_TO_GPU = Determinism.GPU_TO_GPU


def compare(
    baseline: Result | None,
    candidate: Result | None,
    *,
    runs: tuple[Run | None, Run | None] | None = None,
    across: frozenset[str] = frozenset(),
) -> Comparison:
    old, new = runs or (make_run(1), make_run(2))
    fetch = store_of(baseline, candidate).__getitem__
    return compare_results(baseline, candidate, old, new, fetch, across=across)


def delta(before: bytes, after: bytes, dtype: str = "float32", **more: object) -> OutputDelta:
    """The delta of one result buffer of a guaranteed kernel."""
    sides = [make_output([data], dtype=dtype, **more) for data in (before, after)]  # type: ignore[arg-type]
    comparison = compare(make_result(outputs=(sides[0],)), make_result(outputs=(sides[1],)))
    assert comparison.verdict is (Verdict.SAME if before == after else Verdict.CHANGED)
    return comparison.outputs[0]


def never(sha256: str) -> bytes:
    raise AssertionError(f"{sha256} was fetched although its digest did not differ")


# --- Verdicts ----------------------------------------------------------------------------------


def test_equal_bits_are_same_and_nothing_is_fetched() -> None:
    outputs = (make_output([TREE_TOTAL] * 100, keep=False),)
    row = compare_results(
        make_result(outputs=outputs), make_result(outputs=outputs), make_run(1), make_run(2), never
    )
    assert row.verdict is Verdict.SAME
    assert row.outputs[0].changed == 0
    assert row.outputs[0].max_ulp == 0


def test_other_bits_of_a_guaranteed_kernel_are_changed() -> None:
    row = compare(make_result([TREE_TOTAL] * 3), make_result([ATOMIC_TOTAL] * 3))
    assert row.verdict is Verdict.CHANGED
    assert (row.outputs[0].changed, row.outputs[0].first, row.outputs[0].max_ulp) == (1, 0, 1)
    element = row.outputs[0].elements[0]
    assert (element.before, element.after) == (TREE_TOTAL, ATOMIC_TOTAL)


def test_witness_alone_is_latent() -> None:
    """The published case: contraction moves 73 of 1,024 partials and not the total."""
    before = np.arange(1024, dtype="<f4") + 1000
    after = before.copy()
    after[5:78] = np.nextafter(np.nextafter(after[5:78], np.float32(np.inf)), np.float32(np.inf))
    rows = [
        make_result(
            outputs=(
                make_output([TREE_TOTAL] * 100),
                make_output([partials.tobytes()] * 100, name="partials", role=Role.WITNESS),
            )
        )
        for partials in (before, after)
    ]
    row = compare(*rows)
    assert row.verdict is Verdict.LATENT
    total, partials = row.outputs
    assert (total.changed, total.of) == (0, 1)
    assert (partials.changed, partials.of, partials.first, partials.max_ulp) == (73, 1024, 5, 2)
    assert partials.moved == tuple(range(5, 78))
    assert len(partials.elements) == 16


def test_several_patterns_inside_the_candidate_are_determinism_lost() -> None:
    flips = [TREE_TOTAL] * 100
    flips[7] = flips[60] = ATOMIC_TOTAL
    row = compare(make_result(), make_result(flips))
    assert row.verdict is Verdict.DETERMINISM_LOST
    assert row.loss is not None
    assert (row.loss.odd, row.loss.of, row.loss.distinct, row.loss.where) == (2, 100, 2, "scattered")
    assert row.loss.advice[0] == (
        "compute-sanitizer --tool racecheck --target-processes all reprodb run --kernel sum_squares_tree "
        "--profile default --device gpu --repetitions 3"
    )


def test_determinism_lost_needs_no_baseline() -> None:
    row = compare(None, make_result([TREE_TOTAL, ATOMIC_TOTAL]), runs=(None, make_run(2)))
    assert row.verdict is Verdict.DETERMINISM_LOST


def test_determinism_lost_is_said_even_where_bits_cannot_be_compared() -> None:
    row = compare(make_result(), make_result([TREE_TOTAL, ATOMIC_TOTAL], lane=Lane.MEASURED))
    assert row.verdict is Verdict.DETERMINISM_LOST
    assert "another lane" in row.note


def test_an_odd_first_repetition_suggests_unset_memory_first() -> None:
    row = compare(make_result(), make_result([ATOMIC_TOTAL, *[TREE_TOTAL] * 9]))
    assert row.loss is not None
    assert row.loss.where == "repetition 0 only"
    assert "--tool initcheck" in row.loss.advice[0]


def test_advice_quotes_what_a_shell_would_read() -> None:
    result = make_result([TREE_TOTAL, ATOMIC_TOTAL], profile="$(rm -rf x)")
    row = compare(make_result(profile="$(rm -rf x)"), result)
    assert row.loss is not None
    assert "'$(rm -rf x)'" in row.loss.advice[0]


def test_no_gpu_tool_is_advised_for_a_program_on_the_cpu() -> None:
    sides = (make_result(lane=Lane.HOST), make_result([TREE_TOTAL, ATOMIC_TOTAL], lane=Lane.HOST))
    row = compare(*sides)
    assert row.verdict is Verdict.DETERMINISM_LOST
    assert row.loss is not None
    assert row.loss.advice == ()


def test_determinism_gained() -> None:
    row = compare(make_result([TREE_TOTAL, ATOMIC_TOTAL]), make_result([TREE_TOTAL] * 2))
    assert row.verdict is Verdict.DETERMINISM_GAINED


def test_a_baseline_that_was_lost_too_is_said() -> None:
    row = compare(make_result([TREE_TOTAL, ATOMIC_TOTAL]), make_result([TREE_TOTAL, ATOMIC_TOTAL]))
    assert row.verdict is Verdict.DETERMINISM_LOST
    assert "the baseline was not deterministic either" in row.note


def test_new_missing_and_no_baseline() -> None:
    assert compare(None, make_result()).verdict is Verdict.NEW
    assert compare(make_result(), None).verdict is Verdict.MISSING
    assert compare(None, make_result(), runs=(None, make_run(2))).verdict is Verdict.NO_BASELINE


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_whatever_failed_is_no_result(status: Status) -> None:
    row = compare(make_result(), make_result(status=status, error="invalid configuration argument"))
    assert row.verdict is Verdict.NO_RESULT
    assert row.note == f"{status}: invalid configuration argument"
    assert row.accuracy is Accuracy.UNKNOWN


def test_a_baseline_that_failed_leaves_nothing_to_compare() -> None:
    row = compare(make_result(status=Status.BUILD_FAILED), make_result())
    assert row.verdict is Verdict.NEW
    assert "the baseline has no result" in row.note
    assert (
        compare(make_result(status=Status.CRASHED), make_result(status=Status.CRASHED)).verdict
        is Verdict.NO_RESULT
    )


def test_a_dropped_guarantee_is_said() -> None:
    row = compare(make_result(), make_result([TREE_TOTAL, ATOMIC_TOTAL] * 50, determinism=NOT_GUARANTEED))
    assert row.verdict is Verdict.CHURN
    assert "the guarantee was dropped: run_to_run → not_guaranteed" in row.note


# --- What is not comparable ----------------------------------------------------------------------


def test_lanes_are_never_mixed() -> None:
    row = compare(
        make_result(), make_result(lane=Lane.MEASURED), runs=(make_run(1), make_run(2, device=H200))
    )
    assert row.verdict is Verdict.NOT_COMPARABLE
    assert "another lane (modelled → measured)" in row.note
    assert row.outputs == ()


def test_another_gpu_model_is_not_comparable_and_an_override_does_not_gate() -> None:
    old, new = make_result(lane=Lane.MEASURED), make_result([ATOMIC_TOTAL] * 100, lane=Lane.MEASURED)
    runs = (make_run(1, device=T4), make_run(2, device=H200))
    row = compare(old, new, runs=runs)
    assert row.verdict is Verdict.NOT_COMPARABLE
    assert "another GPU model (Tesla T4 → NVIDIA H200)" in row.note
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.ENVIRONMENT,)
    over = compare(old, new, runs=runs, across=frozenset({"gpu"}))
    assert over.verdict is Verdict.CHANGED
    assert not over.may_gate
    assert over.note.startswith("not gated: another GPU model")


def test_gpu_to_gpu_compares_and_gates_between_models() -> None:
    old = make_result(determinism=GPU_TO_GPU, lane=Lane.MEASURED, arch="sm_75")
    new = make_result([ATOMIC_TOTAL] * 100, determinism=GPU_TO_GPU, lane=Lane.MEASURED, arch="sm_90")
    row = compare(old, new, runs=(make_run(1, device=T4), make_run(2, device=H200)))
    assert row.verdict is Verdict.CHANGED
    assert row.may_gate


def test_another_architecture_compares_without_gating() -> None:
    sides = [
        make_result([bits] * 9, arch=arch) for bits, arch in ((TREE_TOTAL, "sm_80"), (ATOMIC_TOTAL, "sm_90"))
    ]
    (row,) = compare_runs(
        Side(make_run(1), (sides[0],)), Side(make_run(2), (sides[1],)), store_of(*sides).__getitem__
    )
    assert row.verdict is Verdict.CHANGED
    assert not row.may_gate
    assert "not gated: another architecture (sm_80 → sm_90)" in row.note
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.BUILD,)


def test_another_input_under_the_same_case_is_not_comparable() -> None:
    row = compare(make_result(), make_result(input_digest="22" * 32))
    assert row.verdict is Verdict.NOT_COMPARABLE
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.INPUT,)
    assert row.attribution.first_layer == "input"


def test_unknown_override_is_refused() -> None:
    side = Side(make_run(1), (make_result(),))
    with pytest.raises(UsageError, match="weather"):
        compare_runs(side, side, never, across=frozenset({"weather"}))


# --- Elements ------------------------------------------------------------------------------------


def test_sign_of_zero_only() -> None:
    """A sum of 32 times -0.0, with and without +0.0 padding lanes."""
    found = delta(floats(-0.0), floats(0.0))
    assert (found.changed, found.max_ulp, found.note) == (1, 0, "sign of zero only, 0 ULP apart")


def test_nan_payload_only() -> None:
    found = delta(struct.pack("<I", 0x7FFFFFFF), struct.pack("<I", 0x7FC00000))
    assert (found.changed, found.max_ulp, found.note) == (1, None, "NaN payload only")
    assert found.elements[0].before_value == "nan"


def test_a_number_that_becomes_nan_is_never_masked() -> None:
    found = delta(floats(1.0, 2.0), struct.pack("<fI", 1.0, 0x7FFFFFFF))
    assert (found.changed, found.first, found.max_ulp) == (1, 1, None)
    assert found.note == "1 of 1 from a number to NaN"


def test_kinds_are_counted_where_they_mix() -> None:
    found = delta(floats(0.0, 1.0, 5.0), floats(-0.0, 1.5, 5.0))
    assert found.changed == 2
    assert found.note == "1 of 2 by the sign of zero only"
    assert (found.max_abs, found.max_rel) == (0.5, 0.5)


def test_integers_have_no_ulp() -> None:
    found = delta(struct.pack("<2i", 1, 2), struct.pack("<2i", 1, 5), "int32")
    assert (found.changed, found.max_ulp, found.max_abs) == (1, None, 3.0)
    assert found.elements[0].after_value == 5


def test_structs_name_index_and_field() -> None:
    fields = (Field("tag", "int8", 0), Field("value", "float32", 4))
    before = struct.pack("<bfbf", 1, 1.0, 2, 2.0)
    after = struct.pack("<bfbf", 1, 1.0, 2, float(np.nextafter(np.float32(2), np.float32(3))))
    found = delta(before, after, "struct", fields=fields)
    assert (found.changed, found.of, found.first, found.max_ulp) == (1, 2, 1, 1)
    assert found.elements[0].field == "value"


def test_one_of_two_buffers_is_named() -> None:
    old = (make_output([floats(1.0)], name="mean"), make_output([floats(1.0, 2.0)], name="rows"))
    new = (old[0], make_output([floats(1.0, 3.0)], name="rows"))
    row = compare(make_result(outputs=old), make_result(outputs=new))
    assert [(d.name, d.changed, d.first) for d in row.outputs] == [("mean", 0, None), ("rows", 1, 1)]


def test_another_shape_has_no_counterparts() -> None:
    old = make_result(outputs=(make_output([TREE_TOTAL]), _partials(floats(1.0, 2.0))))
    new = make_result(outputs=(make_output([TREE_TOTAL]), _partials(floats(1.0, 2.0, 3.0, 4.0))))
    row = compare(old, new)
    assert row.verdict is Verdict.LATENT
    assert row.outputs[1].note == "float32 2 → float32 4: elements have no counterparts"


def _partials(*repetitions: bytes, determinism: Determinism = Determinism.RUN_TO_RUN) -> Output:
    return make_output(repetitions, name="partials", role=Role.WITNESS, determinism=determinism)


def test_another_order_of_the_same_elements_is_said() -> None:
    assert delta(floats(1.0, 2.0, 3.0), floats(3.0, 1.0, 2.0)).note == "order only, same multiset"


def test_a_baseline_known_by_digest_alone() -> None:
    old, new = make_output([floats(1.0, 2.0)], keep=False), make_output([floats(1.0, 3.0)])
    row = compare(make_result(outputs=(old,)), make_result(outputs=(new,)))
    assert row.verdict is Verdict.CHANGED
    assert "only the digest of one side" in str(row.outputs[0].note)


# --- Churn ---------------------------------------------------------------------------------------


def atomic(*repetitions: str) -> Result:
    return make_result(repetitions, kernel="sum_squares_atomic", determinism=NOT_GUARANTEED)


@pytest.mark.parametrize(
    ("before", "after", "relation", "common"),
    [
        (("0x4b25426d", "0x4b25426e"), ("0x4b25426e", "0x4b25426d"), "same", 2),
        (("0x4b25426d", "0x4b25426e"), ("0x4b25426e", "0x4b254270"), "overlapping", 1),
        (("0x4b25426d",), ("0x4b25426e",), "new", 0),
    ],
)
def test_supports_are_compared_as_sets(
    before: tuple[str, ...], after: tuple[str, ...], relation: str, common: int
) -> None:
    row = compare(atomic(*before), atomic(*after))
    assert row.verdict is Verdict.CHURN
    assert row.churn is not None
    assert (row.churn.relation, row.churn.common) == (relation, common)


def test_churn_says_where_the_usual_pattern_went_and_how_far_it_spreads() -> None:
    row = compare(atomic(*["0x4b25426e"] * 3, "0x4b25426d"), atomic(*["0x4b254270"] * 3, "0x4b25426e"))
    assert row.churn is not None
    assert row.churn.mode == "0x4b25426e: 3 of 4 → 1 of 4"
    assert row.churn.spread_ulp == 3
    assert row.churn.baseline.patterns == (("0x4b25426e", 3, 1), ("0x4b25426d", 1, 0))
    assert row.churn.candidate.patterns == (("0x4b254270", 3, 3), ("0x4b25426e", 1, 1))


def test_a_usual_pattern_that_is_gone() -> None:
    row = compare(atomic("0x4b25426e"), atomic("0x4b254270"))
    assert row.churn is not None
    assert row.churn.mode == "0x4b25426e: 1 of 1 → not seen"


def test_appending_by_an_atomic_counter_changes_the_order_only() -> None:
    def appended(*repetitions: tuple[int, ...]) -> Result:
        data = [struct.pack("<4i", *r) for r in repetitions]
        return make_result(
            outputs=(make_output(data, name="found", dtype="int32", determinism=NOT_GUARANTEED),),
            kernel="append",
            determinism=NOT_GUARANTEED,
        )

    row = compare(appended((1, 2, 3, 4), (2, 1, 3, 4)), appended((4, 3, 2, 1)))
    assert row.verdict is Verdict.CHURN
    assert row.churn is not None
    assert row.churn.note == "order only, same multiset"


def test_an_integer_atomic_sum_is_one_pattern() -> None:
    outputs = (make_output([struct.pack("<I", 42)] * 100, dtype="uint32", determinism=NOT_GUARANTEED),)
    sides = [make_result(outputs=outputs, determinism=NOT_GUARANTEED) for _ in range(2)]
    row = compare(*sides)
    assert row.verdict is Verdict.CHURN
    assert row.churn is not None
    assert (row.churn.baseline.distinct, row.churn.candidate.distinct, row.churn.relation) == (1, 1, "same")


def fixed_partials(total: str, *partials: bytes) -> Result:
    """An atomic kernel whose block sums are in a fixed order and declared so."""
    return make_result(
        outputs=(
            make_output([total] * len(partials), determinism=NOT_GUARANTEED),
            _partials(*partials),
        ),
        kernel="sum_tree_atomic",
        determinism=NOT_GUARANTEED,
    )


def test_a_guaranteed_witness_of_an_atomic_kernel_is_judged_as_such() -> None:
    one, two = floats(1.0, 2.0), floats(1.0, 2.5)
    assert (
        compare(fixed_partials(TREE_TOTAL, one), fixed_partials(ATOMIC_TOTAL, one)).verdict is Verdict.CHURN
    )
    moved = compare(fixed_partials(TREE_TOTAL, one), fixed_partials(ATOMIC_TOTAL, two))
    assert moved.verdict is Verdict.LATENT
    assert moved.churn is not None
    lost = compare(fixed_partials(TREE_TOTAL, one), fixed_partials(TREE_TOTAL, one, two))
    assert lost.verdict is Verdict.DETERMINISM_LOST
    assert lost.loss is not None
    assert lost.loss.output == "partials"


# --- Repetitions and bounds ----------------------------------------------------------------------


def test_the_bound_is_stated_on_the_measured_lane_alone() -> None:
    runs = (make_run(1, device=H200), make_run(2, device=H200))
    measured = compare(make_result(lane=Lane.MEASURED), make_result(lane=Lane.MEASURED), runs=runs)
    assert measured.note == "0 of 100 bounds the rate below 3 % (95 %)"
    assert compare(make_result(), make_result()).note == ""


def test_a_first_night_states_its_bound_too() -> None:
    """Equal repetitions are a claim where nothing is there to compare them with as well."""
    run = make_run(2, lane=Lane.MEASURED, device=H200)
    first = compare_results(None, make_result(lane=Lane.MEASURED), None, run, never)
    assert (first.verdict, first.note) == (Verdict.NO_BASELINE, "0 of 100 bounds the rate below 3 % (95 %)")
    assert compare_results(None, make_result(), None, make_run(2), never).note == ""
    free = make_result(lane=Lane.MEASURED, determinism=Determinism.NOT_GUARANTEED)
    assert compare_results(None, free, None, run, never).note == ""


@pytest.mark.parametrize(
    ("n", "words"), [(20, "14 %"), (100, "3 %"), (300, "1 %"), (1000, "0.3 %"), (1_000_000, "0.0003 %")]
)
def test_bounds_round_up(n: int, words: str) -> None:
    assert bound_phrase(n) == f"0 of {n:,} bounds the rate below {words} (95 %)"


@given(st.integers(1, 100_000))
def test_the_bound_is_below_the_rule_of_three(n: int) -> None:
    assert 0 < flip_rate_bound(n) < min(1, 3 / n)


def test_runs_of_the_same_pinned_tuple_pool() -> None:
    measured = make_result([TREE_TOTAL] * 100, lane=Lane.MEASURED)
    other_card = replace(H200, uuid="GPU-other")
    newest = (make_run(3, device=H200), measured)
    pooled = pool(
        newest,
        [
            (make_run(1, device=H200), measured),
            (make_run(2, device=other_card), measured),
            (make_run(4, device=T4), measured),  # another model: left out
            (make_run(5, device=H200), make_result(lane=Lane.MEASURED, input_digest="22" * 32)),
        ],
    )
    assert pooled is not None
    assert (pooled.repetitions, pooled.runs, pooled.devices, pooled.flips) == (300, 3, 2, 0)
    assert pooled.phrase == "0 of 300 bounds the rate below 1 % (95 %) over 3 runs, 2 devices"
    assert pool((make_run(1), make_result()), []) is None


def test_a_pooled_flip_is_counted() -> None:
    flipped = make_result([TREE_TOTAL] * 199 + [ATOMIC_TOTAL], lane=Lane.MEASURED)
    pooled = pool(
        (make_run(2, device=H200), make_result(lane=Lane.MEASURED)), [(make_run(1, device=H200), flipped)]
    )
    assert pooled is not None
    assert pooled.phrase == "1 of 300 over 2 runs, 1 device"


def test_hashes_over_other_repetitions_are_not_comparable() -> None:
    row = compare(make_result([TREE_TOTAL] * 100), make_result([TREE_TOTAL] * 20))
    assert row.verdict is Verdict.SAME
    assert row.note == "run hashes not comparable: 100 and 20 repetitions"


@pytest.mark.parametrize(
    ("odd", "where"),
    [
        ([0], "repetition 0 only"),
        ([17], "repetition 17 only"),
        ([0, 1, 9], "first third"),
        ([11, 15], "middle third"),
        ([20, 29], "last third"),
        ([0, 29], "scattered"),
    ],
)
def test_where_the_odd_repetitions_lie(odd: list[int], where: str) -> None:
    assert where_odd([int(i in odd) for i in range(30)]) == (len(odd), where)


# --- Whole runs ----------------------------------------------------------------------------------


def test_rows_are_matched_by_kernel_case_profile_and_condition() -> None:
    run = make_run(1)
    old = (make_result(kernel="a"), make_result(kernel="b"), make_result(kernel="a", condition="stress"))
    new = (make_result(kernel="a"), make_result(kernel="c"))
    rows = compare_runs(Side(run, old), Side(make_run(2), new), never)
    found = {(r.kernel, r.either.condition): r.verdict for r in rows}
    assert found == {
        ("a", "plain"): Verdict.SAME,
        ("c", "plain"): Verdict.NEW,
        ("b", "plain"): Verdict.MISSING,
        ("a", "stress"): Verdict.MISSING,
    }
    assert {r.reference_run for r in rows} == {1, None}


def test_two_profiles_of_one_run() -> None:
    old, new = make_result(profile="cuda12"), make_result(profile="default")
    run = make_run(1)
    (row,) = compare_runs(Side(run, (old,)), Side(run, (new,)), never, by_profile=False)
    assert row.verdict is Verdict.SAME
    with pytest.raises(UsageError, match="two results"):
        compare_runs(Side(run, (old, new)), Side(run, (new,)), never, by_profile=False)


def test_two_kernels_on_the_same_input() -> None:
    old = make_result(kernel=make_kernel("tree_1024", case="a"))
    new = make_result(kernel=make_kernel("tree_2048", case="b", grid=2048))
    (row,) = compare_runs(Side(make_run(1), (old,)), Side(make_run(1), (new,)), never, by_kernel=False)
    assert row.verdict is Verdict.SAME
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.SHAPE,)


def references(
    *rows: tuple[Result, Run, str],
) -> dict[tuple[str, str, str, str, str], tuple[Result, Run, str]]:
    return {row[0].row: row for row in rows}


def test_a_nightly_compares_each_row_with_its_own_reference() -> None:
    a, b = make_result(kernel="a"), make_result(kernel="b")
    moved = make_result([ATOMIC_TOTAL] * 100, kernel="b")
    fetch = store_of(a, moved).__getitem__
    rows = compare_references(
        references((a, make_run(7), "accepted"), (b, make_run(9), "blessed")),
        Side(make_run(12), (a, moved, make_result(kernel="c"))),
        fetch,
    )
    assert [(r.kernel, r.verdict, r.reference_run, r.reference_kind) for r in rows] == [
        ("a", Verdict.SAME, 7, "accepted"),
        ("b", Verdict.CHANGED, 9, "blessed"),
        ("c", Verdict.NO_BASELINE, None, None),
    ]


def test_a_reference_is_missing_only_where_the_run_set_out_to_produce_it() -> None:
    kept = (make_result(kernel="a"), make_result(kernel="a", profile="cuda12"))
    run = make_run(7)
    known = references(*((r, run, "accepted") for r in (*kept, make_result(kernel="b"))))
    side = Side(make_run(12), (make_result(kernel="a"),))
    assert [r.verdict for r in compare_references(known, side, never)] == [Verdict.SAME]
    planned = compare_references(known, side, never, planned=lambda row: row[0] == "b")
    assert [(r.kernel, r.verdict) for r in planned] == [("a", Verdict.SAME), ("b", Verdict.MISSING)]


def test_two_runs_of_two_thousand_rows_with_fifty_changes() -> None:
    old = [make_result(kernel=f"k{i}") for i in range(2000)]
    new = [
        make_result([ATOMIC_TOTAL] * 100, kernel=r.kernel.name) if i % 40 == 0 else r
        for i, r in enumerate(old)
    ]
    new = [
        replace(r, build=make_build(code=replace(r.build.code, sass=f"sass-{i}")))
        if r.build and r.build.code and i % 40 == 0
        else r
        for i, r in enumerate(new)
    ]
    fetch: Fetch = store_of(*old, *new).__getitem__
    rows = compare_runs(Side(make_run(1), tuple(old)), Side(make_run(2), tuple(new)), fetch)
    assert sum(r.verdict is Verdict.CHANGED for r in rows) == 50


# --- Laws ----------------------------------------------------------------------------------------

words = st.sampled_from(["0x4b25426d", "0x4b25426e", "0x00000000", "0x80000000", "0x7fc00000", "0x7f800000"])
results = st.builds(
    lambda repetitions, determinism: make_result(repetitions, determinism=determinism),
    st.lists(words, min_size=1, max_size=6),
    st.sampled_from(list(Determinism)),
)


@given(st.lists(results, min_size=1, max_size=4))
def test_a_run_against_itself_is_same_or_churns_within_the_same_support(rows: list[Result]) -> None:
    named = tuple(
        replace(r, kernel=replace(r.kernel, name=f"k{i}"), profile=f"p{i}") for i, r in enumerate(rows)
    )
    side = Side(make_run(1), named)
    for row in compare_runs(side, side, never):
        broken = row.either.kernel.determinism.guaranteed and row.either.outputs[0].distinct > 1
        if broken:
            assert row.verdict is Verdict.DETERMINISM_LOST
        elif row.either.kernel.determinism.guaranteed:
            assert row.verdict is Verdict.SAME
        else:
            assert row.verdict is Verdict.CHURN
            assert row.churn is not None
            assert row.churn.relation == "same"
        assert all(d.changed == 0 for d in row.outputs)


@given(words, words, st.sampled_from(list(Determinism)))
def test_the_verdict_of_two_stable_results_does_not_depend_on_the_side(
    a: str, b: str, determinism: Determinism
) -> None:
    one, two = make_result([a] * 3, determinism=determinism), make_result([b] * 3, determinism=determinism)
    forth, back = compare(one, two), compare(two, one)
    assert forth.verdict is back.verdict
    assert forth.outputs[0].max_ulp == back.outputs[0].max_ulp
    assert forth.outputs[0].changed == back.outputs[0].changed


@given(st.lists(words, min_size=1, max_size=5), st.lists(words, min_size=1, max_size=5))
def test_determinism_gained_is_lost_seen_from_the_other_side(a: list[str], b: list[str]) -> None:
    stable, shaky = make_result([a[0]] * 3), make_result(b)
    if len(set(b)) > 1:
        assert compare(stable, shaky).verdict is Verdict.DETERMINISM_LOST
        assert compare(shaky, stable).verdict is Verdict.DETERMINISM_GAINED


def test_jit_makes_the_driver_part_of_the_build() -> None:
    old = make_result(lane=Lane.MEASURED, origin=CodeOrigin.CUBIN)
    new = make_result(lane=Lane.MEASURED, origin=CodeOrigin.JIT)
    row = compare(old, new, runs=(make_run(1, device=H200), make_run(2, device=H200)))
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.BUILD,)
    assert "driver 580.159.04 (jit)" in row.attribution.sentence
