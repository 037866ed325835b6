"""Canaries: what a run must show before its other rows count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprodb.canaries import CHURN, CONTRACTION, MATCH, judge_canaries
from reprodb.domain import Pairs, Profile, Result, Status
from reprodb.findings import CanaryOutcome
from tests.builders import ATOMIC_TOTAL, NVRTC_12, TREE_TOTAL, make_build, make_result


def tagged(result: Result, tag: str, expected: Pairs = ()) -> Result:
    case = replace(result.case, expected=expected)
    return replace(result, kernel=replace(result.kernel, tags=(tag,), cases=(case,)), case=case)


def judged(*results: Result) -> tuple[CanaryOutcome, ...]:
    first, *rest = judge_canaries(results)
    assert first.name == "run hash"
    assert first.ok
    return tuple(rest)


def test_the_published_run_hash_is_always_checked() -> None:
    assert judged() == ()
    assert judge_canaries([])[0].sentence == "100 times 0x4b25426d hash to 0x8189389fe1bc0a65"


@pytest.mark.parametrize(
    ("repetitions", "expected", "ok"),
    [
        ([TREE_TOTAL] * 3, (("total", TREE_TOTAL),), True),
        ([ATOMIC_TOTAL] * 3, (("total", TREE_TOTAL),), False),
        ([TREE_TOTAL, ATOMIC_TOTAL], (("total", TREE_TOTAL),), False),
        ([TREE_TOTAL] * 3, (("other", TREE_TOTAL),), False),
        ([TREE_TOTAL] * 3, (), False),
    ],
)
def test_what_must_match(repetitions: list[str], expected: Pairs, ok: bool) -> None:
    (outcome,) = judged(tagged(make_result(repetitions), MATCH, expected))
    assert outcome.ok is ok
    assert outcome.fatal


def test_a_canary_without_a_result_failed() -> None:
    (outcome,) = judged(tagged(make_result(status=Status.LAUNCH_FAILED), MATCH, (("total", TREE_TOTAL),)))
    assert not outcome.ok


def contracted(fmad: bool, bits: str) -> Result:
    name = "default" if fmad else "no-fmad"
    build = make_build(profile=Profile(name, "nvrtc", "*", fmad=fmad))
    return tagged(make_result([bits] * 2, profile=name, build=build), CONTRACTION)


def test_contraction_must_differ() -> None:
    (good,) = judged(contracted(True, TREE_TOTAL), contracted(False, ATOMIC_TOTAL))
    (bad,) = judged(contracted(True, TREE_TOTAL), contracted(False, TREE_TOTAL))
    assert good.ok
    assert not bad.ok
    assert bad.fatal
    assert "the flag did not arrive" in bad.sentence


def test_contraction_is_not_judged_from_one_profile_or_two_toolchains() -> None:
    assert judged(contracted(True, TREE_TOTAL)) == ()
    other = contracted(False, TREE_TOTAL)
    assert other.build is not None
    elsewhere = replace(other, build=replace(other.build, toolchain=NVRTC_12))
    assert judged(contracted(True, TREE_TOTAL), elsewhere) == ()


def test_a_calm_scheduler_is_a_note() -> None:
    (calm,) = judged(tagged(make_result(), CHURN))
    (moved,) = judged(tagged(make_result([TREE_TOTAL, ATOMIC_TOTAL]), CHURN))
    assert not calm.ok
    assert not calm.fatal
    assert moved.ok
