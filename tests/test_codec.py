"""Frozen values to JSON text and back, without loss."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from cattrs import ClassValidationError, transform_error
from hypothesis import given
from hypothesis import strategies as st

from reprodb.codec import decode, dumps, encode, loads
from reprodb.domain import (
    Environment,
    Input,
    Judgement,
    Kernel,
    Lane,
    Pattern,
    Profile,
    Run,
    SkippedProfile,
)
from reprodb.suite import bundled_suite, load_suite

CASES = Path(__file__).parent / "suites" / "cases"


@pytest.mark.parametrize("root", [bundled_suite(), CASES], ids=["bundled", "cases"])
def test_every_kernel_comes_back_equal(root: Path) -> None:
    for kernel in load_suite(root).kernels:
        assert loads(Kernel, dumps(kernel)) == kernel


def test_a_run_comes_back_equal() -> None:
    run = Run(
        uid="r-1",
        suite="reprodb",
        lane=Lane.MODELLED,
        environment=Environment(host="h", os="Linux", python="3.11", cpu="c", reprodb="0.1.0"),
        started_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        skipped=(SkippedProfile("nvcc12", "no toolchain", "install it"),),
    )
    assert loads(Run, dumps(run)) == run


def test_times_of_other_zones_stay_the_same_moment() -> None:
    east = datetime(2026, 1, 2, 12, tzinfo=timezone(timedelta(hours=9)))
    assert decode(datetime, encode(east)) == datetime(2026, 1, 2, 3, tzinfo=UTC)


@given(st.binary(max_size=40))
def test_bytes_come_back_equal(data: bytes) -> None:
    pattern = Pattern("00", 1, 0, data)
    assert loads(Pattern, dumps(pattern)) == pattern


@given(st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False)))
def test_parameters_keep_value_type_and_sign_of_zero(value: int | float) -> None:
    spec = Input("x", "constant", 1, params=(("value", value),))
    back = loads(Input, dumps(spec)).params[0][1]
    assert back == value
    assert type(back) is type(value)
    assert math.copysign(1, back) == math.copysign(1, value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_errors_that_are_not_finite_come_back(value: float) -> None:
    from reprodb.domain import Accuracy

    back = loads(Judgement, dumps(Judgement(Accuracy.OUTSIDE, value))).max_rel_err
    assert back is not None
    assert repr(back) == repr(value)


def test_equal_values_give_equal_text() -> None:
    profile = Profile("default", "nvrtc", ">=13,<14")
    assert dumps(profile) == dumps(Profile(toolkit=">=13,<14", compiler="nvrtc", name="default"))
    assert " " not in dumps(profile)


def test_a_field_of_a_newer_record_is_refused() -> None:
    data = {**encode(Profile("default", "nvrtc", "13.*")), "sparkle": True}
    with pytest.raises(ClassValidationError) as caught:
        loads(Profile, json.dumps(data))
    assert "sparkle" in str(transform_error(caught.value))


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(ClassValidationError) as caught:
        loads(Profile, '{"name": "default", "compiler": "nvrtc"}')
    assert "toolkit" in str(transform_error(caught.value))


def test_a_later_field_is_left_out_of_the_record_at_its_default() -> None:
    """Digests of records are keys: what was written before a field was there must still be canonical."""
    kernel = load_suite(bundled_suite()).kernels[0]
    record = json.loads(dumps(kernel))
    assert "sm_count" not in record
    assert "order" in record
    derived = replace(kernel, sm_count=132)
    assert json.loads(dumps(derived))["sm_count"] == 132
    assert loads(Kernel, dumps(derived)) == derived
