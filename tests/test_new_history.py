"""Another source or input under a kernel's name: said as such, gated or accepted as the policy says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reprodb.compare import Side
from reprodb.domain import Build, Case, Code, Result, Run, scope_of
from reprodb.findings import Comparison, Diff, Moved, Verdict
from reprodb.ledger import Ledger
from reprodb.matrix import References
from reprodb.policy import Policy, parse_policy
from reprodb.review import acceptable, references_of, review_night
from tests.builders import (
    ATOMIC_TOTAL,
    NVRTC_12,
    STARTED,
    TREE_TOTAL,
    make_build,
    make_kernel,
    make_result,
    make_run,
    store_of,
)

NOW = datetime(2026, 3, 9, 6, 0, tzinfo=UTC)
ACCEPT = parse_policy('[gate]\nnew_history = "accept"\n')
EDITED = make_build(
    sources=(("_lib/sum_squares.cu", "bb" * 32),), code=Code("ptx-2", "sass-2", "constants-1")
)


def at(number: int) -> Run:
    """The run of that night."""
    return replace(make_run(number), started_at=STARTED + timedelta(days=number))


def result(bits: str = TREE_TOTAL, *, build: Build | None = None, input_digest: str = "11" * 32) -> Result:
    return replace(make_result([bits] * 100, build=build, input_digest=input_digest), id=7)


def night(candidate: Result, references: References, policy: Policy) -> Diff:
    sides = (candidate, *(reference for reference, _, _ in references.values()))
    return review_night(Side(at(5), (candidate,)), references, store_of(*sides).__getitem__, policy, now=NOW)


def after(old: Result, new: Result, policy: Policy = Policy()) -> tuple[Comparison, Diff, tuple[int, ...]]:  # noqa: B008
    """The row of a night whose reference is `old`, the judged night, and the results that it accepts."""
    diff = night(new, {new.row: (old, at(1), "accepted")}, policy)
    return diff.comparisons[0], diff, acceptable(diff.comparisons, policy)


# --- Source ------------------------------------------------------------------------------------


def test_an_edit_that_moved_the_bits_gates_until_it_is_blessed_and_is_no_regression() -> None:
    row, diff, accepted = after(result(), result(ATOMIC_TOTAL, build=EDITED))
    assert (row.verdict, row.gated, diff.exit_code) == (Verdict.CHANGED, True, 1)
    assert row.attribution is not None
    assert row.attribution.new_history == "new history: source changed (_lib/sum_squares.cu)"
    assert row.gate_reason == "new history: source changed (_lib/sum_squares.cu), changed"
    assert diff.headline == "source changed and bits with it in sum_squares_tree under default; 1 changed"
    assert diff.notes == (
        "new history: source changed (_lib/sum_squares.cu): sum_squares_tree ramp1000-4194915 (default)",
    )
    assert accepted == ()


def test_where_the_policy_says_so_an_edit_begins_its_history_at_once() -> None:
    row, diff, accepted = after(result(), result(ATOMIC_TOTAL, build=EDITED), ACCEPT)
    assert (row.verdict, row.gated, diff.exit_code) == (Verdict.CHANGED, False, 0)
    assert row.gate_reason.endswith("its bits are the reference from now on")
    assert diff.notes[0].startswith("new history: source changed")
    assert accepted == (7,)


@pytest.mark.parametrize(
    "other",
    [
        replace(EDITED, toolchain=NVRTC_12),
        replace(EDITED, profile=replace(EDITED.profile, fmad=False), options=("-fmad=false",)),
    ],
    ids=["toolchain", "flags"],
)
def test_an_edit_does_not_cover_for_what_changed_beside_it(other: Build) -> None:
    row, diff, accepted = after(result(), result(ATOMIC_TOTAL, build=other), ACCEPT)
    assert row.attribution is not None
    assert Moved.BUILD in row.attribution.moved
    assert (row.gated, diff.exit_code, accepted) == (True, 1, ())


def test_an_edit_that_left_the_code_as_it_was_explains_no_bit() -> None:
    comment = replace(EDITED, code=make_build().code)
    row, diff, accepted = after(result(), result(ATOMIC_TOTAL, build=comment), ACCEPT)
    assert (row.gated, diff.exit_code, accepted) == (True, 1, ())


def test_an_edit_that_moved_nothing_is_quiet_and_accepted() -> None:
    row, diff, accepted = after(result(), result(build=EDITED))
    assert (row.verdict, diff.exit_code, diff.notes, accepted) == (Verdict.SAME, 0, (), (7,))
    assert row.attribution is not None
    assert row.attribution.new_history


def test_lost_determinism_and_lost_accuracy_gate_whatever_the_source() -> None:
    lost = replace(make_result([TREE_TOTAL, ATOMIC_TOTAL], build=EDITED), id=7)
    row, diff, accepted = after(result(), lost, ACCEPT)
    assert (row.verdict, diff.exit_code, accepted) == (Verdict.DETERMINISM_LOST, 3, ())


def test_a_toolkit_regression_beside_an_edit_of_another_kernel_keeps_its_name() -> None:
    old, new = (
        result(),
        result(ATOMIC_TOTAL, build=replace(EDITED, toolchain=NVRTC_12, sources=EDITED.sources)),
    )
    other = replace(make_result([ATOMIC_TOTAL] * 100, kernel="sin"), id=8)
    references = {
        new.row: (old, at(1), "accepted"),
        other.row: (make_result(kernel="sin"), at(1), "accepted"),
    }
    fetch = store_of(old, new, other, references[other.row][0]).__getitem__
    diff = review_night(Side(at(5), (new, other)), references, fetch, ACCEPT, now=NOW)
    assert diff.headline == "bits changed in sum_squares_tree and sin; 2 changed"
    assert "changed: sin ramp1000-4194915 (default)" in diff.reasons


# --- Input -------------------------------------------------------------------------------------


def test_another_input_is_not_comparable_and_begins_its_history() -> None:
    row, diff, accepted = after(result(), result(ATOMIC_TOTAL, input_digest="22" * 32))
    assert row.verdict is Verdict.NOT_COMPARABLE
    assert row.attribution is not None
    assert row.attribution.moved == (Moved.INPUT,)
    assert row.attribution.new_history.startswith("new history: input changed (other bytes of ramp1000")
    assert diff.exit_code == 4  # it was the only row: nothing was compared
    assert accepted == (7,)


def test_another_input_is_a_missing_baseline_where_one_is_required() -> None:
    policy = parse_policy("[gate]\nrequire_baseline = true\n")
    _, diff, _ = after(result(), result(input_digest="22" * 32), policy)
    assert diff.reasons[0].startswith("a required baseline is missing: sum_squares_tree")


# --- Which reference ---------------------------------------------------------------------------


def meets(
    candidate: Result, accepted: tuple[Result, Run] | None, ledger: Ledger
) -> tuple[Result, str] | None:
    scope = scope_of(at(5), candidate)
    found = references_of(at(5), [candidate], {scope: accepted} if accepted else {}, ledger, NOW)
    reference = found.get(candidate.row)
    return None if reference is None else (reference[0], reference[2])


def blessed(what: Result, night: int) -> Ledger:
    when = STARTED + timedelta(days=night)
    return Ledger().bless(at(night), what, who="Ada", why="r", now=when)


def test_the_blessing_of_the_same_history_counts() -> None:
    found = meets(result(), (result(ATOMIC_TOTAL), at(3)), blessed(result(), 2))
    assert found is not None
    assert (found[0].outputs[0].first_bits, found[1]) == (TREE_TOTAL, "blessed")


def test_a_history_that_began_after_the_blessing_goes_on() -> None:
    """Blessed under the old source; the edit was accepted; the same edited source runs again."""
    new = result(ATOMIC_TOTAL, build=EDITED)
    found = meets(new, (new, at(3)), blessed(result(), 2))
    assert found is not None
    assert (found[0].outputs[0].first_bits, found[1]) == (ATOMIC_TOTAL, "accepted")


def test_of_two_histories_that_are_over_the_later_decision_counts() -> None:
    third = result(build=make_build(sources=(("_lib/sum_squares.cu", "cc" * 32),)))
    accepted = (result(ATOMIC_TOTAL, build=EDITED), at(3))
    for night, kind in ((2, "accepted"), (4, "blessed")):
        found = meets(third, accepted, blessed(result(), night))
        assert found is not None
        assert found[1] == kind


def test_what_is_older_than_a_retirement_is_no_reference() -> None:
    scope = scope_of(at(5), result())
    ledger = blessed(result(), 2).retire(scope, who="Ada", why="r", now=STARTED + timedelta(days=3))
    assert meets(result(), (result(), at(2)), ledger) is None
    assert meets(result(), (result(), at(4)), ledger) is not None


def test_two_kernels_have_no_common_history() -> None:
    """Comparing two kernels of one input says what moved, and no history begins."""
    new = replace(result(ATOMIC_TOTAL, build=EDITED), kernel=make_kernel("other"), case=Case("c", 1, (), ()))
    row = review_night(
        Side(at(5), (new,)),
        {new.row: (result(), at(1), "named")},
        store_of(new, result()).__getitem__,
        Policy(),
        now=NOW,
    ).comparisons[0]
    assert row.attribution is not None
    assert row.attribution.new_history == ""
