"""What GitHub Actions shows: a step summary in Markdown within its size limit, and annotations."""

import posixpath
import re
from collections.abc import Callable, Iterator

from reprodb.domain import Accuracy, Kernel, Lane, Status
from reprodb.findings import Comparison, Diff, Verdict
from reprodb.render import matrix as matrix_
from reprodb.render.text import count, joined, name, visible
from reprodb.render.words import (
    ACCURACY,
    COUNTED,
    LANES,
    VERDICTS,
    bits_of,
    flagged,
    headline,
    profiles_of,
    reference_of,
    run_name,
    tally,
    unanswered,
    worst_first,
    worst_word,
)

# GitHub refuses a step's summary above 1 MiB; it shows ten annotations of each kind a step.
SUMMARY_BYTES = 1024 * 1024
ANNOTATIONS = 10

# Characters that mean something to Markdown, to HTML or to GitHub (mentions, issues, mathematics).
_MEANING = re.compile(r"[\\`*_\[\]{}<>&|~#@!$]|:(?=[/\w+-])")


def escape(text: str) -> str:
    """Text that GitHub shows as it is: every character with a meaning as a numeric entity."""
    shown = _MEANING.sub(lambda m: f"&#{ord(m.group())};", visible(text))
    return re.sub(r"(?i)www\.", lambda m: m.group()[:3] + "&#46;", shown)


def code(text: str) -> str:
    return f"<code>{escape(name(text))}</code>"


# --- Step summary ------------------------------------------------------------------------------


def summary(value: Diff, limit: int = SUMMARY_BYTES) -> str:
    """Markdown for GITHUB_STEP_SUMMARY, at most `limit` bytes: the worst first, what is left out counted."""
    blocks = list(_blocks(value))
    # The last line must fit whatever was kept.
    room = limit - 200
    kept: list[str] = []
    for block in blocks:
        size = len(block.encode()) + 1
        if size > room:
            break
        room -= size
        kept.append(block)
    left = len(blocks) - len(kept)
    if left:
        kept.append(_end_of_table(kept) + f"… {left:,} more lines are left out here; the report has them.")
    return "\n".join(kept) + "\n"


def _end_of_table(kept: list[str]) -> str:
    return "\n" if kept and kept[-1].startswith("|") else ""


def _blocks(value: Diff) -> Iterator[str]:
    run, word = value.candidate, worst_word(value)
    lane, meaning = LANES[run.lane]
    baseline = run_name(value.baseline) if value.baseline else "the reference of each row"
    yield f"## {word.mark} {escape(headline(value))}\n"
    for canary in value.canaries or run.canaries:
        if not canary.ok and canary.fatal:
            yield f"**Canary failed, so this run says nothing:** {code(canary.name)}\n"
            yield f"{escape(canary.sentence)}\n"
    counts = ", ".join(
        f"{VERDICTS[v].mark} **{n:,}** {VERDICTS[v].label}" for v, n in tally(value.comparisons)
    )
    yield (counts or "Nothing was compared.") + "\n"
    yield f"**{lane} lane.** {meaning} {escape(run_name(run))} against {escape(baseline)}, {_where(value)}.\n"
    for reason in value.reasons:
        yield f"- {escape(reason)}"
    steps = unanswered(value)
    if steps:
        yield "\n**What could not be answered**\n"
    for step in steps:
        yield f"- {escape(step.text)}" + (f" {code(step.command)}" if step.command else "")
    ordered = worst_first(value.comparisons)
    yield from _rows("What moved", [c for c in ordered if flagged(c)])
    yield from _matrix(matrix_.table(value.matrix))
    yield from _rows("Arrival order (never gates)", [c for c in ordered if not flagged(c) and c.churn])
    rest = [c for c in ordered if not flagged(c) and not c.churn]
    yield from _rows("Other rows", [c for c in rest if c.verdict not in COUNTED])
    for verdict, words in COUNTED.items():
        if n := sum(c.verdict is verdict for c in rest):
            yield f"\n{VERDICTS[verdict].mark} {count(n, 'row')}: {words}."


def _where(value: Diff) -> str:
    env = value.candidate.environment
    if env.device is not None and value.candidate.lane is Lane.MEASURED:
        return escape(f"{env.device.name}, driver {env.driver or 'unknown'}")
    return escape(env.cpu or "unknown CPU")


def _rows(title: str, comparisons: list[Comparison]) -> Iterator[str]:
    if not comparisons:
        return
    yield f"\n### {title}\n"
    yield "| Verdict | Kernel | Profile | Bits | Accuracy | Gates | What is known |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for c in comparisons:
        word = VERDICTS[c.verdict]
        cells = (
            f"{word.mark} {word.label}",
            code(c.kernel),
            code(profiles_of(c)),
            _bits(c),
            " ".join(ACCURACY[c.accuracy]),
            "**yes**" if c.gated else "no",
            escape(_told(c)),
        )
        yield "| " + " | ".join(cells) + " |"


def _bits(c: Comparison) -> str:
    before, after = bits_of(c.baseline), bits_of(c.candidate)
    if c.churn:
        return f"{c.churn.baseline.distinct:,} patterns, now {c.churn.candidate.distinct:,}"
    if before == after or not (before and after):
        return code(after or before) if after or before else "–"
    return f"{code(before)} → {code(after)}"


def _told(c: Comparison) -> str:
    parts = [c.attribution.sentence if c.attribution else ""]
    if c.loss:
        parts.append(f"{c.loss.odd} of {c.loss.of} repetitions of {c.loss.output} differ: {c.loss.where}")
    if c.churn and not c.loss:
        parts = [c.churn.mode]
    if c.candidate is not None and c.candidate.status is not Status.OK:
        parts.append(f"{c.candidate.status.value}: {c.candidate.error}")
    if not any(parts):
        parts = [c.note or VERDICTS[c.verdict].meaning]
    if flagged(c) and c.reference_run is not None:
        parts.append(f"compared with {reference_of(c)}")
    return "; ".join(part.rstrip(".") for part in parts if part)


def _matrix(table: matrix_.Table) -> Iterator[str]:
    if not table.rows:
        return
    yield "\n### Profile matrix\n"
    yield "| Kernel | " + " | ".join(code(p) for p in table.profiles) + " |"
    yield "| --- |" + " :---: |" * len(table.profiles)
    for row in table.rows:
        cells = " | ".join(_cell(cell) for cell in row.cells)
        yield f"| {code(row.row.kernel)} | {cells} |"
    yield (
        "\nEqual letters: equal bits. ′: the same result, other witness bits. Small number: equal code. "
        "★: the reference’s bits."
    )
    for inert in table.inert:
        kernels = joined([code(k) for k in inert.kernels])
        yield f"\nSame code: {joined([code(p) for p in inert.profiles])} ({kernels})."


def _cell(cell: matrix_.Cell | None) -> str:
    if cell is None:
        return "–"
    if cell.status:
        return f"∅ {escape(cell.status)}"
    if cell.label == "~":
        return f"{cell.distinct:,} patterns"
    lost = f" **{cell.distinct:,} patterns**" if cell.distinct > 1 else ""
    sub = f"<sub>{cell.code}</sub>" if cell.code else ""
    return f"{'★ ' if cell.reference else ''}{cell.label}{sub}{lost}"


def outputs(value: Diff, report: str = "") -> str:
    """Lines for GITHUB_OUTPUT: each value one line, since a line break in it would begin another output."""
    pairs = {"verdict": headline(value), "exit-code": str(value.exit_code), "report": report}
    return "".join(f"{key}={' '.join(visible(text).split())}\n" for key, text in pairs.items())


# --- Annotations -------------------------------------------------------------------------------


def annotations(
    value: Diff, folder: str = "", line_of: Callable[[Kernel], int | None] | None = None
) -> tuple[str, ...]:
    """Workflow commands, at most ten of a kind, worst first.

    `folder` is the suite's path inside the repository; `line_of` finds the line of a kernel in its source.
    """
    found: list[str] = []
    counts: dict[str, int] = {}
    for canary in value.canaries or value.candidate.canaries:
        if not canary.ok:
            kind = "error" if canary.fatal else "notice"
            counts[kind] = counts.get(kind, 0) + 1
            if counts[kind] <= ANNOTATIONS:
                title = f"canary {canary.name} {'failed' if canary.fatal else 'is unusual'}"
                found.append(_command(kind, {"title": title}, canary.sentence))
    for c in worst_first(value.comparisons):
        kind_of = _kind(c)
        if kind_of is None:
            continue
        counts[kind_of] = counts.get(kind_of, 0) + 1
        if counts[kind_of] > ANNOTATIONS:
            continue
        kernel, word = c.either.kernel, VERDICTS[c.verdict]
        outside = c.accuracy is Accuracy.OUTSIDE and not c.gated
        label = "accuracy outside" if outside else word.label
        found.append(
            _command(
                kind_of,
                {
                    **_place(kernel, folder, line_of),
                    "title": f"{label}: {name(c.kernel)}, {name(profiles_of(c))}",
                },
                _told(c),
            )
        )
    return tuple(found)


def _kind(c: Comparison) -> str | None:
    if c.gated or c.accuracy is Accuracy.OUTSIDE:
        return "error"
    if c.verdict in (Verdict.LATENT, Verdict.NO_RESULT, Verdict.NOT_COMPARABLE):
        return "warning"
    return "notice" if flagged(c) else None


def _place(kernel: Kernel, folder: str, line_of: Callable[[Kernel], int | None] | None) -> dict[str, str]:
    """File and line of a kernel; nothing where the source lies outside the repository."""
    path = posixpath.normpath(posixpath.join(folder, kernel.source))
    if path.startswith(("../", "/")) or path == "..":
        return {}
    line = line_of(kernel) if line_of else None
    return {"file": path, "line": str(line or 1)}


def entry_line(text: str, entry: str) -> int | None:
    """The line (from 1) on which the `__global__` function `entry` is defined in a source text."""
    found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(entry)}\s*\(", text)
    return text.count("\n", 0, found.end()) + 1 if found else None


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    told = ",".join(f"{key}={_property(visible(value))}" for key, value in properties.items())
    return f"::{kind} {told}::{_data(visible(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
