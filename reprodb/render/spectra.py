"""Patterns of arrival-order kernels: tables and histograms of churn, and of one result by itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reprodb.domain import Output, Result
from reprodb.findings import Comparison, Support
from reprodb.render import charts
from reprodb.render.sources import Fetch
from reprodb.render.text import count, full_stop
from reprodb.render.words import patterns, profiles_of

# Types that NumPy rounds a reference to.
_NUMPY_FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class ChurnView:
    """One churning row: what a table says of it, and its histogram."""

    comparison: Comparison
    profiles: str
    sentence: str
    chart: charts.Histogram | None
    chart_title: str
    reference: float | None


@dataclass(frozen=True, slots=True)
class ChurnGroup:
    """The churning rows of one kernel and case."""

    kernel: str
    case: str
    summary: str
    items: tuple[ChurnView, ...]
    open: bool


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The patterns of one arrival-order result, by themselves."""

    kernel: str
    case: str
    distinct: int
    profile: str
    summary: str
    title: str
    chart: charts.Histogram
    reference: float | None


def churn_groups(comparisons: Iterable[Comparison], *, opened: bool) -> tuple[ChurnGroup, ...]:
    """Churning rows by kernel and case, in order of appearance."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for c in comparisons:
        groups.setdefault((c.kernel, c.case), []).append(c)
    return tuple(
        ChurnGroup(kernel, case, _churn_summary(rows), tuple(_churn_view(c) for c in rows), opened)
        for (kernel, case), rows in groups.items()
    )


def _churn_summary(rows: Sequence[Comparison]) -> str:
    churns = [c.churn for c in rows if c.churn]
    before = span([c.baseline.distinct for c in churns])
    after = span([c.candidate.distinct for c in churns])
    spreads = [c.spread_ulp for c in churns if c.spread_ulp is not None]
    spread = f", at most {max(spreads):,} ULP apart" if spreads else ""
    where = profiles_of(rows[0]) if len(rows) == 1 else f"{len(rows)} rows"
    return f"{where}: {before} pattern{'s' * (before != '1')} before, {after} now{spread}"


def span(numbers: Sequence[int]) -> str:
    """`12`, or `12–16`."""
    return f"{min(numbers):,}" if min(numbers) == max(numbers) else f"{min(numbers):,}–{max(numbers):,}"


def _churn_view(c: Comparison) -> ChurnView:
    churn = c.churn
    if churn is None:
        raise ValueError(f"{c.kernel} has no churn to show")
    chart, reference = churn_chart(c)
    title = (
        f"{c.kernel}, {profiles_of(c)}: {churn.baseline.distinct} patterns, now {churn.candidate.distinct}"
    )
    sentence = " ".join(full_stop(part) for part in (churn.mode, churn.note or "") if part)
    return ChurnView(c, profiles_of(c), sentence, chart, title, reference)


def churn_chart(c: Comparison) -> tuple[charts.Histogram | None, float | None]:
    """Both sides of a churn over one axis, and where the high-precision reference stands on it, in bins."""
    if c.churn is None:
        return None, None
    sides = (c.churn.baseline, c.churn.candidate)
    chart = charts.histogram(*sides)
    lowest = min(sides, key=lambda side: min((u for _, _, u in side.patterns if u is not None), default=1))
    return chart, _reference_place(chart, lowest, c.either) if chart else None


def spectrum(result: Result, fetch: Fetch | None) -> Spectrum | None:
    """The histogram of a result with several patterns."""
    if patterns(result) < 2:
        return None
    output = max(result.results, key=lambda o: o.distinct)
    support = _support(output, fetch)
    chart = charts.histogram(support)
    if chart is None:
        return None
    spread = max(ulp for _, _, ulp in support.patterns if ulp is not None)
    summary = f"{count(output.distinct, 'pattern')} in {result.repetitions:,}, spread {spread:,} ULP"
    title = f"{result.kernel.name}, {result.profile}: {summary}"
    return Spectrum(
        result.kernel.name,
        result.case.name,
        output.distinct,
        result.profile,
        summary,
        title,
        chart,
        _reference_place(chart, support, result),
    )


@dataclass(frozen=True, slots=True)
class SpectrumGroup:
    """The spectra of one kernel and case."""

    kernel: str
    case: str
    summary: str
    items: tuple[Spectrum, ...]


def spectrum_groups(spectra: Iterable[Spectrum]) -> tuple[SpectrumGroup, ...]:
    """Spectra by kernel and case, in order of appearance."""
    groups: dict[tuple[str, str], list[Spectrum]] = {}
    for found in spectra:
        groups.setdefault((found.kernel, found.case), []).append(found)
    return tuple(
        SpectrumGroup(
            kernel,
            case,
            f"{span([item.distinct for item in items])} patterns in {count(len(items), 'row')}",
            tuple(items),
        )
        for (kernel, case), items in groups.items()
    )


def own_histogram(
    output: Output, result: Result, fetch: Fetch | None
) -> tuple[charts.Histogram | None, float | None]:
    """The histogram of one output's patterns, None where they have no places on an axis; the reference's."""
    support = _support(output, fetch)
    chart = charts.histogram(support)
    own = chart is not None and result.results and result.results[0].name == output.name
    return chart, _reference_place(chart, support, result) if chart and own else None


def _support(output: Output, fetch: Fetch | None) -> Support:
    """The patterns of one output over their own ULP axis."""
    from reprodb.variation import churn_of

    return churn_of(output, output, fetch or _nothing).baseline


def _nothing(sha256: str) -> bytes:
    raise LookupError(sha256)


def _reference_place(chart: charts.Histogram, support: Support, result: Result) -> float | None:
    """Where the high-precision reference stands on the axis, in bins; None where it has no place."""
    from reprodb import bits

    dtype = result.results[0].dtype if result.results else ""
    lowest = next((text for text, _, ulp in support.patterns if ulp == 0), None)
    reference = result.accuracy.reference
    if reference is None or lowest is None or dtype not in _NUMPY_FLOATS:
        return None
    import numpy as np

    with np.errstate(over="ignore"):
        word = np.array([reference], dtype=dtype).tobytes()
    places = [
        int(bits.ordinals(bits.to_bits(data, dtype), dtype)[0]) for data in (word, bits.from_hex(lowest))
    ]
    place = (places[0] - places[1] - chart.low) / chart.width + 0.5
    return place if 0 <= place <= chart.bins else None
