"""The words, marks and order that every renderer shares for verdicts, accuracy and status."""

from collections.abc import Iterable
from dataclasses import dataclass

from reprodb.domain import Accuracy, Lane, Result
from reprodb.errors import Exit
from reprodb.findings import Comparison, Diff, Verdict


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

ACCURACY: dict[Accuracy, tuple[str, str]] = {
    Accuracy.OK: ("✓", "ok"),
    Accuracy.OUTSIDE: ("✗", "outside tolerance"),
    Accuracy.UNKNOWN: ("?", "unknown"),
}

LANES: dict[Lane, tuple[str, str]] = {
    Lane.MEASURED: ("Measured", "A GPU ran the recorded machine code."),
    Lane.MODELLED: ("Modelled", "No GPU ran: a CPU executed the compiler's PTX bit for bit."),
}

EXITS: dict[int, str] = {
    Exit.CLEAN: "clean",
    Exit.CHANGED: "bits changed or missing",
    Exit.USAGE: "usage error",
    Exit.UNTRUSTWORTHY: "determinism lost or accuracy outside",
    Exit.NO_ANSWER: "no answer",
}


def worst_first(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Comparisons that gate first, then by accuracy and gravity, then by name."""

    def rank(c: Comparison) -> tuple[object, ...]:
        outside = c.accuracy is not Accuracy.OUTSIDE
        return (not c.gated, outside, GRAVITY[c.verdict], *c.either.row)

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
    return diff.headline or EXITS.get(diff.exit_code, f"exit {diff.exit_code}").capitalize()
