"""What a page shows, taken from the values and put into words and places; templates only lay it out."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from reprodb.digest import hex64
from reprodb.domain import CodeOrigin, Environment, Lane, Output, Result, Role, Run, Status
from reprodb.findings import (
    CodeDelta,
    Comparison,
    Diff,
    ElementDelta,
    MatrixRow,
    OutputDelta,
    Support,
    Verdict,
)
from reprodb.render import bitcells, charts, matrix
from reprodb.render.sidebyside import SideBySide, side_by_side
from reprodb.render.text import count, joined, lines, ranges, utc
from reprodb.render.words import (
    EXITS,
    FLAGGED,
    VERDICTS,
    Word,
    flagged,
    headline,
    patterns,
    sort_results,
    tally,
    worst_first,
)

Fetch = Callable[[str], bytes]
CodeTexts = Callable[[str], tuple[str | None, str | None]]

# Elements opened up as cells in a buffer; the others are rows of a folded table.
OPEN_ELEMENTS = 3
# Opcode rows a function.
OPCODE_ROWS = 8
# Characters of side-by-side code a page carries; past it, counts alone.
CODE_BUDGET = 320_000
# Code is put side by side for this many pairs of artifacts at most.
CODE_PAIRS = 24
# Types that NumPy rounds a reference to.
_NUMPY_FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Fact:
    """One row at the top of a page, with further lines in a softer voice."""

    name: str
    text: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Something to read or do, and the command for it."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Top:
    eyebrow: str
    mark: str
    tone: str
    headline: str
    tally: tuple[tuple[Word, int], ...]
    reasons: tuple[str, ...]
    facts: tuple[Fact, ...]
    unanswered: tuple[Step, ...]
    alarms: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SideRow:
    """One row of the table of both sides."""

    name: str
    before: str
    after: str
    mono: bool = False
    comparable: bool = True

    @property
    def differs(self) -> bool:
        return self.comparable and self.before != self.after


@dataclass(frozen=True, slots=True)
class Shown:
    element: ElementDelta
    cells: bitcells.Cells | None


@dataclass(frozen=True, slots=True)
class MapView:
    """A map ready to draw, its indices as a list, and what it says to who cannot see it."""

    map: charts.ElementMap
    path: Markup
    grid: Markup
    indices: Markup
    title: str
    caption: str


@dataclass(frozen=True, slots=True)
class DeltaView:
    delta: OutputDelta
    open: tuple[Shown, ...]
    rest: tuple[ElementDelta, ...]
    map: MapView | None


@dataclass(frozen=True, slots=True)
class FunctionView:
    delta: CodeDelta
    kind: str  # SASS | PTX
    rows: tuple[tuple[str, int, int], ...]
    more: int


@dataclass(frozen=True, slots=True)
class CodeView:
    above: str = ""  # the anchor of the finding that shows the same two artifacts
    functions: tuple[FunctionView, ...] = ()
    sentence: str = ""
    texts: tuple[tuple[str, SideBySide], ...] = ()
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    comparison: Comparison
    anchor: str
    word: Word
    profiles: str
    subtitle: str
    sentence: str
    moved: tuple[str, ...]
    alarms: tuple[str, ...]
    sides: tuple[SideRow, ...]
    deltas: tuple[DeltaView, ...]
    chart: charts.Histogram | None
    chart_title: str
    repetitions: MapView | None
    code: CodeView | None
    errors: tuple[str, ...]
    next: tuple[Step, ...]
    notes: tuple[str, ...]


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
class Spectrum:
    """The patterns of one arrival-order result, by themselves."""

    kernel: str
    profile: str
    summary: str
    title: str
    chart: charts.Histogram
    reference: float | None


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
    spectra: tuple[Spectrum, ...] = ()


# --- Words for values --------------------------------------------------------------------------


def run_name(run: Run) -> str:
    """`nightly 41 “before the upgrade”`."""
    number = f"{run.kind} {run.id}" if run.id is not None else f"{run.kind} {run.uid}"
    return f"{number} “{run.label}”" if run.label else number


def observed(result: Result) -> str:
    """What was seen beside what is declared: `1 pattern in 100, run_to_run`."""
    if result.status is not Status.OK:
        return result.status.value.replace("_", " ")
    seen = patterns(result)
    return f"{count(seen, 'pattern')} in {result.repetitions:,}, {result.kernel.determinism.value}"


def bits_of(result: Result | None) -> str:
    """The first bits of a one-element result, else its first SHA-256 in short; empty without a result."""
    if result is None or not result.results:
        return ""
    first = result.results[0]
    return first.first_bits or (f"sha256 {first.sha256[:12]}" if first.patterns else "")


def hash_of(result: Result | None) -> str:
    return hex64(result.results[0].run_hash) if result and result.results else ""


def profiles_of(c: Comparison) -> str:
    """`default`, or `default → no-fmad` where the sides differ."""
    names = tuple(side.profile for side in (c.baseline, c.candidate) if side)
    return names[0] if len(set(names)) == 1 else " → ".join(names)


def environment_fact(run: Run) -> Fact:
    """The GPU with its driver where one ran, else the CPU; then the host."""
    env: Environment = run.environment
    device = env.device if run.lane is Lane.MEASURED else None
    gpu = ""
    if device is not None:
        parts = (
            f"driver {env.driver}" if env.driver else "",
            f"CUDA {env.cuda_runtime}" if env.cuda_runtime else "",
        )
        gpu = ", ".join(part for part in (*parts, device.uuid) if part)
    text = f"{device.name}, {device.arch}, {device.sm_count} SMs" if device else env.cpu or "unknown CPU"
    host = ", ".join(part for part in (env.host, env.os) if part)
    variables = ", ".join(f"{name}={value}" for name, value in env.variables)
    return Fact("Environment", text, tuple(part for part in (gpu, host, variables) if part))


def _libraries(run: Run) -> tuple[str, ...]:
    env = run.environment
    libraries = ", ".join(f"{name} {version}" for name, version in env.libraries)
    return tuple(part for part in (libraries, f"reprodb {env.reprodb}, Python {env.python}") if part)


def toolchains_of(results: Iterable[Result | None]) -> tuple[str, ...]:
    return tuple(sorted({r.build.toolchain.label for r in results if r and r.build}))


# --- The top of a page -------------------------------------------------------------------------


def _skips(run: Run) -> tuple[Step, ...]:
    return tuple(Step(f"Profile {s.profile} was skipped: {s.reason}", s.remedy) for s in run.skipped)


def _canaries(diff: Diff) -> tuple[Fact, ...]:
    if not diff.canaries:
        return ()
    held = sum(c.ok for c in diff.canaries)
    failed = tuple(f"{c.name}: {c.sentence}" for c in diff.canaries if not c.ok)
    return (Fact("Canaries", f"{held} of {len(diff.canaries)} as expected", failed),)


def _compared_with(diff: Diff) -> Fact:
    candidate = run_name(diff.candidate)
    if diff.baseline is None:
        text = f"{candidate} with the reference of each row"
        kinds: dict[str, int] = {}
        for c in diff.comparisons:
            kind = c.reference_kind or ("no reference" if c.baseline is None else "named")
            kinds[kind] = kinds.get(kind, 0) + 1
        more = (", ".join(f"{kind}: {n:,}" for kind, n in sorted(kinds.items())),)
    elif diff.baseline.uid == diff.candidate.uid:
        text, more = f"two builds inside {candidate}", (f"started {utc(diff.candidate.started_at)}",)
    else:
        text = f"{run_name(diff.baseline)} with {candidate}"
        more = (f"started {utc(diff.baseline.started_at)} and {utc(diff.candidate.started_at)}",)
    rows = count(diff.compared, "row has bits on both sides", "rows have bits on both sides")
    code = f"exit code {diff.exit_code}: {EXITS.get(diff.exit_code, 'unknown')}"
    return Fact("Compared", text, (*more, rows, code))


def diff_top(diff: Diff) -> Top:
    counts = tally(diff.comparisons)
    alarms = tuple(c for c in diff.canaries if not c.ok and c.fatal)
    worst = _worst_word(diff)
    blind = tuple(
        Step(f"{count(n, 'row')}, {VERDICTS[verdict].label}. {VERDICTS[verdict].meaning}")
        for verdict, n in counts
        if verdict in (Verdict.NO_RESULT, Verdict.NOT_COMPARABLE, Verdict.NO_BASELINE)
    )
    both = [r for c in diff.comparisons for r in (c.baseline, c.candidate)]
    run = diff.candidate
    return Top(
        f"{run.suite} · {run_name(run)} · {utc(run.started_at)}",
        worst.mark,
        worst.tone,
        headline(diff),
        tuple((VERDICTS[verdict], n) for verdict, n in counts),
        diff.reasons,
        (
            _compared_with(diff),
            environment_fact(run),
            Fact("Toolchains", joined(list(toolchains_of(both))) or "none", _libraries(run)),
            *_canaries(diff),
        ),
        (*blind, *(Step(note) for note in diff.notes), *_skips(run)),
        alarms,
    )


def _worst_word(diff: Diff) -> Word:
    """The mark of the headline: quiet where the exit code is 0 and nothing is open."""
    if diff.exit_code:
        ordered = worst_first(diff.comparisons)
        gravest = VERDICTS[ordered[0].verdict] if ordered and ordered[0].gated else None
        return Word(gravest.mark if gravest else "!", "bad", "", "")
    shown = [c.verdict for c in diff.comparisons if c.verdict in FLAGGED]
    return VERDICTS[min(shown, key=list(VERDICTS).index)] if shown else VERDICTS[Verdict.SAME]


def run_top(run: Run, results: Sequence[Result]) -> Top:
    """The top of a run's page that was compared with nothing."""
    failed = [r for r in results if r.status is not Status.OK]
    done = len(results) - len(failed)
    words = f"{count(done, 'result')} recorded" + (f", {len(failed):,} without bits" if failed else "")
    open_end = "" if run.complete else " The run did not finish."
    blind = tuple(
        Step(f"{r.kernel.name}, {r.profile}: {r.status.value.replace('_', ' ')}") for r in failed[:20]
    )
    more = (Step(f"and {len(failed) - 20:,} more"),) if len(failed) > 20 else ()
    return Top(
        f"{run.suite} · {run_name(run)} · {utc(run.started_at)}",
        "!" if failed or not run.complete else "○",
        "bad" if failed or not run.complete else "info",
        f"{words}; nothing compared.{open_end}",
        (),
        (),
        (
            Fact("Compared", "with nothing"),
            environment_fact(run),
            Fact("Toolchains", joined(list(toolchains_of(results))) or "none", _libraries(run)),
        ),
        (*blind, *more, *_skips(run)),
        (),
    )


# --- Findings ----------------------------------------------------------------------------------


def _side_rows(c: Comparison) -> tuple[SideRow, ...]:
    sides = (c.baseline, c.candidate)
    equal_reps = c.baseline is not None and c.candidate is not None
    equal_reps = equal_reps and c.baseline.repetitions == c.candidate.repetitions  # type: ignore[union-attr]

    def row(name: str, text: Callable[[Result], str], mono: bool = False, comparable: bool = True) -> SideRow:
        before, after = (text(side) if side else "" for side in sides)
        return SideRow(name, before, after, mono, comparable and all(sides))

    def toolchain(r: Result) -> str:
        return r.build.toolchain.label if r.build else "none"

    def error(r: Result) -> str:
        return "" if r.accuracy.max_rel_err is None else f"{r.accuracy.max_rel_err:.3e}"

    rows = [
        row("profile", lambda r: r.profile),
        row("toolchain", toolchain),
        row("result bits", bits_of, True),
        row("patterns", observed),
        row("run hash", hash_of, True, equal_reps),
        row("largest relative error", error),
    ]
    if any(s is not None and s.origin is CodeOrigin.JIT for s in sides):
        rows.append(row("executed", lambda r: r.origin.value if r.origin else ""))
    return tuple(r for r in rows if r.before or r.after)


def delta_view(d: OutputDelta, dtype_of: Callable[[OutputDelta, ElementDelta], str]) -> DeltaView:
    """Cells for the first differing elements, a map where there are many."""
    few = tuple(Shown(e, bitcells.cells(e, dtype_of(d, e))) for e in d.elements[:OPEN_ELEMENTS])
    found = None
    if d.changed and d.of > 1:
        title = f"Map of {d.name}: {d.changed:,} of {d.of:,} elements moved"
        found = map_view(d.moved, d.of, title, ("element", "elements"), "moved")
    return DeltaView(d, few, d.elements[OPEN_ELEMENTS:], found)


def map_view(marked: tuple[int, ...], of: int, title: str, unit: tuple[str, str], what: str) -> MapView:
    """A map of `of` things of which the `marked` ones are filled."""
    found = charts.element_map(marked, of)
    across = "".join(f"M0 {y}h{found.columns}" for y in range(1, found.rows))
    down = "".join(f"M{x} 0v{found.rows}" for x in range(1, found.columns))
    each = f"one {unit[0]}" if found.step == 1 else f"{found.step:,} {unit[1]}"
    return MapView(
        found,
        Markup(found.path),  # noqa: S704 -- digits of our own
        Markup(across + down),  # noqa: S704 -- digits of our own
        Markup(ranges(marked)),  # noqa: S704 -- digits of our own
        title,
        f"A cell is {each}, row by row from the top left; filled cells {what}.",
    )


def _odd_repetitions(output: Output | None) -> MapView | None:
    """The repetitions that do not show the most frequent pattern."""
    if output is None or output.distinct < 2:
        return None
    usual = max(range(output.distinct), key=lambda i: (output.patterns[i].count, -i))
    odd = tuple(at for at, index in enumerate(output.sequence) if index != usual)
    title = f"{len(odd):,} of {len(output.sequence):,} repetitions differ"
    return map_view(odd, len(output.sequence), title, ("repetition", "repetitions"), "differ")


def _dtype_of(result: Result) -> Callable[[OutputDelta, ElementDelta], str]:
    fields = {(o.name, f.name): f.dtype for o in result.outputs for f in o.fields}
    return lambda d, e: fields.get((d.name, e.field or ""), d.dtype)


class CodeShelf:
    """The code of a page's findings: each pair of artifacts once, within the page's budget."""

    def __init__(self, texts: CodeTexts | None) -> None:
        self._texts = texts
        self._seen: dict[tuple[str, str], str] = {}
        self._left = CODE_BUDGET

    def view(self, c: Comparison, anchor: str) -> CodeView | None:
        """The code of both sides; None where a side was never built."""
        from reprodb.codegen import code_delta

        old, new = (side.build if side else None for side in (c.baseline, c.candidate))
        if old is None or new is None or old.code is None or new.code is None:
            return None
        pair = (old.key, new.key)
        if pair in self._seen:
            return CodeView(above=self._seen[pair])
        self._seen[pair] = anchor
        functions = []
        for delta in code_delta(old.code, new.code):
            rows = delta.sass or delta.ptx
            kind = "SASS" if delta.sass else "PTX"
            functions.append(FunctionView(delta, kind, rows[:OPCODE_ROWS], max(0, len(rows) - OPCODE_ROWS)))
        texts, left_out = self._side_by_side(pair)
        if (old.code.ptx, old.code.sass) == (new.code.ptx, new.code.sass):
            sentence = "The generated code is the same."
        else:
            sentence = "The code differs; its opcode counts are equal."
        return CodeView("", tuple(functions), sentence, texts, left_out)

    def _side_by_side(self, pair: tuple[str, str]) -> tuple[tuple[tuple[str, SideBySide], ...], str]:
        if self._texts is None or pair[0] == pair[1]:
            return (), ""
        if self._left <= 0 or len(self._seen) > CODE_PAIRS:
            return (), "The text is left out to keep the page small."
        shown = []
        for name, before, after in zip(
            ("PTX", "SASS"), self._texts(pair[0]), self._texts(pair[1]), strict=True
        ):
            if before is None or after is None:
                continue
            found = side_by_side(before, after)
            if found.removed or found.added:
                shown.append((name, found))
                self._left -= sum(len(r.before) + len(r.after) + 60 for r in found.rows)
        return tuple(shown), ""


def finding(c: Comparison, number: int, shelf: CodeShelf, candidate_run: Run, fetch: Fetch | None) -> Finding:
    """A comparison opened up in full."""
    word, told = VERDICTS[c.verdict], c.attribution
    anchor = f"f{number}"
    either = c.either
    parts = (c.case, profiles_of(c), either.arch, "" if either.condition == "plain" else either.condition)
    after = c.candidate
    failing = after if after is not None and after.status is not Status.OK else None
    broken = None
    if c.loss and after is not None:
        broken = next((o for o in after.outputs if o.name == c.loss.output), None)
    notes = [c.gate_reason, c.note, f"compared with {reference_of(c)}" if c.reference_run is not None else ""]
    if c.candidate is not None:
        notes += c.candidate.notes
    return Finding(
        c,
        anchor,
        word,
        profiles_of(c),
        " · ".join(part for part in parts if part),
        told.sentence if told and told.sentence else word.meaning,
        tuple(m.value for m in told.moved) if told else (),
        tuple(alarm.value.capitalize() + "." for alarm in told.alarms) if told else (),
        _side_rows(c),
        tuple(delta_view(d, _dtype_of(either)) for d in _by_role(c.outputs)),
        _own_histogram(broken, fetch),
        f"Patterns of {c.kernel} in the candidate",
        _odd_repetitions(broken),
        shelf.view(c, anchor) if c.verdict is not Verdict.MISSING else None,
        lines(failing.error or (failing.build.log if failing.build else "")) if failing else (),
        _next_steps(c, word, candidate_run),
        tuple(_stop(note[0].upper() + note[1:]) for note in notes if note),
    )


def _own_histogram(output: Output | None, fetch: Fetch | None) -> charts.Histogram | None:
    support = _support(output, fetch) if output is not None else None
    return charts.histogram(support) if support else None


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


def _by_role(deltas: Iterable[OutputDelta]) -> tuple[OutputDelta, ...]:
    return tuple(sorted(deltas, key=lambda d: (d.role is not Role.RESULT, not d.changed, d.name)))


def reference_of(c: Comparison) -> str:
    """`the accepted result of run 40`, `run 41`."""
    if c.reference_run is None:
        return ""
    if c.reference_kind in ("blessed", "accepted"):
        return f"the {c.reference_kind} result of run {c.reference_run}"
    return f"run {c.reference_run}"


def _next_steps(c: Comparison, word: Word, run: Run) -> tuple[Step, ...]:
    steps = [Step(word.next_step)] if word.next_step else []
    if c.loss:
        steps += [Step("", command) for command in c.loss.advice]
    if c.verdict is Verdict.CHANGED and run.id is not None and c.candidate is not None:
        target = shlex.quote(f"{run.id}:{c.candidate.profile}")
        steps.append(Step("", f'reprodb bless {target} {shlex.quote(c.kernel)} --reason "…"'))
    if c.accuracy.value == "outside":
        steps.append(Step("The answer is outside its tolerance: equal bits would not make it right."))
    return tuple(steps)


# --- Quiet rows --------------------------------------------------------------------------------


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
    before = _span([c.baseline.distinct for c in churns])
    after = _span([c.candidate.distinct for c in churns])
    spreads = [c.spread_ulp for c in churns if c.spread_ulp is not None]
    spread = f", at most {max(spreads):,} ULP apart" if spreads else ""
    where = profiles_of(rows[0]) if len(rows) == 1 else f"{len(rows)} rows"
    return f"{where}: {before} patterns before, {after} now{spread}"


def _span(numbers: Sequence[int]) -> str:
    return f"{min(numbers):,}" if min(numbers) == max(numbers) else f"{min(numbers):,}–{max(numbers):,}"


def _churn_view(c: Comparison) -> ChurnView:
    churn = c.churn
    if churn is None:
        raise ValueError(f"{c.kernel} has no churn to show")
    chart = charts.histogram(churn.baseline, churn.candidate)
    title = (
        f"{c.kernel}, {profiles_of(c)}: {churn.baseline.distinct} patterns, now {churn.candidate.distinct}"
    )
    lowest = min(
        (churn.baseline, churn.candidate),
        key=lambda side: min((u for _, _, u in side.patterns if u is not None), default=1),
    )
    reference = _reference_place(chart, lowest, c.either) if chart else None
    sentence = " ".join(_stop(part) for part in (churn.mode, churn.note or "") if part)
    return ChurnView(c, profiles_of(c), sentence, chart, title, reference)


def _stop(text: str) -> str:
    return text if not text or text.endswith((".", "!", "?")) else text + "."


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


# --- Pages -------------------------------------------------------------------------------------


def diff_page(diff: Diff, code_texts: CodeTexts | None, fetch: Fetch | None) -> Page:
    """A diff: findings in full, churn and what held in quiet rows."""
    ordered = worst_first(diff.comparisons)
    loud = tuple(c for c in ordered if flagged(c))
    quiet = tuple(c for c in ordered if not flagged(c))
    shelf = CodeShelf(code_texts)
    churns = tuple(c for c in quiet if c.churn)
    held = tuple(c for c in quiet if not c.churn)
    counts = ", ".join(f"{n:,} {VERDICTS[verdict].label}" for verdict, n in tally(held))
    return Page(
        diff_top(diff),
        matrix.table(diff.matrix),
        tuple(finding(c, n, shelf, diff.candidate, fetch) for n, c in enumerate(loud, 1)),
        churn_groups(churns, opened=bool(loud) and len(churns) <= 2),
        tuple(held_row(c) for c in held),
        counts,
    )


def report_page(
    run: Run,
    results: Sequence[Result],
    diff: Diff | None,
    rows: Sequence[MatrixRow],
    *,
    code_texts: CodeTexts | None,
    fetch: Fetch | None,
) -> Page:
    """A run, with its diff where it was compared."""
    ordered = sort_results(results)
    page = diff_page(diff, code_texts, fetch) if diff else Page(run_top(run, ordered), matrix.table(()))
    table = matrix.table(rows or (diff.matrix if diff else ()))
    spectra = () if diff else tuple(s for r in ordered if (s := spectrum(r, fetch)))
    return replace(
        page,
        matrix=table,
        results=tuple(result_row(r) for r in ordered),
        results_open=diff is None,
        results_summary=f"{count(len(ordered), 'result')} of this run",
        spectra=spectra,
    )


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
        result.kernel.name, result.profile, summary, title, chart, _reference_place(chart, support, result)
    )
