"""The words, marks and order that every renderer shares for verdicts, accuracy and status."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reprodb.digest import hex64
from reprodb.domain import FRIENDLY, Accuracy, Lane, Result, Run, Status, absences
from reprodb.errors import Exit
from reprodb.findings import Comparison, Diff, Verdict
from reprodb.headline import counted
from reprodb.render.text import count, name, sentence


@dataclass(frozen=True, slots=True)
class Word:
    """How one verdict is told: a mark that needs no colour, a tone, a label, what it means, what to do."""

    mark: str
    tone: str  # bad | warn | good | info | quiet: the one place where a colour is chosen
    label: str
    meaning: str
    next_step: str = ""


# In order of gravity, the gravest first.
VERDICTS: dict[Verdict, Word] = {
    Verdict.DETERMINISM_LOST: Word(
        "!",
        "bad",
        "determinism lost",
        "A kernel that guarantees one pattern showed more than one inside the candidate.",
        "Look for a race or a read of unset memory before anything else.",
    ),
    Verdict.CHANGED: Word(
        "≠",
        "bad",
        "changed",
        "One pattern on each side, and they differ.",
        "If the change is wanted, bless it with a reason; otherwise put back what moved.",
    ),
    Verdict.MISSING: Word(
        "−",
        "bad",
        "missing",
        "The baseline has this row and the candidate has not.",
        "Bring the kernel, case or profile back, or retire it with a blessing.",
    ),
    Verdict.NO_RESULT: Word(
        "∅",
        "bad",
        "no result",
        "It did not build, launch or finish.",
        "Read the error below; nothing is known about its bits.",
    ),
    Verdict.LATENT: Word(
        "≃",
        "warn",
        "latent",
        "The result's bits are equal and witness bits moved: another input may move the result.",
        "No action is needed for this input; watch the kernel, or make latent changes gate in the policy.",
    ),
    Verdict.NOT_COMPARABLE: Word(
        "∦", "warn", "not comparable", "The two sides do not answer the same question."
    ),
    Verdict.NO_BASELINE: Word("○", "info", "no baseline", "Nothing is accepted in this scope yet."),
    Verdict.NEW: Word("+", "info", "new", "Only the candidate has this row."),
    Verdict.DETERMINISM_GAINED: Word(
        "✓", "good", "determinism gained", "The baseline showed several patterns, the candidate one."
    ),
    Verdict.CHURN: Word(
        "~", "quiet", "churn", "An arrival-order kernel: its patterns vary by nature. This does not gate."
    ),
    Verdict.SAME: Word("=", "good", "same", "Result and witness bits are equal."),
}
GRAVITY: dict[Verdict, int] = {verdict: place for place, verdict in enumerate(VERDICTS)}

# Verdicts that a page opens up in full; the others are rows of a quiet table.
FLAGGED = frozenset(
    {
        Verdict.DETERMINISM_LOST,
        Verdict.CHANGED,
        Verdict.MISSING,
        Verdict.NO_RESULT,
        Verdict.LATENT,
        Verdict.NOT_COMPARABLE,
        Verdict.DETERMINISM_GAINED,
    }
)

# Quiet verdicts of which nothing is to be said row by row where the matrix or a folded table has the bits.
COUNTED: dict[Verdict, str] = {
    Verdict.NEW: "new, only the candidate has them",
    Verdict.NO_BASELINE: "no baseline yet",
    Verdict.SAME: "the same",
}

ACCURACY: dict[Accuracy, tuple[str, str]] = {
    Accuracy.OK: ("✓", "ok"),
    Accuracy.OUTSIDE: ("✗", "outside tolerance"),
    Accuracy.UNKNOWN: ("?", "unknown"),
}

LANES: dict[Lane, tuple[str, str]] = {
    Lane.MEASURED: ("Measured", "A GPU ran the recorded machine code."),
    Lane.HOST: ("Host", "Programs ran on the CPU: neither a GPU nor the model had a part in it."),
    Lane.MODELLED: ("Modelled", "No GPU ran: a CPU executed the compiler's PTX bit for bit."),
}

# How a promise of a claim card stands: mark and tone.
STANDINGS: dict[str, tuple[str, str]] = {
    "held": ("✓", "good"),
    "broken": ("!", "bad"),
    "no evidence": ("?", "warn"),
    "not promised": ("○", "quiet"),
}

EXITS: dict[int, str] = {
    Exit.CLEAN: "clean",
    Exit.CHANGED: "bits changed or missing",
    Exit.USAGE: "usage error",
    Exit.UNTRUSTWORTHY: "determinism lost or accuracy outside",
    Exit.NO_ANSWER: "no answer",
}


def worst_first(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Comparisons that gate first, then by accuracy and gravity, fixed-order kernels first, then by name."""

    def rank(c: Comparison) -> tuple[object, ...]:
        inside = c.accuracy is not Accuracy.OUTSIDE
        free = not c.either.kernel.determinism.guaranteed
        return (not c.gated, inside, GRAVITY[c.verdict], free, *c.either.row)

    return tuple(sorted(comparisons, key=rank))


def flagged(comparison: Comparison) -> bool:
    """Whether a page opens this comparison up in full."""
    return comparison.gated or comparison.accuracy is Accuracy.OUTSIDE or comparison.verdict in FLAGGED


def tally(comparisons: Iterable[Comparison]) -> tuple[tuple[Verdict, int], ...]:
    """How many rows have each verdict, the gravest verdict first, without zeros."""
    counts = dict.fromkeys(VERDICTS, 0)
    for comparison in comparisons:
        counts[comparison.verdict] += 1
    return tuple((verdict, n) for verdict, n in counts.items() if n)


def sort_results(results: Iterable[Result]) -> tuple[Result, ...]:
    """Results by kernel, case, profile, architecture and condition."""
    return tuple(sorted(results, key=lambda r: r.row))


def patterns(result: Result) -> int:
    """The largest number of distinct patterns that one of its result buffers showed; 0 without a result."""
    return max((o.distinct for o in result.results), default=0)


def headline(diff: Diff) -> str:
    """The verdict in words: the gate's own, else what the exit code means."""
    return sentence(diff.headline or EXITS.get(diff.exit_code, f"exit {diff.exit_code}"))


def verdict_alone(diff: Diff) -> str:
    """The headline without its counts, for where they stand right under it."""
    counts = f"; {counted(diff.comparisons)}"
    return sentence(diff.headline.removesuffix(counts)) if diff.headline else headline(diff)


def worst_word(diff: Diff) -> Word:
    """The mark of the headline: quiet where the exit code is 0 and nothing is open."""
    if diff.exit_code:
        ordered = worst_first(diff.comparisons)
        gravest = VERDICTS[ordered[0].verdict] if ordered and ordered[0].gated else None
        return Word(gravest.mark if gravest else "!", "bad", "", "")
    open_ = FLAGGED if diff.compared else FLAGGED | {Verdict.NO_BASELINE, Verdict.NEW}
    shown = [c.verdict for c in diff.comparisons if c.verdict in open_]
    return VERDICTS[min(shown, key=list(VERDICTS).index)] if shown else VERDICTS[Verdict.SAME]


def untouched(diff: Diff) -> bool:
    """Whether every row waits for its first reference: row by row nothing is to be said of such a night."""
    return bool(diff.comparisons) and all(
        c.verdict is Verdict.NO_BASELINE and c.accuracy is not Accuracy.OUTSIDE and not c.gated
        for c in diff.comparisons
    )


@dataclass(frozen=True, slots=True)
class Step:
    """Something to read or do, and the command for it."""

    text: str
    command: str = ""


def skips(run: Run) -> tuple[Step, ...]:
    """What a run was asked for and could not do, with the command that does it."""
    skipped = tuple(Step(f"Profile {s.profile} was skipped: {s.reason}", s.remedy) for s in run.skipped)
    return (*skipped, *(Step(sentence(text), remedy) for text, remedy in absences(run)))


def unanswered(diff: Diff) -> tuple[Step, ...]:
    """What a diff could not answer: rows without an answer, the gate's notes, profiles that were skipped."""
    blind = tuple(
        Step(f"{count(n, 'row')}, {VERDICTS[verdict].label}. {VERDICTS[verdict].meaning}")
        for verdict, n in tally(diff.comparisons)
        if verdict in (Verdict.NO_RESULT, Verdict.NOT_COMPARABLE)
    )
    # The gate notes skipped profiles and what was left out too; here each comes with its remedy.
    told = [f"profile {s.profile} skipped: {s.reason}" for s in diff.candidate.skipped]
    told += [text for text, _ in absences(diff.candidate)]
    notes = tuple(Step(sentence(note)) for note in diff.notes if note not in told)
    return (*blind, *notes, *skips(diff.candidate))


# --- Words for values --------------------------------------------------------------------------


def run_name(run: Run) -> str:
    """`nightly 41 “before the upgrade”`."""
    number = f"{run.kind} {run.id}" if run.id is not None else f"{run.kind} {run.uid}"
    return f"{number} “{run.label}”" if run.label else number


def observed(result: Result) -> str:
    """What was seen beside what is declared: `1 pattern in 100, run_to_run`, and whether it says anything."""
    if result.status is not Status.OK:
        return result.status.value.replace("_", " ")
    seen = patterns(result)
    words = f"{count(seen, 'pattern')} in {result.repetitions:,}, {result.kernel.determinism.value}"
    return f"{words}; {FRIENDLY}" if result.friendly else words


def bits_of(result: Result | None) -> str:
    """The first bits of a one-element result, else its first SHA-256 in short; empty without a result."""
    if result is None or not result.results:
        return ""
    first = result.results[0]
    return first.first_bits or (f"sha256 {first.sha256[:12]}" if first.patterns else "")


def hash_of(result: Result | None) -> str:
    return hex64(result.results[0].run_hash) if result and result.results else ""


def row_names(rows: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(kernel, case) → what a narrow table calls the row: the kernel, with its case where it has several."""
    pairs = tuple(dict.fromkeys(rows))
    cases = Counter(kernel for kernel, _ in pairs)
    return {(k, c): f"{name(k)} {name(c)}" if cases[k] > 1 else name(k) for k, c in pairs}


def asides(c: Comparison) -> str:
    """What is to be said of a row beside its verdict: why it does not gate, its bound, what was expected."""
    told = {VERDICTS[c.verdict].label, c.verdict.value}
    gate = [part for part in c.gate_reason.split("; ") if part not in told]
    if c.gated:  # its history, and its accuracy, are told where the others are
        gate = [part for part in gate if part.startswith("the expectation")]
    return "; ".join(dict.fromkeys(part for part in (*c.note.split("; "), *gate) if part))


def profile_of(result: Result) -> str:
    """A result's profile, with the stress that it was made under."""
    return result.profile if result.condition == "plain" else f"{result.profile} [{result.condition}]"


def profiles_of(c: Comparison) -> str:
    """`default`, or `default → no-fmad` where the sides differ; `default [fresh]` under a stress."""
    names = tuple(profile_of(side) for side in (c.baseline, c.candidate) if side)
    return names[0] if len(set(names)) == 1 else " → ".join(names)


def toolchains_of(results: Iterable[Result | None]) -> tuple[str, ...]:
    return tuple(sorted({r.build.toolchain.label for r in results if r and r.build}))


def reference_of(c: Comparison) -> str:
    """`the accepted result of run 40`, `run 41`."""
    if c.reference_run is None:
        return ""
    if c.reference_kind in ("blessed", "accepted"):
        return f"the {c.reference_kind} result of run {c.reference_run}"
    return f"run {c.reference_run}"
