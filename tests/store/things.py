"""Runs and results for the store's tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from reprodb import codec
from reprodb.domain import Accuracy, Code, Determinism, Field, FunctionCounts, Judgement, Result, Role, Run
from tests.builders import STARTED, floats, make_build, make_output, make_result, make_run

LATER = STARTED + timedelta(minutes=5)


def new_run(number: int = 1, **changes: object) -> Run:
    """A run that has begun and not ended."""
    started = STARTED + timedelta(days=number)
    run = replace(make_run(number), id=None, started_at=started, finished_at=None)
    return replace(run, **changes)  # type: ignore[arg-type]


def without_data(result: Result) -> Result:
    """As results are read back: patterns without data, no row number."""
    outputs = tuple(
        replace(output, patterns=tuple(replace(p, data=None) for p in output.patterns))
        for output in result.outputs
    )
    return replace(result, outputs=outputs, id=None)


def text(result: Result) -> str:
    """A form in which NaN equals NaN."""
    return codec.dumps(without_data(result))


def rich_result() -> Result:
    """Several outputs and patterns, a sequence, a struct, a failed accuracy with its own oddities."""
    churn = [floats(1.0, 2.0), floats(1.0, -0.0), floats(1.0, 2.0), floats(float("nan"), 2.0)] * 25
    fields = (Field("value", "float32", 0), Field("index", "int32", 8))
    result = make_result(
        outputs=(
            make_output(churn, determinism=Determinism.NOT_GUARANTEED),
            make_output([bytes(8)] * 100, name="best", fields=fields),
            make_output([floats(*range(1024))] * 100, name="partials", role=Role.WITNESS),
        ),
        condition="stress-clocks",
    )
    code = Code("p" * 64, None, "c" * 64, (FunctionCounts("fold", (("add.rn.f32", 3),), (("FADD.FTZ", 2),)),))
    return replace(
        result,
        accuracy=Judgement(Accuracy.OUTSIDE, float("nan"), -0.0, "reference is 0"),
        build=make_build(code=code),
        error="a\0b \udc80 \N{SNOWMAN}",
        notes=("contracted as SASS: 1 FFMA in fold",),
        seconds=1.25,
    )
