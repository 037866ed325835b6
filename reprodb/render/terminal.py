"""Tables for terminals: the verdict first, the matrix at a glance, then rows, the worst first."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprodb.domain import Lane, Result, Run, Status, absences
from reprodb.findings import Comparison, Diff, MatrixRow
from reprodb.invariance import served
from reprodb.ordering import drawn, phrase, read
from reprodb.render import matrix as matrix_
from reprodb.render.spectra import churn_groups, span
from reprodb.render.text import count, joined, lines, name, sentence, utc, visible
from reprodb.render.timeline import STEPS, Moment
from reprodb.render.top import batches
from reprodb.render.words import (
    ACCURACY,
    COUNTED,
    LANES,
    STANDINGS,
    VERDICTS,
    Word,
    asides,
    bits_of,
    flagged,
    hash_of,
    headline,
    observed,
    profile_of,
    profiles_of,
    row_names,
    run_name,
    sort_results,
    tally,
    unanswered,
    untouched,
    worst_first,
    worst_word,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from reprodb.claims import Claim
    from reprodb.dossier import Dossier

# Below this width rows are stacked: a table would break every name.
STACKED = 90
# A pipe has no width; its lines are not broken.
PIPE_WIDTH = 1000

# Columns that are never broken, so that they can be read and copied.
_WHOLE = frozenset(
    {"profile matrix", "verdict", "kernel", "bits", "first bits", "run hash", "run", "started"}
)
_STYLES = {"bad": "bold red", "warn": "yellow", "good": "green", "info": "cyan", "quiet": "dim"}


def console(stream: Any = None) -> "Console":
    """A console on `stream` (standard output by default): plain in a pipe, without colour under NO_COLOR.

    Text from outside is never read as markup, links or emoji.
    """
    from rich.console import Console

    out = stream or sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="replace")  # a terminal that cannot show ≠ shows ? and goes on
    found = Console(file=out, markup=False, emoji=False, highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(
        file=out, markup=False, emoji=False, highlight=False, width=PIPE_WIDTH, color_system=None
    )  # fmt: skip


def diff(out: "Console", value: Diff, *, quiet: bool = False) -> None:
    """Prints a diff; `quiet` prints the verdict, and why a row has no result."""
    _verdict(out, worst_word(value), headline(value), value.candidate)
    if quiet:
        for c in worst_first(value.comparisons):
            _no_result(out, c)
        return
    first = untouched(value)
    counts = ", ".join(f"{n:,} {VERDICTS[verdict].label}" for verdict, n in tally(value.comparisons))
    if counts and not first and counts not in value.headline:
        _line(out, counts)
    baseline = run_name(value.baseline) if value.baseline else "the reference of each row"
    against = "" if first else f" against {baseline}"
    _line(out, f"{run_name(value.candidate)}{against}, {_where(value.candidate)}", "dim")
    for canary in value.canaries or value.candidate.canaries:
        if not canary.ok:
            kind = "canary failed" if canary.fatal else "note"
            _line(out, f"{kind}: {canary.name}: {canary.sentence}", "bold red" if canary.fatal else "dim")
    for reason in value.beside_rows:
        _line(out, f"! {sentence(reason)}", "bold red")
    for step in unanswered(value):
        _line(out, "? " + " ".join(part for part in (step.text, step.command) if part), "yellow")
    _matrix(out, value.matrix)
    if not first:
        _comparisons(out, worst_first(value.comparisons))
        return
    for line in (line for fact in batches(value.comparisons) for line in fact.more):
        _line(out, f"○ moved: shape: {line}; this does not gate", "dim")


def dossier(out: "Console", value: "Dossier", *, quiet: bool = False) -> None:
    """Prints what an upgrade does to every kernel; `quiet` prints the verdict alone."""
    from reprodb.render.dossier import kernel_groups

    whole = value.diff
    _verdict(out, worst_word(whole), headline(whole), value.candidate)
    if quiet:
        return
    old, new = value.baseline, value.candidate
    where = run_name(new) if old.uid == new.uid else f"{run_name(old)} and {run_name(new)}"
    _line(out, f"{where}, {_where(new)}", "dim")
    for leg in value.legs:
        parts = ", ".join(f"{part} {a or 'none'} → {b or 'none'}" for part, a, b in leg.parts)
        _line(out, f"{name(leg.name)}: {leg.step if leg.moved else leg.step + ' on both sides'}")
        if parts:
            _line(out, f"    {parts}", "dim")
    for step in unanswered(whole):
        _line(out, "? " + " ".join(part for part in (step.text, step.command) if part), "yellow")
    groups = kernel_groups(value, {})
    if out.width < STACKED:
        for group in groups:
            _line(out, name(group.kernel), "bold")
            for row in group.rows:
                _line(out, f"  {row.word.mark} {row.word.label}: {name(row.leg)}", _STYLES[row.word.tone])
                accuracy = " ".join(ACCURACY[row.comparison.accuracy])
                _line(out, f"    {row.bits}, accuracy {accuracy}, code {row.code}")
        return
    table = _table(
        *("kernel", "profile", "verdict", "gates", "accuracy", "bits", "witness", "instructions", "code")
    )
    for group in groups:
        for row in group.rows:
            gated = row.comparison.gated
            table.add_row(
                _text(name(group.kernel)),
                _text(name(row.leg)),
                _text(f"{row.word.mark} {row.word.label}", _STYLES[row.word.tone]),
                _text("yes" if gated else "no", "bold red" if gated else "dim"),
                _text(" ".join(ACCURACY[row.comparison.accuracy])),
                _text(row.bits),
                _text(row.witness),
                _text(row.instructions),
                _text(row.code),
            )
    out.print(table)


def show(
    out: "Console",
    run: Run,
    results: Iterable[Result],
    matrix: Sequence[MatrixRow] = (),
    *,
    quiet: bool = False,
) -> None:
    """Prints a run and its results; `quiet` prints one line."""
    ordered = sort_results(results)
    failed = [r for r in ordered if r.status is not Status.OK]
    words = f"{run_name(run)}: {count(len(ordered), 'result')}"
    words += f", {len(failed):,} without bits" if failed else ""
    words += "" if run.complete else ", not finished"
    tone = "bad" if failed or not run.complete else "info"
    _verdict(out, Word("!" if failed else "○", tone, "", ""), words, run)
    if quiet:
        return
    _line(out, f"{utc(run.started_at)}, {_where(run)}", "dim")
    for skipped in run.skipped:
        _line(out, f"? profile {skipped.profile} was skipped: {skipped.reason} {skipped.remedy}", "yellow")
    for text, remedy in absences(run):
        _line(out, f"? {text}; {remedy}".rstrip("; "), "yellow")
    _matrix(out, matrix)
    _results(out, ordered)


def history(out: "Console", kernel: str, moments: Sequence[Moment]) -> None:
    """Prints a kernel's results over the runs, newest first, with what changed at each step."""
    _line(out, f"{kernel}: {count(len(moments), 'result')}")
    if out.width < STACKED:
        for m in moments:
            mark, tone, _ = STEPS[m.step]
            _line(
                out, f"{mark} {m.step}: run {m.run.id}, {m.result.profile}, {m.run.lane.value}", _STYLES[tone]
            )
            _line(out, f"   {bits_of(m.result) or m.result.status.value}  {'; '.join(m.changed)}")
        return
    table = _table(
        *("run", "started", "lane", "case", "profile", "toolchain", "step", "bits", "run hash", "patterns"),
        *("accuracy", "changed"),
    )
    for m in moments:
        mark, tone, _ = STEPS[m.step]
        build = m.result.build
        table.add_row(
            _text(str(m.run.id)),
            _text(utc(m.run.started_at) or ""),
            _text(m.run.lane.value),
            _text(name(m.result.case.name)),
            _text(name(m.result.profile)),
            _text(build.toolchain.label if build else "none"),
            _text(f"{mark} {m.step}", _STYLES[tone]),
            _text(bits_of(m.result) or "–"),
            _text(hash_of(m.result) or "–"),
            _text(observed(m.result)),
            _accuracy(m.result),
            _text("; ".join(m.changed)),
        )
    out.print(table)


def runs(out: "Console", values: Sequence[Run]) -> None:
    """Prints the runs of a database, in the order given."""
    table = _table("run", "label", "started", "kind", "lane", "suite", "where", "exit")
    for run in values:
        code = "incomplete" if not run.complete else "–" if run.exit_code is None else str(run.exit_code)
        table.add_row(
            _text(str(run.id)),
            _text(name(run.label or "")),
            _text(utc(run.started_at) or ""),
            _text(run.kind),
            _text(run.lane.value),
            _text(name(run.suite)),
            _text(_where(run)),
            _text(code, "" if code == "0" else "yellow"),
        )
    out.print(table)


def claims(out: "Console", cards: "Sequence[Claim]") -> None:
    """Prints claim cards, one below the other."""
    for place, card in enumerate(cards):
        if place:
            _line(out, "")
        r = card.result
        _line(out, card.sentence, "bold")
        _line(out, f"{r.kernel.name}, {r.profile}, {r.case.name}, {run_name(card.run)}", "dim")
        lane, meaning = LANES[card.run.lane]
        _line(out, f"{lane.upper()} lane. {meaning}", "yellow" if card.run.lane is Lane.MODELLED else "")
        for promise in card.promises:
            mark, tone = STANDINGS[promise.standing.value]
            told = f"{mark} {promise.scope}: {promise.standing.value}; {promise.evidence}"
            _line(out, told, _STYLES[tone])
        for pin in card.pins:
            _line(out, f"{pin.name:<13}{pin.value}")
            for more in pin.more:
                if more:
                    _line(out, " " * 13 + more, "dim")
            if pin.name == "grouping" and r.fingerprint is not None and r.fingerprint.tree:
                for line in drawn(read(r.fingerprint.tree)).splitlines():
                    _line(out, " " * 13 + line, "dim")
        for text in card.not_covered:
            _line(out, f"{'not covered':<13}{text}", "dim")


# --- Parts -------------------------------------------------------------------------------------


def _where(run: Run) -> str:
    device = run.environment.device if run.lane is Lane.MEASURED else None
    return (
        f"{device.name}, driver {run.environment.driver}" if device else run.environment.cpu or "unknown CPU"
    )


def _text(value: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(visible(value), style=style)


def _line(out: "Console", value: str, style: str = "") -> None:
    out.print(_text(value, style))


def _verdict(out: "Console", word: Word, words: str, run: Run) -> None:
    lane, meaning = LANES[run.lane]
    text = _text(f"{word.mark} {words}", _STYLES[word.tone])
    text.stylize("bold")
    out.print(text)
    _line(out, f"{lane.upper()} lane. {meaning}", "yellow" if run.lane is Lane.MODELLED else "")


def _table(*headings: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=heading in _WHOLE, overflow="fold")
    return table


def _accuracy(result: Result) -> "Text":
    mark, words = ACCURACY[result.accuracy.verdict]
    error = result.accuracy.max_rel_err
    return _text(f"{mark} {words}" + ("" if error is None else f" {error:.1e}"))


def _matrix(out: "Console", rows: Sequence[MatrixRow]) -> None:
    table = matrix_.table(rows)
    if not table.rows:
        return
    _line(out, "")
    profiles = [name(p) for p in table.profiles]
    called = row_names((row.row.kernel, row.row.case) for row in table.rows)
    needed = max(map(len, called.values())) + sum(len(p) + 3 for p in profiles)
    if out.width < max(STACKED, needed):
        _stacked_matrix(out, table, called)
    else:
        grid = _table("profile matrix", *profiles)
        for column in grid.columns:
            column.no_wrap = True
        for row in table.rows:
            cells = [_text(_cell(cell), _cell_style(cell)) for cell in row.cells]
            grid.add_row(_text(called[row.row.kernel, row.row.case]), *cells)
        out.print(grid)
        for row in table.rows:
            title = called[row.row.kernel, row.row.case]
            for place, legend in enumerate(_legends(row)):
                head = f"{title}:" if place == 0 else ""
                _line(out, f"{head:<{len(title) + 1}} {legend}")
    _line(out, _key(table), "dim")
    for inert in table.inert:
        _line(out, f"same code: {joined(list(inert.profiles))} ({joined(list(inert.kernels))})", "dim")


def _key(table: matrix_.Table) -> str:
    """What the signs of the matrix mean, those alone that it has."""
    labels = {cell.label for row in table.rows for cell in row.cells if cell}
    told = ["equal letters: equal bits"] if labels - {"~", "∅"} else []
    told += ["′: the same result, other witness bits"] if table.has_latent else []
    told += ["number: equal code"]
    told += ["~: patterns of an arrival-order kernel"] if "~" in labels else []
    told += ["*: the reference's bits"] if table.has_reference else []
    return "; ".join(told)


def _stacked_matrix(out: "Console", table: matrix_.Table, called: Mapping[tuple[str, str], str]) -> None:
    for row in table.rows:
        title = called[row.row.kernel, row.row.case]
        seen = [cell.distinct for cell in row.cells if cell and cell.label == "~"]
        if seen and len(seen) == sum(cell is not None for cell in row.cells):
            word = "pattern" if set(seen) == {1} else "patterns"
            _line(out, f"{title}  ~{span(seen)} {word}, {count(len(seen), 'profile')}")
            continue
        _line(out, title, "bold")
        groups: dict[tuple[str, str], list[str]] = {}
        for cell in row.cells:
            if cell is not None:
                groups.setdefault((_cell(cell), _cell_style(cell)), []).append(name(cell.profile))
        for (told, style), profiles in groups.items():
            _line(out, f"  {told:<4} {', '.join(profiles)}", style)
        for legend in _legends(row):
            _line(out, f"  {legend}", "dim")


def _cell(cell: matrix_.Cell | None) -> str:
    if cell is None:
        return "–"
    if cell.status:
        return f"∅ {cell.status}"
    if cell.label == "~":
        return f"~{cell.distinct}"
    lost = f" {cell.distinct} patterns!" if cell.distinct > 1 else ""
    return f"{cell.label}{cell.code or ''}{'*' if cell.reference else ''}{lost}"


def _cell_style(cell: matrix_.Cell | None) -> str:
    if cell is None or cell.label in ("A", "~"):
        return "bold red" if cell is not None and cell.label == "A" and cell.distinct > 1 else ""
    return "yellow" if "′" in cell.label else "bold red"


def _legends(row: matrix_.TableRow) -> tuple[str, ...]:
    """One line a letter: what people read and look for with grep."""
    return tuple(
        f"{legend.label} "
        + (f"the result of {legend.latent}" if legend.latent else legend.bits)
        + (f", witness {legend.group.witness[:8]}" if legend.group.witness else "")
        for legend in row.legends
    )


def _comparisons(out: "Console", ordered: Sequence[Comparison]) -> None:
    quiet = [c for c in ordered if not flagged(c)]
    churns = [c for c in quiet if c.churn]
    # Rows that nothing is to be said of one by one: the matrix has their bits.
    counted = {verdict: [c for c in quiet if c.verdict is verdict] for verdict in COUNTED}
    rows = [c for c in ordered if flagged(c) or not (c.churn or c.verdict in COUNTED)]
    called = row_names((c.kernel, c.case) for c in ordered)
    if rows and out.width < STACKED:
        for c in rows:
            _stacked_comparison(out, c, called[c.kernel, c.case])
    elif rows:
        table = _table("verdict", "kernel", "profile", "gates", "bits", "accuracy", "what moved")
        for c in rows:
            word = VERDICTS[c.verdict]
            table.add_row(
                _text(f"{word.mark} {word.label}", _STYLES[word.tone]),
                _text(called[c.kernel, c.case]),
                _text(name(profiles_of(c))),
                _text("yes" if c.gated else "no", "bold red" if c.gated else "dim"),
                _text(_bits(c)),
                _text(" ".join(ACCURACY[c.accuracy])),
                _text(_told(c)),
            )
        out.print(table)
    for c in rows:
        _failure(out, c)
    _advice(out, [c for c in rows if c.loss])
    if churns:
        _line(out, "arrival order, which never gates:", "dim")
    for group in churn_groups(churns, opened=False):
        told = "; ".join((group.summary, *_churn(tuple(item.comparison for item in group.items))))
        _line(out, f"~ {called[group.kernel, group.case]}, {told}", "dim")
    for verdict, found in counted.items():
        word = VERDICTS[verdict]
        for beside, n in Counter(map(asides, found)).most_common():
            told = "; ".join(part for part in (COUNTED[verdict], beside) if part)
            _line(out, f"{word.mark} {count(n, 'row')}: {told}", _STYLES[word.tone])


def _churn(rows: Sequence[Comparison]) -> Iterator[str]:
    """How the supports of a kernel's rows stand to each other; of one row where its usual pattern went."""
    churns = [c.churn for c in rows if c.churn]
    found = [r for r in ("same", "overlapping", "new") if any(churn.relation == r for churn in churns)]
    yield f"{joined(found)} support"
    if len(churns) == 1:
        yield churns[0].mode
    notes = {churn.note for churn in churns}
    yield from (note for note in notes if note and len(notes) == 1)
    yield from dict.fromkeys(c.note for c in rows if not c.may_gate)


def _results(out: "Console", results: Sequence[Result]) -> None:
    if out.width < STACKED:
        for r in results:
            _line(out, f"{name(r.kernel.name)}, {name(profile_of(r))}", "bold")
            _line(out, f"  {observed(r)}", "" if r.status is Status.OK else "bold red")
            if r.results:
                _line(out, f"  {bits_of(r)}  {hash_of(r)}")
        return
    table = _table("kernel", "profile", "patterns", "first bits", "run hash", "accuracy", "toolchain")
    for r in results:
        table.add_row(
            _text(name(r.kernel.name)),
            _text(name(profile_of(r))),
            _text(observed(r), "" if r.status is Status.OK else "bold red"),
            _text(bits_of(r) or "–"),
            _text(hash_of(r) or "–"),
            _accuracy(r),
            _text(r.build.toolchain.label if r.build else "none"),
        )
    out.print(table)
    orders: dict[tuple[str, str], list[str]] = {}
    for r in results:
        if r.fingerprint is not None:
            orders.setdefault((r.kernel.name, phrase(r.fingerprint)), []).append(name(profile_of(r)))
    for (kernel, told), profiles in orders.items():
        _line(out, f"order of {name(kernel)}: {told}, {joined(profiles)}", "dim")
    batches: dict[tuple[str, str], list[str]] = {}
    for r in results:
        if told := served(r):
            batches.setdefault((r.kernel.name, told), []).append(name(profile_of(r)))
    for (kernel, told), profiles in batches.items():
        _line(out, f"requests of {name(kernel)}: {told}, {joined(profiles)}", "dim")
    for r in results:
        if r.status is not Status.OK and r.error:
            _line(out, f"{name(r.kernel.name)}, {name(profile_of(r))}: {r.status.value}", "bold red")
            for line in lines(r.error, 12):
                _line(out, f"    {line}")


def _stacked_comparison(out: "Console", c: Comparison, called: str) -> None:
    word = VERDICTS[c.verdict]
    _line(out, f"{word.mark} {word.label}{' (gates)' if c.gated else ''}", _STYLES[word.tone])
    _line(out, f"  {called}, {name(profiles_of(c))}", "bold")
    _line(out, f"  {_bits(c)}  accuracy {' '.join(ACCURACY[c.accuracy])}")
    _line(out, f"  {_told(c)}")


def _bits(c: Comparison) -> str:
    if c.churn:
        return f"{c.churn.baseline.distinct} patterns, now {c.churn.candidate.distinct}"
    before, after = bits_of(c.baseline), bits_of(c.candidate)
    return after or before or "–" if before == after or not (before and after) else f"{before} → {after}"


def _told(c: Comparison) -> str:
    if c.loss:
        lost = f"{c.loss.odd} of {c.loss.of} repetitions of {c.loss.output} differ: {c.loss.where}"
        return "; ".join(part for part in (lost, asides(c)) if part)
    moved = [f"{d.changed:,} of {d.of:,} in {d.name}" for d in c.outputs if d.changed]
    told = (c.attribution.sentence.removesuffix(".") if c.attribution else "") or joined(moved)
    beside = "" if c.candidate is not None and c.candidate.status is not Status.OK else asides(c)
    if not c.may_gate:
        return "; ".join(part for part in (beside, told) if part)
    return "; ".join(part for part in (told, beside) if part) or c.note or VERDICTS[c.verdict].meaning


def _no_result(out: "Console", c: Comparison) -> None:
    """Why a row has no result, in one line."""
    side = c.candidate
    if side is not None and side.status is not Status.OK:
        said = side.error or (side.build.log if side.build else "")
        first = next((line for line in lines(said) if line.strip()), "no reason given")
        _line(out, f"{name(c.kernel)}, {name(side.profile)}: {side.status.value}: {first}", "bold red")


def _failure(out: "Console", c: Comparison) -> None:
    """What a failed row has to say."""
    side = c.candidate
    if side is not None and side.status is not Status.OK:
        _line(out, f"{name(c.kernel)}, {name(side.profile)}: {side.status.value}", "bold red")
        for line in lines(side.error or (side.build.log if side.build else ""), 12):
            _line(out, f"    {line}")


def _advice(out: "Console", lost: Sequence[Comparison]) -> None:
    """What to try where determinism was lost: the first row of each stress; others differ in names alone."""
    groups: dict[str, list[Comparison]] = {}
    for c in lost:
        groups.setdefault(c.either.condition, []).append(c)
    for condition, rows in groups.items():
        under = "" if condition == "plain" else f" under {condition}"
        advice = rows[0].loss.advice if rows[0].loss else ()
        for command in advice:
            _line(out, f"    try{under}: {command}", "dim")
        if advice and len(rows) > 1:
            _line(out, f"    and the same for the other {count(len(rows) - 1, 'row')} that lost it", "dim")
