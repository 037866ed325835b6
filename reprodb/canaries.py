"""The canaries of a run, judged before anything else: what must match, must differ, and should churn."""

from __future__ import annotations

from collections.abc import Iterable

from reprodb.bits import from_hex
from reprodb.digest import hex64, run_hash
from reprodb.domain import Result, Status
from reprodb.findings import CanaryOutcome

# Tags that make a kernel of a suite a canary.
MATCH = "canary-match"  # every output has the bits that its case expects
CONTRACTION = "canary-contraction"  # with and without contraction the results differ
CHURN = "canary-churn"  # several patterns are expected; one alone is a note

# The published run hash of a hundred times 0x4b25426d.
_WORD, _REPETITIONS, _HASH = "0x4b25426d", 100, 0x8189389FE1BC0A65


def _name(result: Result) -> str:
    return f"{result.kernel.name} ({result.profile})"


def _hash() -> CanaryOutcome:
    found = run_hash([from_hex(_WORD)], [0] * _REPETITIONS)
    ok = found == _HASH
    sentence = f"{_REPETITIONS} times {_WORD} hash to {hex64(found)}"
    return CanaryOutcome("run hash", ok, sentence if ok else f"{sentence}, published is {hex64(_HASH)}")


def _match(result: Result) -> CanaryOutcome:
    if result.status is not Status.OK:
        return CanaryOutcome(_name(result), False, f"no result: {result.status}")
    expected = dict(result.case.expected)
    outputs = {o.name: o for o in result.outputs}
    for name, word in expected.items():
        output = outputs.get(name)
        if output is None or output.distinct != 1 or output.first_bits != word:
            seen = "nothing" if output is None else f"{output.first_bits}, {output.distinct} patterns"
            return CanaryOutcome(_name(result), False, f"{name} must be {word}, seen: {seen}")
    if not expected:
        return CanaryOutcome(_name(result), False, "its case expects no bits: nothing can be checked")
    return CanaryOutcome(_name(result), True, ", ".join(f"{n} is {w}" for n, w in expected.items()))


def _contraction(results: list[Result]) -> Iterable[CanaryOutcome]:
    """One outcome for each pair of profiles that differ in contraction alone; none where no pair ran."""
    built = [(r, r.build) for r in results if r.status is Status.OK and r.build is not None]
    for fused, on in built:
        for apart, off in built:
            alike = (on.toolchain.identity, fused.arch, fused.case.name, fused.condition) == (
                off.toolchain.identity,
                apart.arch,
                apart.case.name,
                apart.condition,
            )
            plain = not on.profile.fast_math and not off.profile.fast_math
            if not (alike and plain and on.profile.fmad and not off.profile.fmad):
                continue
            differ = [o.sha256 for o in fused.results] != [o.sha256 for o in apart.results]
            name = f"{fused.kernel.name} ({fused.profile}, {apart.profile})"
            yield CanaryOutcome(
                name,
                differ,
                "with and without contraction the bits differ"
                if differ
                else "with and without contraction the bits are the same: the flag did not arrive",
            )


def _churn(result: Result) -> CanaryOutcome:
    distinct = max((o.distinct for o in result.outputs), default=0)
    moved = distinct > 1
    sentence = f"{distinct} patterns of {result.repetitions:,}"
    return CanaryOutcome(
        _name(result), moved, sentence if moved else f"{sentence}: no order was seen to vary", fatal=False
    )


def judge_canaries(results: Iterable[Result]) -> tuple[CanaryOutcome, ...]:
    """The outcomes for a run's results: the run hash always, the rest by the tags of its kernels.

    A canary that should churn and does not is never fatal: scheduling may just have been calm.
    """
    results = list(results)
    by_kernel: dict[str, list[Result]] = {}
    for result in results:
        if CONTRACTION in result.kernel.tags:
            by_kernel.setdefault(result.kernel.name, []).append(result)
    return (
        _hash(),
        *(_match(r) for r in results if MATCH in r.kernel.tags),
        *(outcome for group in by_kernel.values() for outcome in _contraction(group)),
        *(_churn(r) for r in results if CHURN in r.kernel.tags and r.status is Status.OK),
    )
