"""What a page shows, taken from the values and put into words and places; templates only lay it out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reprodb.domain import Result, Run
from reprodb.findings import Comparison, Diff, MatrixRow
from reprodb.render import matrix
from reprodb.render.finding import CodeShelf, Finding, finding
from reprodb.render.sources import Sources
from reprodb.render.spectra import ChurnGroup, SpectrumGroup, churn_groups, spectrum, spectrum_groups
from reprodb.render.text import count
from reprodb.render.top import Top, diff_top, run_top
from reprodb.render.words import (
    VERDICTS,
    Word,
    bits_of,
    flagged,
    hash_of,
    observed,
    profiles_of,
    reference_of,
    sort_results,
    tally,
    untouched,
    worst_first,
)


@dataclass(frozen=True, slots=True)
class HeldRow:
    comparison: Comparison
    word: Word
    profiles: str
    observed: str
    bits: str
    reference: str


@dataclass(frozen=True, slots=True)
class ResultRow:
    result: Result
    observed: str
    bits: str
    hash: str
    error: str


@dataclass(frozen=True, slots=True)
class Page:
    top: Top
    matrix: matrix.Table
    findings: tuple[Finding, ...] = ()
    churn: tuple[ChurnGroup, ...] = ()
    held: tuple[HeldRow, ...] = ()
    held_summary: str = ""
    results: tuple[ResultRow, ...] = ()
    results_open: bool = False
    results_summary: str = ""
    spectra: tuple[SpectrumGroup, ...] = ()


def held_row(c: Comparison) -> HeldRow:
    return HeldRow(
        c,
        VERDICTS[c.verdict],
        profiles_of(c),
        observed(c.either),
        bits_of(c.either),
        reference_of(c) or "nothing",
    )


def result_row(r: Result) -> ResultRow:
    error = "" if r.accuracy.max_rel_err is None else f"{r.accuracy.max_rel_err:.2e}"
    return ResultRow(r, observed(r), bits_of(r), hash_of(r), error)


def diff_page(diff: Diff, sources: Sources) -> Page:
    """A diff: findings in full, churn and what held in quiet rows."""
    ordered = worst_first(diff.comparisons)
    loud = tuple(c for c in ordered if flagged(c))
    quiet = tuple(c for c in ordered if not flagged(c))
    shelf = CodeShelf(sources)
    churns = tuple(c for c in quiet if c.churn)
    held = tuple(c for c in quiet if not c.churn)
    counts = ", ".join(f"{n:,} {VERDICTS[verdict].label}" for verdict, n in tally(held))
    findings = tuple(finding(c, n, shelf, diff.candidate, sources) for n, c in enumerate(loud, 1))
    return Page(
        diff_top(diff),
        matrix.table(diff.matrix, flags(findings)),
        findings,
        churn_groups(churns, opened=bool(loud) and len(churns) <= 2),
        tuple(held_row(c) for c in held),
        counts,
    )


def flags(findings: Sequence[Finding]) -> dict[tuple[str, str, str], matrix.Flag]:
    """The findings by the cells of the matrix that they are about, under each name a cell may have."""
    found: dict[tuple[str, str, str], matrix.Flag] = {}
    for f in findings:
        side = f.comparison.candidate
        if side is None:
            continue
        flag = matrix.Flag(f.anchor, f.word.label, "bad" if f.comparison.gated else f.word.tone)
        kernel, case, profile, arch, condition = side.row
        for name in (profile, f"{profile} {arch}"):
            for suffix in ("", f" [{condition}]"):
                found.setdefault((kernel, case, name + suffix), flag)
    return found


def report_page(
    run: Run,
    results: Sequence[Result],
    diff: Diff | None,
    rows: Sequence[MatrixRow],
    sources: Sources,
) -> Page:
    """A run, with its diff where it was compared."""
    ordered = sort_results(results)
    page = diff_page(diff, sources) if diff else Page(run_top(run, ordered), matrix.table(()))
    table = matrix.table(rows or (diff.matrix if diff else ()), flags(page.findings))
    # Where no row meets another, each arrival-order result is shown by itself.
    alone = diff is None or untouched(diff)
    found = (s for r in ordered if (s := spectrum(r, sources.fetch))) if alone else ()
    return replace(
        page,
        matrix=table,
        held=() if alone else page.held,
        results=tuple(result_row(r) for r in ordered),
        results_open=diff is None,
        results_summary=f"{count(len(ordered), 'result')} of this run",
        spectra=spectrum_groups(found),
    )
