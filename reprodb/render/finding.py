"""A comparison opened up in full: both sides, bits, layers, code, and what to do next."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from markupsafe import Markup

from reprodb.claims import Claim
from reprodb.codegen import code_delta, launched
from reprodb.domain import CodeOrigin, Output, Result, Role, Run, Status
from reprodb.findings import CodeDelta, Comparison, ElementDelta, OutputDelta, Verdict
from reprodb.ordering import phrase
from reprodb.render import bitcells, charts
from reprodb.render.sidebyside import SideBySide, side_by_side
from reprodb.render.sources import Sources
from reprodb.render.spectra import churn_chart, own_histogram
from reprodb.render.strip import Strip, strip
from reprodb.render.text import lines, ranges, sentence
from reprodb.render.words import VERDICTS, Step, Word, bits_of, hash_of, observed, profiles_of, reference_of

# Elements opened up as cells in a buffer; the others are rows of a folded table. One where findings are many.
OPEN_ELEMENTS = 3
# Findings that are opened up at their full length.
LONG = 24
# Cells of a finding's strip; the kernel's own page goes further back.
CELLS = 40
# Opcode rows a function.
OPCODE_ROWS = 8
# Characters of side-by-side code a page carries; past it, counts alone.
CODE_BUDGET = 100_000
# Code is put side by side for this many pairs of artifacts at most.
CODE_PAIRS = 24
# Findings of a page that carry their claim card; the others name the command that prints it.
CARDS = 10


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
class Whole:
    """The whole text of one side, as a file of its own."""

    side: str
    kind: str  # PTX | SASS
    address: str


@dataclass(frozen=True, slots=True)
class CodeView:
    above: str = ""  # the anchor of the finding that shows the same two artifacts
    functions: tuple[FunctionView, ...] = ()
    others: tuple[str, ...] = ()  # functions of other kernels in the same source that differ too
    unseen: tuple[str, ...] = ()  # functions whose counts differ in PTX and not in SASS
    sentence: str = ""
    texts: tuple[tuple[str, SideBySide], ...] = ()
    left_out: str = ""
    whole: tuple[Whole, ...] = ()
    command: str = ""  # prints the whole texts, where there are no files of them


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
    chart_names: tuple[str, str] | None  # of the sides above and below the axis
    chart_reference: float | None  # where the high-precision reference stands, in bins
    repetitions: MapView | None
    strip: Strip  # of this row over the runs
    code: CodeView | None
    errors: tuple[str, ...]
    next: tuple[Step, ...]
    notes: tuple[str, ...]
    card: Claim | None
    card_command: str


def _side_rows(c: Comparison) -> tuple[SideRow, ...]:
    sides, guaranteed = (c.baseline, c.candidate), c.either.kernel.determinism.guaranteed
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
        row("result bits", bits_of, True, guaranteed),
        row("patterns", observed),
        row("run hash", hash_of, True, equal_reps and guaranteed),
        row("order fingerprint", lambda r: phrase(r.fingerprint) if r.fingerprint else "", True),
        row("largest relative error", error),
    ]
    if any(s is not None and s.origin is CodeOrigin.JIT for s in sides):
        rows.append(row("executed", lambda r: r.origin.value if r.origin else ""))
    return tuple(r for r in rows if r.before or r.after)


def delta_view(
    d: OutputDelta, dtype_of: Callable[[OutputDelta, ElementDelta], str], opened: int = OPEN_ELEMENTS
) -> DeltaView:
    """Cells for the first `opened` differing elements, a map where there are many."""
    few = tuple(Shown(e, bitcells.cells(e, dtype_of(d, e))) for e in d.elements[:opened])
    found = None
    if d.changed and d.of > 1:
        title = f"Map of {d.name}: {d.changed:,} of {d.of:,} elements moved"
        found = map_view(d.moved, d.of, title, ("element", "elements"), "moved")
    return DeltaView(d, few, d.elements[opened:], found)


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

    def __init__(self, sources: Sources) -> None:
        self._texts = sources.code_texts
        self._links = sources.code_links
        self._seen: dict[tuple[str, str], str] = {}
        self._left = CODE_BUDGET

    def view(self, c: Comparison, anchor: str, run: Run) -> CodeView | None:
        """The code of both sides; None where a side was never built. `run` is the candidate's."""
        old, new = (side.build if side else None for side in (c.baseline, c.candidate))
        if old is None or new is None or old.code is None or new.code is None:
            return None
        pair = (old.key, new.key)
        functions, others, unseen = [], [], []
        known = old.code.sass is not None and new.code.sass is not None
        entries = {stage.entry for stage in c.either.kernel.stages}
        for delta in code_delta(old.code, new.code):
            if not launched(delta.function, entries):
                others.append(delta.function)
                continue
            if known and not delta.sass:  # what ran has the same counts
                unseen.append(delta.function)
                continue
            rows = delta.sass or delta.ptx
            kind = "SASS" if delta.sass else "PTX"
            functions.append(FunctionView(delta, kind, rows[:OPCODE_ROWS], max(0, len(rows) - OPCODE_ROWS)))
        if (old.code.ptx, old.code.sass) == (new.code.ptx, new.code.sass):
            told = "The generated code is the same."
        else:
            told = "The code differs; its opcode counts are equal."
        if pair in self._seen:
            return CodeView(self._seen[pair], tuple(functions), tuple(others), tuple(unseen), told)
        self._seen[pair] = anchor
        texts, left_out = self._side_by_side(pair)
        whole = self._whole(pair) if pair[0] != pair[1] else ()
        command = "" if whole or self._texts is None or pair[0] == pair[1] else _code_command(c, run)
        return CodeView(
            "", tuple(functions), tuple(others), tuple(unseen), told, texts, left_out, whole, command
        )

    def _whole(self, pair: tuple[str, str]) -> tuple[Whole, ...]:
        if self._links is None:
            return ()
        found = (
            (side, kind, self._links(key, kind))
            for side, key in zip(("baseline", "candidate"), pair, strict=True)
            for kind in ("ptx", "sass")
        )
        return tuple(Whole(side, kind.upper(), address) for side, kind, address in found if address)

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


def _code_command(c: Comparison, run: Run) -> str:
    """What prints the whole texts of both sides; empty where a side is in no run of this database."""
    if c.baseline is None or c.candidate is None or c.reference_run is None or run.id is None:
        return ""
    sides = (f"{c.reference_run}:{c.baseline.profile}", f"{run.id}:{c.candidate.profile}")
    if c.baseline.kernel.name == c.kernel:
        return shlex.join(["reprodb", "code", *sides, c.kernel, "--ptx", "--sass", "--full"])
    names = (c.baseline.kernel.name, c.kernel)
    parts = (f"{side}:{kernel}" for side, kernel in zip(sides, names, strict=True))
    return shlex.join(["reprodb", "code", *parts, "--ptx", "--sass", "--full"])


def finding(c: Comparison, number: int, shelf: CodeShelf, candidate_run: Run, sources: Sources) -> Finding:
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
    chart, reference = None, None
    if c.churn:
        chart, reference = churn_chart(c)
    elif broken is not None:
        chart, reference = own_histogram(broken, after or either, sources.fetch)
    card = after if sources.claims and after is not None and after.status is Status.OK else None
    command = ""
    if card is not None and candidate_run.id is not None:
        where = f"{candidate_run.id}:{card.profile}"
        command = shlex.join(["reprodb", "claim", where, c.kernel, "--case", c.case])
    notes = [c.gate_reason, c.note, f"compared with {reference_of(c)}" if c.reference_run is not None else ""]
    notes = [*(told.notes if told is not None else ()), *dict.fromkeys(notes)]
    if c.candidate is not None:
        notes += [note for note in c.candidate.notes if note not in c.note]
    return Finding(
        c,
        anchor,
        word,
        profiles_of(c),
        " · ".join(part for part in parts if part),
        sentence(told.sentence) if told and told.sentence else word.meaning,
        tuple(m.value for m in told.moved) if told else (),
        tuple(alarm.value.capitalize() + "." for alarm in told.alarms) if told else (),
        _side_rows(c),
        tuple(
            delta_view(d, _dtype_of(either), OPEN_ELEMENTS if number <= LONG else 1)
            for d in _by_role(_judged(c))
        ),
        chart,
        f"Patterns of {c.kernel}",
        ("Baseline", "Candidate") if c.churn else None,
        reference,
        _odd_repetitions(broken),
        strip(sources.past(either) if sources.past else (), sources.nights, CELLS),
        shelf.view(c, anchor, candidate_run) if c.verdict is not Verdict.MISSING else None,
        lines(failing.error or (failing.build.log if failing.build else "")) if failing else (),
        _next_steps(c, word, candidate_run),
        tuple(sentence(note) for note in notes if note),
        sources.claims(card) if sources.claims and card is not None and number <= CARDS else None,
        command,
    )


def _judged(c: Comparison) -> tuple[OutputDelta, ...]:
    """The deltas to open up: where a result churns, its histogram says more than one pattern would."""
    free = {o.name for o in c.either.outputs if not o.determinism.guaranteed} if c.churn else set()
    return tuple(d for d in c.outputs if d.name not in free)


def _by_role(deltas: Iterable[OutputDelta]) -> tuple[OutputDelta, ...]:
    return tuple(sorted(deltas, key=lambda d: (d.role is not Role.RESULT, not d.changed, d.name)))


def _next_steps(c: Comparison, word: Word, run: Run) -> tuple[Step, ...]:
    steps = [Step(word.next_step)] if word.next_step else []
    if any(effect.promised and effect.by_size for effect in c.batch):
        steps = [Step("Look for what follows the number of requests: a split, a grid or a loop by BATCH.")]
    if c.loss:
        steps += [Step("", command) for command in c.loss.advice]
    if c.verdict is Verdict.CHANGED and run.id is not None and c.candidate is not None:
        target = shlex.quote(f"{run.id}:{c.candidate.profile}")
        steps.append(Step("", f'reprodb bless {target} {shlex.quote(c.kernel)} --reason "…"'))
    if c.accuracy.value == "outside":
        steps.append(Step("The answer is outside its tolerance: equal bits would not make it right."))
    return tuple(steps)
