"""Exit codes, headlines and reasons: every line of the table in docs/verdicts.md."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from reprodb.compare import Side, compare_references, compare_results, matrix
from reprodb.domain import Accuracy, Determinism, Lane, Profile, Result, Run, SkippedProfile, Status
from reprodb.errors import Exit
from reprodb.findings import CanaryOutcome, Comparison, Diff, Verdict
from reprodb.gate import idle_rules, judge
from reprodb.policy import Policy, parse_policy
from tests.builders import ATOMIC_TOTAL, H200, T4, TREE_TOTAL, make_build, make_result, make_run, store_of

NOW = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
LOST = [TREE_TOTAL, ATOMIC_TOTAL]


def row(
    baseline: Result | None,
    candidate: Result | None,
    runs: tuple[Run | None, Run] | None = None,
    across: frozenset[str] = frozenset(),
) -> Comparison:
    old, new = runs or (make_run(1), make_run(2))
    return compare_results(
        baseline, candidate, old, new, store_of(baseline, candidate).__getitem__, across=across
    )


def same(kernel: str = "kept") -> Comparison:
    return row(make_result(kernel=kernel), make_result(kernel=kernel))


def changed(kernel: str = "sin", profile: str = "default") -> Comparison:
    return row(
        make_result(kernel=kernel, profile=profile),
        make_result([ATOMIC_TOTAL] * 100, kernel=kernel, profile=profile),
    )


def no_baseline(kernel: str = "young") -> Comparison:
    return row(None, make_result(kernel=kernel), (None, make_run(2)))


def gate(*rows: Comparison, policy: str = "", nightly: bool = False, **more: object) -> Diff:
    """The judged diff of these rows; `more` goes to the diff or to `judge`."""
    judging = {k: more.pop(k) for k in ("references_required", "first_night") if k in more}
    diff = Diff(None if nightly else make_run(1), make_run(2), rows, **more)  # type: ignore[arg-type]
    return judge(diff, parse_policy(policy), now=NOW, **judging)  # type: ignore[arg-type]


def latent() -> Comparison:
    """A row whose verdict is latent; the verdict itself is tested in test_compare."""
    return replace(same("tree"), verdict=Verdict.LATENT)


def churn() -> Comparison:
    old, new = (make_result([bits], determinism=Determinism.NOT_GUARANTEED) for bits in LOST)
    return row(old, new)


def outside(kernel: str = "wrong") -> Comparison:
    bad = make_result(kernel=kernel, accuracy=Accuracy.OUTSIDE, max_rel_err=0.5)
    return row(bad, bad)


# --- Exit codes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([same()], 0),
        ([same(), churn()], 0),
        ([same(), latent()], 0),
        ([same(), no_baseline()], 0),
        ([same(), changed()], 1),
        ([same(), row(make_result(), None)], 1),
        ([same(), row(make_result(), make_result(LOST))], 3),
        ([same(), row(None, make_result(LOST))], 3),
        ([same(), outside()], 3),
        ([same(), row(make_result(), make_result(status=Status.TIMED_OUT))], 4),
        ([same(), row(None, make_result(status=Status.UNSUPPORTED))], 0),
        ([], 4),
    ],
)
def test_exit_codes(rows: list[Comparison], code: int) -> None:
    assert gate(*rows).exit_code == code


def test_precedence_is_three_one_four() -> None:
    lost, failed = (
        row(make_result(), make_result(LOST)),
        row(make_result(), make_result(status=Status.CRASHED)),
    )
    assert gate(failed, changed(), lost).exit_code == 3
    assert gate(failed, changed()).exit_code == 1
    assert gate(failed, same()).exit_code == 4
    assert len(gate(failed, changed(), lost).reasons) == 3
    assert gate(failed, changed(), lost).reasons[0].startswith("determinism lost")


def test_a_failed_canary_is_four_above_everything() -> None:
    bad = CanaryOutcome("integer sum", False, "expected 42, got 41")
    diff = gate(row(make_result(), make_result(LOST)), canaries=(bad,))
    assert diff.exit_code == 4
    assert diff.headline == "canary failed, this run counts for nothing: integer sum"
    assert diff.reasons[0] == "canary integer sum failed: expected 42, got 41"


def test_a_canary_that_did_not_churn_is_a_note() -> None:
    diff = gate(same(), canaries=(CanaryOutcome("churn", False, "one pattern of 100", fatal=False),))
    assert diff.exit_code == 0
    assert "canary churn: one pattern of 100" in diff.notes


# --- Nothing compared ------------------------------------------------------------------------------


def test_first_night_is_clean_and_says_so() -> None:
    diff = gate(no_baseline(), nightly=True, first_night=True)
    assert diff.exit_code == 0
    assert diff.headline == "first night: 1 row recorded, and nothing to compare with yet"
    assert diff.notes == ()
    assert "1 row without a baseline" in gate(same(), no_baseline()).notes


def test_a_first_night_without_any_bits_is_no_answer() -> None:
    failed = row(None, make_result(status=Status.BUILD_FAILED), (None, make_run(2)))
    assert gate(failed, nightly=True, first_night=True).exit_code == 4


def test_a_required_baseline_that_is_missing() -> None:
    assert gate(same(), no_baseline(), references_required=True).exit_code == 4
    assert gate(same(), no_baseline(), policy="[gate]\nrequire_baseline = true").exit_code == 4
    assert gate(changed(), no_baseline(), references_required=True).exit_code == 1


def test_no_overlap_at_all_is_no_answer_and_the_number_is_said() -> None:
    """Every row of the one is missing and of the other new: nothing is known about any bit."""
    diff = gate(row(make_result(kernel="x"), None), row(None, make_result(kernel="y")))
    assert diff.exit_code == 4
    assert "nothing was compared: 0 of 2 rows" in diff.reasons
    assert "0 compared" in diff.headline


def test_rows_that_cannot_be_compared_are_no_answer() -> None:
    other = row(make_result(), make_result(input_digest="22" * 32))
    assert gate(other).exit_code == 4
    assert gate(other, same()).exit_code == 0


def test_a_missing_baseline_does_not_hide_a_change() -> None:
    diff = gate(no_baseline("x"), changed("y"), nightly=True)
    assert diff.exit_code == 1
    assert diff.reasons == ("changed: y ramp1000-4194915 (default)",)


# --- What does not gate ----------------------------------------------------------------------------


def test_overrides_are_labelled_and_do_not_gate() -> None:
    runs = (make_run(1, device=T4), make_run(2, device=H200))
    old = make_result(lane=Lane.MEASURED)
    new = make_result([ATOMIC_TOTAL] * 100, lane=Lane.MEASURED)
    diff = gate(row(old, new, runs, frozenset({"gpu"})))
    assert diff.exit_code == 0
    assert diff.comparisons[0].verdict is Verdict.CHANGED
    assert diff.comparisons[0].gate_reason.startswith("not gated: another GPU model")


def test_another_architecture_does_not_gate_but_its_own_loss_does() -> None:
    old = make_result(arch="sm_80")
    assert gate(row(old, make_result([ATOMIC_TOTAL] * 100))).exit_code == 0
    assert gate(row(old, make_result(LOST))).exit_code == 3


def test_churn_never_gates_and_no_policy_can_ask_for_it() -> None:
    assert gate(churn()).comparisons[0].gated is False
    with pytest.raises(Exception, match="never gates"):
        parse_policy('[gate]\nverdicts = ["churn"]')


# --- Policy ----------------------------------------------------------------------------------------


def test_latent_may_gate() -> None:
    diff = gate(latent(), policy='[gate]\nverdicts = ["changed", "latent"]')
    assert diff.exit_code == 1
    assert diff.comparisons[0].gated
    assert diff.comparisons[0].gate_reason == "latent"


def test_a_kernel_may_have_its_own_rules() -> None:
    policy = '[[kernel]]\nname = "sin*"\nverdicts = ["determinism_lost"]'
    assert gate(changed("sinf"), policy=policy).exit_code == 0
    assert gate(changed("cosf"), policy=policy).exit_code == 1


def test_a_tolerance_of_the_policy_stands_for_the_cases() -> None:
    assert gate(same(), policy="[gate]\nrel_tol = 1e-12").exit_code == 3
    loose = '[[kernel]]\nname = "wrong"\nrel_tol = 0.9'
    assert gate(outside(), policy=loose).exit_code == 0
    assert gate(outside(), policy="[gate]\naccuracy = false").exit_code == 0


def test_an_error_that_is_nan_is_within_no_tolerance() -> None:
    nan = make_result(max_rel_err=float("nan"))
    assert gate(row(nan, nan), policy="[gate]\nrel_tol = 0.5").exit_code == 3


EXPECTED = '[[expect]]\nkernel = "sin"\nprofile = "cuda12"\nreason = "12.9 moves sin"\nuntil = 2026-03-02'


def test_an_expected_difference_does_not_gate_up_to_its_last_day() -> None:
    diff = gate(changed(profile="cuda12"), policy=EXPECTED)
    assert diff.exit_code == 0
    assert diff.comparisons[0].gate_reason == "expected: 12.9 moves sin (until 2026-03-02)"


def test_an_expectation_that_ended_gates_again_and_says_so() -> None:
    diff = gate(changed(profile="cuda12"), policy=EXPECTED.replace("03-02", "03-01"))
    assert diff.exit_code == 1
    assert "the expectation ended 2026-03-01" in diff.reasons[0]


def test_an_expectation_covers_only_what_it_names() -> None:
    assert gate(changed(profile="default"), policy=EXPECTED).exit_code == 1
    lost = row(make_result(kernel="sin", profile="cuda12"), make_result(LOST, kernel="sin", profile="cuda12"))
    assert gate(lost, policy=EXPECTED).exit_code == 3


def test_an_expectation_may_name_the_field_that_moves() -> None:
    policy = '[[expect]]\nkernel = "sin"\nreason = "flags"\nmoved = "build"'
    assert gate(changed(), policy=policy).exit_code == 1  # nothing in the pinned tuple moved
    flags = row(
        make_result(kernel="sin"),
        make_result(
            [ATOMIC_TOTAL] * 100,
            kernel="sin",
            build=make_build(profile=Profile("default", "nvrtc", ">=13,<14", fmad=False)),
        ),
    )
    assert gate(flags, policy=policy).exit_code == 0


def test_an_expectation_that_did_not_occur_is_a_note() -> None:
    diff = gate(same("sin"), policy='[[expect]]\nkernel = "sin"\nreason = "soon"')
    assert diff.exit_code == 0
    assert "expected changed of sin on *: did not occur" in diff.notes


def test_required_profiles_must_have_run() -> None:
    policy = '[gate]\nprofiles = ["default", "nvcc12"]'
    candidate = replace(make_run(2), skipped=(SkippedProfile("nvcc12", "no nvcc 12", "install it"),))
    diff = Diff(None, candidate, (same(),))
    judged = judge(diff, parse_policy(policy), now=NOW)
    assert judged.exit_code == 4
    assert judged.reasons == ("required profile nvcc12 did not run: no nvcc 12",)
    assert "profile nvcc12 skipped: no nvcc 12" in judged.notes


def profiles(**bits: str) -> tuple[Result, ...]:
    return tuple(make_result([b] * 3, profile=name.replace("_", "-")) for name, b in bits.items())


def test_required_equality_reads_the_matrix() -> None:
    policy = '[[require_equal]]\nprofiles = ["default", "no-fmad"]\nkernels = ["sum_*"]'
    rows = matrix(profiles(default=TREE_TOTAL, no_fmad=ATOMIC_TOTAL, cuda12=TREE_TOTAL))
    diff = gate(same(), policy=policy, matrix=rows)
    assert diff.exit_code == 1
    assert diff.reasons == (
        "sum_squares_tree ramp1000-4194915: profiles must be equal: {default} ≠ {no-fmad}",
    )
    assert gate(same(), policy=policy.replace("no-fmad", "cuda12"), matrix=rows).exit_code == 0
    assert gate(same(), policy=policy.replace("sum_", "sin_"), matrix=rows).exit_code == 0


def test_required_equality_without_a_result_is_no_answer() -> None:
    results = (make_result(), make_result(profile="cuda12", status=Status.BUILD_FAILED))
    policy = '[[require_equal]]\nprofiles = ["default", "cuda12"]'
    judged = gate(same(), policy=policy, matrix=matrix(results))
    assert (judged.exit_code, judged.notes) == (4, ())


def test_required_equality_of_a_profile_that_did_not_run_is_noted() -> None:
    policy = '[[require_equal]]\nprofiles = ["default", "cuda21"]'
    judged = gate(same(), policy=policy, matrix=matrix((make_result(),)))
    assert judged.exit_code == 0
    assert judged.notes == ("profiles must be equal, and cuda21 did not run: default, cuda21",)
    assert gate(same(), policy=policy).notes == ()  # a diff of two runs has no matrix


def test_rules_that_name_no_kernel_of_the_suite_are_told_with_the_nearest_name() -> None:
    """A typo in a policy must not be a rule that never applies and never says so."""
    policy = """
    [[kernel]]
    name = "sn"
    verdicts = []
    [[expect]]
    kernel = "kept_"
    reason = "r"
    [[expect]]
    kernel = "s?n"
    reason = "r"
    [[require_equal]]
    profiles = ["a", "b"]
    kernels = ["k*", "zzz"]
    """
    assert idle_rules(parse_policy(policy), gate(same(), changed())) == (
        "[[kernel]] of the policy names no kernel of this suite: 'sn'; did you mean 'sin'?",
        "[[expect]] of the policy names no kernel of this suite: 'kept_'; did you mean 'kept'?",
        "[[require_equal]] of the policy names no kernel of this suite: 'zzz'",
    )
    assert idle_rules(parse_policy(""), gate(same())) == ()
    # A kernel that the suite has and this night did not run is no typo.
    rule = parse_policy('[[kernel]]\nname = "slow"\nverdicts = []')
    assert idle_rules(rule, gate(same()), ["slow"]) == ()


def test_two_suites_are_said() -> None:
    sides = make_run(1, suite="mine"), make_run(2, suite="yours")
    told = "the sides are of two suites, whose kernels may share no more than a name: mine → yours"
    assert judge(Diff(*sides, (same(),)), Policy(), now=NOW).notes == (told,)
    assert gate(same()).notes == ()


def test_a_remark_of_attribution_is_one_note_for_its_rows() -> None:
    rows = [changed(kernel) for kernel in ("a", "b", "c", "d")]
    told = [
        replace(r, attribution=replace(r.attribution, notes=("profile redefined: toolchain x → y",)))
        for r in rows
        if r.attribution is not None
    ]
    (note,) = (n for n in gate(*told).notes if n.startswith("profile redefined"))
    assert note.startswith("profile redefined: toolchain x → y: a ")
    assert note.endswith(" and 1 more")


HEADLINES = {
    "clean: every fixed-order kernel has its bits; 1 same": [same()],
    "clean: every fixed-order kernel has its bits; 1 churn, 1 same": [same(), churn()],
    "clean: only arrival-order kernels could be compared; 1 churn": [churn()],
    "clean: no fixed-order result moved, witness bits did in 1 row; 1 latent, 1 same": [same(), latent()],
    "bits changed in sin under default; 1 changed, 2 same": [same("a"), same("b"), changed()],
    "bits changed in sin under a and b; 2 changed": [changed(profile="a"), changed(profile="b")],
    "bits changed in sin under a, b and 2 more profiles; 4 changed": [
        changed(profile=name) for name in "abcd"
    ],
    "bits changed in cos and sin; 2 changed": [changed("cos"), changed("sin")],
    "bits changed in sin under default, nothing came of gone under default; 1 changed, 1 missing": [
        changed(),
        row(make_result(kernel="gone"), None),
    ],
    "determinism lost in tree under default; 1 determinism lost": [
        row(make_result(kernel="tree"), make_result(LOST, kernel="tree"))
    ],
    "accuracy outside its tolerance in wrong under default; 1 same": [outside()],
    "determinism lost and accuracy outside its tolerance in wrong under default; 1 determinism lost": [
        replace(outside(), verdict=Verdict.DETERMINISM_LOST)
    ],
    "no answer for tree under default; 1 no result, 1 same": [
        row(make_result(kernel="tree"), make_result(kernel="tree", status=Status.TIMED_OUT)),
        same(),
    ],
}


@pytest.mark.parametrize("words", HEADLINES)
def test_the_headline_says_what_happened_and_to_what(words: str) -> None:
    assert gate(*HEADLINES[words]).headline == words


def test_a_loud_alarm_is_a_note() -> None:
    assert any(note.startswith("code the same, bits changed: sin") for note in gate(changed()).notes)


def test_judging_twice_is_judging_once() -> None:
    once = gate(changed(), no_baseline())
    assert judge(once, Policy(), now=NOW) == once


def test_a_nightly_from_references_to_exit_code() -> None:
    kept, moved = make_result(kernel="a"), make_result([ATOMIC_TOTAL] * 100, kernel="b")
    before = make_result(kernel="b")
    rows = compare_references(
        {r.row: (r, make_run(1), "accepted") for r in (kept, before)},
        Side(make_run(2), (kept, moved)),
        store_of(before, moved).__getitem__,
    )
    assert gate(*rows, nightly=True).exit_code == 1


def test_a_night_whose_rows_all_went_and_came_anew_is_no_first_night() -> None:
    rows = (no_baseline("new"), row(make_result(kernel="old"), None))
    assert [c.verdict for c in rows] == [Verdict.NO_BASELINE, Verdict.MISSING]
    judged = judge(Diff(None, make_run(2), rows), Policy(), now=NOW)
    assert judged.exit_code == Exit.NO_ANSWER
    assert "nothing was compared: 0 of 2 rows" in judged.reasons
