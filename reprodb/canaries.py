"""Canaries: four small kernels whose outcome is known, run first to show that a run can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reprodb.campaign import Plan, PlannedBuild
from reprodb.digest import fnv1a64, hex64
from reprodb.domain import CanaryOutcome, Profile, Result, Status, Toolchain

# A fifth of a run's usual repetitions are enough to see arrival orders differ.
REPETITIONS = 20

ON, OFF = "contraction-on", "contraction-off"

# 0 + 1 + ... + 65535.
INTEGER_SUM = "0x7fff8000"
# (1 + 2^-12)^2 - (1 + 2^-11): 2^-24 with one rounding, 0 with two.
FUSED, SEPARATE = "0x33800000", "0x00000000"
# 2^24 + 1 - 2^24 in float32, from the left and from the right.
GROUPINGS = ("0x00000000", "0x3f800000")
# FNV-1a 64 of the empty string, "a" and "foobar", from the test vectors of Fowler, Noll and Vo.
FNV_VECTORS = {b"": 0xCBF29CE484222325, b"a": 0xAF63DC4C8601EC8C, b"foobar": 0x85944171F73967E8}


def canary_suite() -> Path:
    """The folder of the canaries, in the layout of a suite; no list of kernels shows them."""
    return Path(__file__).parent / "canary_suite"


def plan_canaries(toolchain: Toolchain, arch: str) -> Plan:
    """The canaries under one toolchain, contraction on and off, on the architecture that the run is for."""
    from reprodb.suite import load_suite

    suite = load_suite(canary_suite())
    profile = Profile(ON, toolchain.compiler, f"=={toolchain.version}", arch=arch)
    builds = [
        PlannedBuild(kernel, kernel.cases, each, toolchain, arch)
        for each in (profile, replace(profile, name=OFF, fmad=False))
        for kernel in suite.kernels
    ]
    return Plan(suite, tuple(builds), (), REPETITIONS)


def outcomes(results: Sequence[Result]) -> tuple[CanaryOutcome, ...]:
    """What the canaries' results say. Pure; a failed outcome that is `fatal` invalidates the run."""
    found = {(r.kernel.name, r.profile): r for r in results}
    return (_hashing(), _integers(found), _contraction(found), _grouping(found), _churn(found))


def not_run(reason: str) -> tuple[CanaryOutcome, ...]:
    """The outcomes where canaries could not be built: a note beside the one that needs no kernel."""
    return (_hashing(), CanaryOutcome("kernels", False, f"not run: {reason}", fatal=False))


def _hashing() -> CanaryOutcome:
    wrong = [text for text, expected in FNV_VECTORS.items() if fnv1a64(text) != expected]
    if not wrong:
        return CanaryOutcome("hashing", True, "the published FNV-1a vectors come out")
    text = wrong[0]
    return CanaryOutcome(
        "hashing",
        False,
        f"FNV-1a of {text.decode()!r} is {hex64(fnv1a64(text))}, published as {hex64(FNV_VECTORS[text])}",
    )


def _integers(found: Mapping[tuple[str, str], Result]) -> CanaryOutcome:
    name = "integer sum"
    for profile in (ON, OFF):
        shown = _only_bits(found.get(("integer_sum", profile)))
        if shown != INTEGER_SUM:
            return CanaryOutcome(name, False, f"must be {INTEGER_SUM} and is {shown} ({profile})")
    return CanaryOutcome(name, True, f"is {INTEGER_SUM} in every repetition")


def _contraction(found: Mapping[tuple[str, str], Result]) -> CanaryOutcome:
    on, off = (_only_bits(found.get(("contraction", profile))) for profile in (ON, OFF))
    right = (on, off) == (FUSED, SEPARATE)
    sentence = f"{on} with contraction and {off} without"
    if not right:
        sentence = f"must be {FUSED} with contraction and {SEPARATE} without, and is {on} and {off}"
    return CanaryOutcome("contraction", right, sentence)


def _grouping(found: Mapping[tuple[str, str], Result]) -> CanaryOutcome:
    """Two orders of one sum, each repeatable: whoever finds them equal cannot tell orders apart."""
    for profile in (ON, OFF):
        result = found.get(("grouping", profile))
        shown = tuple(_only_bits(result, place) for place in (0, 1))
        if shown != GROUPINGS:
            left, right = GROUPINGS
            sentence = (
                f"must be {left} from the left and {right} from the right, and is {' and '.join(shown)}"
            )
            return CanaryOutcome("grouping", False, f"{sentence} ({profile})")
    return CanaryOutcome("grouping", True, f"{GROUPINGS[0]} from the left and {GROUPINGS[1]} from the right")


def _churn(found: Mapping[tuple[str, str], Result]) -> CanaryOutcome:
    """Arrival order that does not show in 20 repetitions is luck or a machine that runs alone: a note."""
    result = found.get(("churn", ON))
    if result is None or result.status is not Status.OK:
        return CanaryOutcome("churn", False, f"no result: {_only_bits(result)}", fatal=False)
    output = result.outputs[0]
    sentence = f"{output.distinct} patterns in {len(output.sequence)} repetitions"
    if output.distinct == 1:
        sentence = f"expected several patterns, saw 1 in {len(output.sequence)} repetitions"
    return CanaryOutcome("churn", output.distinct > 1, sentence, fatal=False)


def _only_bits(result: Result | None, place: int = 0) -> str:
    """The one pattern of a result's output, the first by default, or in words why there is none."""
    if result is None:
        return "missing"
    if result.status is not Status.OK:
        first = next((line for line in result.error.splitlines() if line.strip()), "no reason given")
        return f"{result.status.value} ({first})"
    if place >= len(result.outputs):
        return "missing"
    output = result.outputs[place]
    if output.distinct > 1:
        return f"{output.distinct} patterns"
    return output.first_bits or "no bits"
