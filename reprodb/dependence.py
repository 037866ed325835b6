"""What depends on a stress: guaranteed bits that are not the plain ones of the same run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reprodb.deltas import representative
from reprodb.domain import Output, Result, Status
from reprodb.findings import Comparison, Loss, Verdict
from reprodb.stress import PLAIN, STRESSES


def plain_of(result: Result, results: Iterable[Result]) -> Result | None:
    """The plain result of the same run that a stressed one is held against."""
    row = (*result.row[:4], PLAIN)
    return next((r for r in results if r.row == row and r.status is Status.OK), None)


def dependent(plain: Result, result: Result) -> tuple[Output, ...]:
    """The guaranteed outputs of a stressed result whose bits are not the plain ones."""
    before = {output.name: representative(output).sha256 for output in plain.outputs}
    return tuple(
        output
        for output in result.outputs
        if output.determinism.guaranteed
        and output.name in before
        and any(pattern.sha256 != before[output.name] for pattern in output.patterns)
    )


def broken_under(results: Sequence[Result]) -> tuple[tuple[Result, Output], ...]:
    """Every guaranteed output of a run that depends on a stress, with its result."""
    found = []
    for result in results:
        if result.condition == PLAIN or result.status is not Status.OK:
            continue
        plain = plain_of(result, results)
        if plain is not None:
            found += [(result, output) for output in dependent(plain, result)]
    return tuple(found)


def under_stress(comparison: Comparison, results: Sequence[Result]) -> Comparison:
    """The comparison of a stressed row: determinism is lost where the plain bits of its run are others."""
    result = comparison.candidate
    if result is None or result.condition == PLAIN or result.status is not Status.OK or comparison.loss:
        return comparison
    plain = plain_of(result, results)
    found = dependent(plain, result) if plain is not None else ()
    if plain is None or not found:
        return comparison
    output, stress = found[0], STRESSES.get(result.condition)
    words = stress.words if stress else result.condition
    usual = representative(next(o for o in plain.outputs if o.name == output.name)).sha256
    same = sum(pattern.count for pattern in output.patterns if pattern.sha256 == usual)
    of = len(output.sequence)
    loss = Loss(
        output.name,
        output.distinct,
        of - same,
        of,
        f"under {result.condition}, from the plain ones",
        (stress.advice,) if stress else (),
    )
    told = f"{', '.join(o.name for o in found)} depends on {words} ({result.condition})"
    attribution = comparison.attribution
    if attribution is not None:
        attribution = replace(attribution, sentence=f"{told}; {attribution.sentence}")
    return replace(
        comparison,
        verdict=Verdict.DETERMINISM_LOST,
        loss=loss,
        attribution=attribution,
        note="; ".join(part for part in (told, comparison.note) if part),
    )
