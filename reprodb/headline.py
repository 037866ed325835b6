"""The verdict of a judged diff in one sentence, for whoever reads nothing else. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from reprodb.domain import Accuracy
from reprodb.errors import Exit
from reprodb.findings import Comparison, Diff, Verdict

# Rows in the headline, most serious first.
_ORDER = (
    Verdict.DETERMINISM_LOST, Verdict.CHANGED, Verdict.MISSING, Verdict.NO_RESULT, Verdict.LATENT,
    Verdict.DETERMINISM_GAINED, Verdict.NEW, Verdict.NO_BASELINE, Verdict.NOT_COMPARABLE, Verdict.CHURN,
    Verdict.SAME,
)  # fmt: skip
# Kernels, and profiles of a single one, that a headline names.
_NAMED = 3


def first_night(diff: Diff, code: Exit) -> bool:
    """Whether nothing was compared because nothing is accepted yet, and that is all there is to say."""
    return code is Exit.CLEAN and not diff.compared


def headline(diff: Diff, code: Exit, reasons: Sequence[str], *, edits: bool) -> str:
    """What happened and to which kernels, then the rows by verdict.

    `reasons` are those of the exit code; `edits` says that what changed are rows of another source or input.
    """
    rows = diff.comparisons
    counts = counted(rows) or "no rows"
    failed = [c.name for c in diff.canaries if not c.ok and c.fatal]
    if failed:
        return f"canary failed, this run counts for nothing: {', '.join(failed)}"
    if code is Exit.UNTRUSTWORTHY:
        lost = [c for c in rows if c.verdict is Verdict.DETERMINISM_LOST and c.gated]
        wrong = [c for c in rows if c.accuracy is Accuracy.OUTSIDE and c.gated]
        if {c.kernel for c in lost} == {c.kernel for c in wrong}:
            both = [*lost, *wrong]
            return f"determinism lost and accuracy outside its tolerance in {_named(both)}; {counts}"
        told = (("determinism lost in", lost), ("accuracy outside its tolerance in", wrong))
        return f"{_told(told)}; {counts}"
    if code is Exit.CHANGED:
        moved = [c for c in rows if c.verdict in (Verdict.CHANGED, Verdict.LATENT) and c.gated]
        gone = [c for c in rows if c.verdict is Verdict.MISSING and c.gated]
        word = "source changed and bits with it in" if edits else "bits changed in"
        told = ((word, moved), ("nothing came of", gone))
        return f"{_told(told) or 'profiles that must be equal are not'}; {counts}"
    if code is Exit.NO_ANSWER:
        blind = [c for c in rows if c.verdict is Verdict.NO_RESULT and c.gated]
        if not diff.compared and not blind:
            return f"no answer, nothing could be compared: {counts}; 0 compared"
        return f"{_told((('no answer for', blind),)) or f'no answer, {reasons[0]}'}; {counts}"
    if first_night(diff, code):
        more = "" if all(c.verdict is Verdict.NO_BASELINE for c in rows) else f"; {counts}"
        many = f"{len(rows):,} row{'s' * (len(rows) != 1)}"
        return f"first night: {many} recorded, and nothing to compare with yet{more}"
    return f"clean: {_clean(rows)}; {counts}"


def counted(comparisons: Iterable[Comparison]) -> str:
    """`1 changed, 2 same`: the rows by verdict, the most serious first."""
    counts = Counter(c.verdict for c in comparisons)
    return ", ".join(f"{counts[v]:,} {v.value.replace('_', ' ')}" for v in _ORDER if counts[v])


def _clean(rows: Sequence[Comparison]) -> str:
    """Why a clean run is clean."""
    verdicts = {c.verdict for c in rows}
    if verdicts & {Verdict.CHANGED, Verdict.MISSING, Verdict.DETERMINISM_LOST}:
        return "what moved does not gate"
    if Verdict.LATENT in verdicts:
        latent = sum(c.verdict is Verdict.LATENT for c in rows)
        return f"no fixed-order result moved, witness bits did in {latent:,} row{'s' * (latent != 1)}"
    kept = verdicts & {Verdict.SAME, Verdict.DETERMINISM_GAINED}
    blind = verdicts & {Verdict.NO_RESULT, Verdict.NOT_COMPARABLE}
    if not kept:
        return "only arrival-order kernels could be compared"
    return "every fixed-order kernel" + (" that could be compared" if blind else "") + " has its bits"


def _told(parts: Iterable[tuple[str, Sequence[Comparison]]]) -> str:
    return ", ".join(f"{word} {_named(rows)}" for word, rows in parts if rows)


def _named(rows: Sequence[Comparison]) -> str:
    """`sum_squares_tree under default`, `a, b and 3 more kernels`."""
    kernels = tuple(dict.fromkeys(c.kernel for c in rows))
    if len(kernels) > 1:
        return kernels_of(rows)
    return f"{kernels[0]} under {_some(tuple(dict.fromkeys(c.either.profile for c in rows)), 'profile')}"


def kernels_of(rows: Iterable[Comparison]) -> str:
    """`a and b`, `a, b and 3 more kernels`."""
    return _some(tuple(dict.fromkeys(c.kernel for c in rows)), "kernel")


def _some(names: Sequence[str], unit: str) -> str:
    if len(names) <= _NAMED:
        return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    more = len(names) - _NAMED + 1
    return f"{', '.join(names[: _NAMED - 1])} and {more:,} more {unit}s"
