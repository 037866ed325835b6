"""The bundled canaries: what their kernels compile to, and what their outcomes say."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reprodb.artifacts import ArtifactStore
from reprodb.build import build_each, request
from reprodb.canaries import OFF, ON, canary_suite, not_run, outcomes, plan_canaries
from reprodb.domain import Output, Result, Role, Status, Toolchain
from reprodb.suite import bundled_suite, load_suite
from tests.builders import make_result
from tests.toolchains_here import nvrtc12, nvrtc13

# 0 + 1 + … + 65535, and the rounding canary fused and separate; both recomputed below.
SUM, FUSED, SEPARATE = "0x7fff8000", "0x33800000", "0x00000000"
# 2^24 + 1 - 2^24 from the left and from the right.
LEFT, RIGHT = "0x00000000", "0x3f800000"


def results(**bits: str) -> tuple[Result, ...]:
    """Results of the planned canaries as a sound machine gives them, or with these bits in their place."""
    plan = plan_canaries(nvrtc13(), "sm_90")
    sound = {"integer_sum": SUM, ON: FUSED, OFF: SEPARATE, "churn": "0x00000001", "left": LEFT} | bits
    made = []
    for build in plan.builds:
        kernel, case = build.kernel, build.cases[0]
        if kernel.name == "grouping":
            both = make_result([sound["left"]]), make_result([bits.get("right", RIGHT)])
            outputs = tuple(named(r, b.name) for r, b in zip(both, case.buffers, strict=True))
            base = make_result([LEFT], profile=build.profile.name)
            made.append(replace(base, kernel=kernel, case=case, outputs=outputs))
            continue
        word = sound[build.profile.name if kernel.name == "contraction" else kernel.name]
        patterns = [word] * 3 if kernel.name != "churn" or "churn" in bits else [word, "0x00000002", word]
        base = make_result(patterns, profile=build.profile.name)
        made.append(replace(base, kernel=kernel, case=case, outputs=(named(base, case.buffers[0].name),)))
    return tuple(made)


def named(result: Result, name: str) -> Output:
    return replace(result.outputs[0], name=name, role=Role.RESULT)


def failed(*found: Result) -> dict[str, str]:
    return {o.name: o.sentence for o in outcomes(found) if not o.ok and o.fatal}


def test_a_sound_machine_fails_no_canary() -> None:
    assert all(outcome.ok for outcome in outcomes(results()))
    assert [outcome.name for outcome in outcomes(results())] == [
        "hashing",
        "integer sum",
        "contraction",
        "grouping",
        "churn",
    ]


def test_the_known_bits_are_what_arithmetic_gives() -> None:
    import numpy as np

    assert f"{sum(range(65536)):#010x}" == SUM
    x, y = np.float32(1 + 2**-12), np.float32(-(1 + 2**-11))
    assert int((x * x + y).view(np.uint32)) == int(SEPARATE, 16)
    a, b, c = np.float32(2**24), np.float32(1), np.float32(-(2**24))
    assert [f"{int(v.view(np.uint32)):#010x}" for v in ((a + b) + c, a + (b + c))] == [LEFT, RIGHT]
    fused = np.float32(np.float64(x) * np.float64(x) + np.float64(y))  # exact in double
    assert int(fused.view(np.uint32)) == int(FUSED, 16)


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        ({"integer_sum": "0x7fff8001"}, "must be 0x7fff8000"),
        ({ON: SEPARATE}, "must be 0x33800000 with contraction and 0x00000000 without"),
        ({OFF: FUSED}, "must be 0x33800000 with contraction and 0x00000000 without"),
        (
            {"right": LEFT},
            f"must be {LEFT} from the left and {RIGHT} from the right, and is {LEFT} and {LEFT}",
        ),
        ({"left": RIGHT}, f"and is {RIGHT} and {RIGHT} (contraction-on)"),
        (
            {ON: SEPARATE, OFF: FUSED},
            "must be 0x33800000 with contraction and 0x00000000 without",
        ),  # they differ, and both are wrong
    ],
)
def test_wrong_bits_are_fatal(bits: dict[str, str], words: str) -> None:
    assert any(words in sentence for sentence in failed(*results(**bits)).values())


def test_a_canary_without_a_result_is_fatal() -> None:
    first, *rest = results()
    lost = replace(
        first, status=Status.CRASHED, outputs=(), error="\nthe worker process was ended by SIGSEGV"
    )
    assert lost.kernel.name == "churn"
    assert failed(lost, *rest) == {}  # arrival order is a note, even where it crashed
    place = next(i for i, r in enumerate(rest) if r.kernel.name == "integer_sum")
    integers = replace(rest[place], status=Status.CRASHED, outputs=(), error="ended by SIGSEGV\nlast words")
    sentence = failed(lost, *rest[:place], integers, *rest[place + 1 :])["integer sum"]
    assert sentence == "must be 0x7fff8000 and is crashed (ended by SIGSEGV) (contraction-on)"
    assert set(failed()) == {"integer sum", "contraction", "grouping"}


def test_calm_arrival_is_a_note() -> None:
    notes = [o for o in outcomes(results(churn="0x00000001")) if not o.ok]
    assert [(o.name, o.fatal) for o in notes] == [("churn", False)]


def test_canaries_that_cannot_be_built_are_a_note() -> None:
    assert [(o.ok, o.fatal) for o in not_run("not in the store")] == [(True, True), (False, False)]


def test_no_list_of_kernels_shows_canaries() -> None:
    names = {kernel.name for kernel in load_suite(canary_suite()).kernels}
    assert names == {"integer_sum", "contraction", "grouping", "churn"}
    assert not names & {kernel.name for kernel in load_suite(bundled_suite()).kernels}


@pytest.mark.parametrize("toolchain", [nvrtc12, nvrtc13])
def test_the_compilers_contract_the_rounding_canary_only_when_told(
    toolchain: Callable[[], Toolchain], tmp_path: Path
) -> None:
    plan = plan_canaries(toolchain(), "sm_90")
    requests = [request(plan.suite, b.kernel, b.profile, b.toolchain, b.arch) for b in plan.builds]
    contracts = {
        wanted.profile.name: "fma.rn.f32" in (artifact.ptx or "")
        for wanted, artifact in build_each(requests, ArtifactStore(tmp_path))
    }
    assert contracts == {ON: True, OFF: False}
