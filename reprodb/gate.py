"""Comparisons, canaries and policy to one verdict and exit code. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from fnmatch import fnmatchcase

from reprodb.domain import Accuracy, Run, Status, absences
from reprodb.errors import Exit
from reprodb.findings import Alarm, Cause, Comparison, Diff, Effect, MatrixRow, State, Verdict
from reprodb.headline import first_night as is_first_night
from reprodb.headline import headline
from reprodb.policy import Expectation, NewHistory, Policy, RequireEqual

_WORDS = {
    Verdict.DETERMINISM_LOST: "determinism lost",
    Verdict.DETERMINISM_GAINED: "determinism gained",
    Verdict.NO_RESULT: "no result",
    Verdict.NO_BASELINE: "no baseline",
    Verdict.NOT_COMPARABLE: "not comparable",
}


_MOVED = (Verdict.CHANGED, Verdict.LATENT)


@dataclass(frozen=True, slots=True)
class _Reason:
    """One ground for an exit code other than 0."""

    code: Exit
    text: str


def _row(comparison: Comparison) -> str:
    return f"{comparison.kernel} {comparison.case} ({comparison.either.profile})"


# --- Rows --------------------------------------------------------------------------------------


def _accuracy(comparison: Comparison, policy: Policy) -> Comparison:
    """The row with its accuracy judged by the policy's tolerance, where it sets one and an error is known."""
    tolerance = policy.rel_tol_of(comparison.kernel)
    result = comparison.candidate
    if tolerance is None or result is None or result.accuracy.max_rel_err is None:
        return comparison
    # An error that is NaN is within no tolerance.
    within = result.accuracy.max_rel_err <= tolerance
    return replace(comparison, accuracy=Accuracy.OK if within else Accuracy.OUTSIDE)


def _gates(comparison: Comparison, policy: Policy) -> bool:
    """Whether the policy gates a row by its bits verdict, expectations aside."""
    verdict = comparison.verdict
    if verdict not in policy.verdicts_of(comparison.kernel):
        return False
    if verdict is Verdict.DETERMINISM_LOST:
        return True  # the candidate's own: no override of the other side excuses it
    if verdict is Verdict.NO_RESULT:
        baseline = comparison.baseline
        return baseline is not None and baseline.status is Status.OK
    return comparison.may_gate


def new_history(comparison: Comparison) -> str:
    """`new history: source changed (…)` if the row's source or input is not the reference's, else empty."""
    return comparison.attribution.new_history if comparison.attribution is not None else ""


# Causes that no edit of a kernel brings along: with one of them the edit alone does not explain the bits.
_BESIDE_AN_EDIT = frozenset({Cause.FLAGS, Cause.TOOLCHAIN, Cause.ARCHITECTURE})


def begins_anew(comparison: Comparison, policy: Policy) -> bool:
    """Whether moved bits are the reference of a new history at once, without a blessing.

    Another input leaves nothing to compare with, as on a first night. Another source does so where the policy
    says so, where it changed the code, and where flags, toolchain and architecture stayed as they were.
    """
    if not new_history(comparison) or comparison.attribution is None:
        return False
    if comparison.verdict is Verdict.NOT_COMPARABLE:
        sides = (comparison.baseline, comparison.candidate)
        return len({side.lane for side in sides if side is not None}) == 1
    if comparison.verdict is not Verdict.CHANGED or policy.new_history is NewHistory.GATE:
        return False
    if Alarm.CODE_SAME_BITS_CHANGED in comparison.attribution.alarms:
        return False
    beside = (c for c in comparison.attribution.causes if c.name in _BESIDE_AN_EDIT)
    return all(layer.state is State.SAME for layer in beside)


def _code(verdict: Verdict) -> Exit:
    if verdict is Verdict.DETERMINISM_LOST:
        return Exit.UNTRUSTWORTHY
    return Exit.NO_ANSWER if verdict is Verdict.NO_RESULT else Exit.CHANGED


def _expected(expectation: Expectation) -> str:
    until = f" (until {expectation.until.isoformat()})" if expectation.until else ""
    return f"expected: {expectation.reason}{until}"


def _judge_row(
    comparison: Comparison, policy: Policy, today: date, anything: bool
) -> tuple[Comparison, list[_Reason]]:
    """One row with `gated` and why, and its reasons. `anything`: whether any row was compared at all."""
    comparison = _accuracy(comparison, policy)
    reasons: list[_Reason] = []
    words: list[str] = []
    if _gates(comparison, policy):
        verdict = comparison.verdict
        announced = [e for e in policy.expect if e.allows(comparison)]
        in_time = [e for e in announced if not e.expired(today)]
        if in_time:
            words.append(_expected(in_time[0]))
        elif verdict is Verdict.MISSING and not anything:
            words.append("nothing was compared at all")
        elif begins_anew(comparison, policy):
            words.append(f"{new_history(comparison)}; its bits are the reference from now on")
        else:
            late = f"; the expectation ended {announced[0].until}" if announced else ""
            word = _WORDS.get(verdict, verdict.value)
            if verdict in _MOVED and (begun := new_history(comparison)):
                word = f"{begun}, {word}"
            reasons.append(_Reason(_code(verdict), f"{word}: {_row(comparison)}{late}"))
            words.append(word + late)
    elif not comparison.may_gate:
        words.append(comparison.note)
    if policy.accuracy and comparison.accuracy is Accuracy.OUTSIDE and comparison.candidate is not None:
        reasons.append(_Reason(Exit.UNTRUSTWORTHY, f"accuracy outside its tolerance: {_row(comparison)}"))
        words.append("accuracy outside its tolerance")
    return replace(comparison, gated=bool(reasons), gate_reason="; ".join(words)), reasons


# --- The whole run -----------------------------------------------------------------------------


def _equal_profiles(rule: RequireEqual, row: MatrixRow) -> Iterable[_Reason]:
    """What breaks one `[[require_equal]]` in one row of the matrix."""
    if not row.guaranteed or not any(fnmatchcase(row.kernel, pattern) for pattern in rule.kernels):
        return
    named = {p for group in row.groups for p in group.profiles}
    asked = {p for p in named if p.split(" ", 1)[0] in rule.profiles}
    wanting = [(p, status) for p, status in row.no_result if p.split(" ", 1)[0] in rule.profiles]
    for profile, status in wanting:
        yield _Reason(
            Exit.NO_ANSWER, f"{row.kernel} {row.case}: {profile} must be equal and has no result ({status})"
        )
    groups = [tuple(p for p in group.profiles if p in asked) for group in row.groups]
    groups = [group for group in groups if group]
    if len(groups) > 1:
        sides = " ≠ ".join("{" + ", ".join(group) + "}" for group in groups)
        yield _Reason(Exit.CHANGED, f"{row.kernel} {row.case}: profiles must be equal: {sides}")


def _absent_profiles(policy: Policy, diff: Diff) -> Iterable[_Reason]:
    """Required profiles of which a nightly has no row; one with rows and no bits is `no_result` there.

    A diff of two named runs may look at one profile alone and is not asked for the others.
    """
    if diff.baseline is not None:
        return
    ran = {c.candidate.profile for c in diff.comparisons if c.candidate is not None}
    why = {s.profile: s.reason for s in diff.candidate.skipped}
    for profile in policy.profiles:
        if profile not in ran:
            yield _Reason(
                Exit.NO_ANSWER,
                f"required profile {profile} did not run: {why.get(profile, 'not in this run')}",
            )


def _other_input(comparison: Comparison, policy: Policy) -> bool:
    return comparison.verdict is Verdict.NOT_COMPARABLE and begins_anew(comparison, policy)


def _no_baseline(diff: Diff, policy: Policy, required: bool) -> Iterable[_Reason]:
    """Rows without a baseline, where one is required."""
    lacking = [c for c in diff.comparisons if c.verdict is Verdict.NO_BASELINE or _other_input(c, policy)]
    if (required or policy.require_baseline) and lacking:
        rows = _some([_row(c) for c in lacking])
        yield _Reason(Exit.NO_ANSWER, f"a required baseline is missing: {rows}")


def _nothing_compared(diff: Diff, first_night: bool) -> Iterable[_Reason]:
    """Why a run gives no answer although no row says so."""
    bare = [c for c in diff.comparisons if c.verdict is Verdict.NO_BASELINE]
    if diff.compared:
        return
    # Rows with bits and without a baseline, in a nightly, are a first night of their scopes: unless others
    # have gone that were there before.
    gone = any(c.verdict is Verdict.MISSING for c in diff.comparisons)
    if bare and not gone and (first_night or diff.baseline is None):
        return
    yield _Reason(Exit.NO_ANSWER, f"nothing was compared: 0 of {len(diff.comparisons)} rows")


def idle_rules(policy: Policy, diff: Diff, kernels: Iterable[str] = ()) -> tuple[str, ...]:
    """Rules that name no kernel of a night or of its suite (`kernels`): a typo, or a kernel that is gone."""
    kernels = sorted({*kernels, *(c.kernel for c in diff.comparisons)})
    named = [("[[kernel]]", o.kernel) for o in policy.overrides]
    named += [("[[expect]]", e.kernel) for e in policy.expect]
    named += [("[[require_equal]]", glob) for rule in policy.require_equal for glob in rule.kernels]
    notes = []
    for rule, glob in dict.fromkeys(named):
        if not any(fnmatchcase(kernel, glob) for kernel in kernels):
            near = difflib.get_close_matches(glob, kernels, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            notes.append(f"{rule} of the policy names no kernel of this suite: {glob!r}{hint}")
    return tuple(notes)


def _unmet(policy: Policy, diff: Diff, today: date) -> list[str]:
    """Expectations to tidy up: those that ended and those whose difference did not come."""
    notes = []
    for e in policy.expect:
        rows = [c for c in diff.comparisons if e.covers(c)]
        name = f"expected {e.verdict} of {e.kernel} on {e.profile}"
        if e.expired(today):
            notes.append(f"{name}: ended {e.until}")
        elif rows and not any(e.allows(c) for c in rows):
            notes.append(f"{name}: did not occur")
    return notes


def _edits(comparisons: Iterable[Comparison]) -> bool:
    """Whether all that gates are moved bits of another source or input."""
    gated = [c for c in comparisons if c.gated]
    return bool(gated) and all(c.verdict in _MOVED and new_history(c) for c in gated)


def _friendly(rows: Iterable[Comparison]) -> list[str]:
    """Kernels whose one pattern says nothing of their order, a note for each reason."""
    kernels: dict[str, list[str]] = {}
    for row in rows:
        if row.candidate is not None and row.candidate.friendly:
            kernels.setdefault(row.candidate.friendly, []).append(f"{row.kernel} {row.case}")
    return [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in kernels.items()]


def _notes(diff: Diff, policy: Policy, today: date, code: Exit) -> tuple[str, ...]:
    notes = list(diff.notes)
    if diff.baseline is not None and diff.baseline.suite != diff.candidate.suite:
        suites = f"{diff.baseline.suite} → {diff.candidate.suite}"
        notes.append(f"the sides are of two suites, whose kernels may share no more than a name: {suites}")
    bare = sum(c.verdict is Verdict.NO_BASELINE for c in diff.comparisons)
    if bare and not is_first_night(diff, code):
        notes.append(f"{bare:,} row{'s' * (bare != 1)} without a baseline")
    loud = [
        c
        for c in diff.comparisons
        if c.attribution is not None and Alarm.CODE_SAME_BITS_CHANGED in c.attribution.alarms
    ]
    notes += [f"code the same, bits changed: {_row(c)}" for c in loud]
    notes += _new_histories(diff.comparisons)
    notes += _remarks(diff.comparisons)
    notes += _orders(diff.comparisons)
    notes += _friendly(diff.comparisons)
    notes += [f"canary {c.name}: {c.sentence}" for c in diff.canaries if not c.ok and not c.fatal]
    notes += _not_equalled(policy.require_equal, diff.matrix)
    notes += _skipped(diff.candidate)
    notes += [text for text, _ in absences(diff.candidate)]
    return tuple(dict.fromkeys([*notes, *_unmet(policy, diff, today)]))


def _new_histories(comparisons: Iterable[Comparison]) -> list[str]:
    """One note a changed file or input, with the rows that it moved."""
    rows: dict[str, list[str]] = {}
    for comparison in comparisons:
        if (text := new_history(comparison)) and comparison.verdict is not Verdict.SAME:
            rows.setdefault(text, []).append(_row(comparison))
    return [f"{text}: {_some(found)}" for text, found in rows.items()]


def _remarks(comparisons: Iterable[Comparison]) -> list[str]:
    """One note for each remark of attribution: a profile redefined, a card that deviates."""
    rows: dict[str, list[str]] = {}
    for comparison in comparisons:
        told = comparison.attribution
        for text in told.notes if told is not None else ():
            if text != new_history(comparison):
                rows.setdefault(text, []).append(_row(comparison))
    return [f"{text}: {_some(found)}" for text, found in rows.items()]


def _orders(comparisons: Iterable[Comparison]) -> list[str]:
    """Rows whose bits are the same and whose order is not: this input does not show it, another one will."""
    rows: dict[str, list[str]] = {}
    for comparison in comparisons:
        told = comparison.attribution
        for layer in told.effects if told is not None and comparison.verdict is Verdict.SAME else ():
            if layer.name == Effect.ORDER and layer.state is State.DIFFERS:
                rows.setdefault(layer.detail, []).append(_row(comparison))
    return [f"the order differs and no bit moved ({text}): {_some(found)}" for text, found in rows.items()]


def _some(rows: list[str]) -> str:
    return ", ".join(rows[:3]) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")


def _not_equalled(rules: Iterable[RequireEqual], rows: tuple[MatrixRow, ...]) -> list[str]:
    """Profiles that must be equal and of which the run has no row: a rule that looked at nothing says so."""
    ran = {p for row in rows for group in row.groups for p in group.profiles}
    ran |= {profile for row in rows for profile, _ in row.no_result}
    names = {profile.split(" ", 1)[0] for profile in ran}
    return [
        f"profiles must be equal, and {profile} did not run: {', '.join(rule.profiles)}"
        for rule in rules
        for profile in rule.profiles
        if rows and profile not in names
    ]


def _skipped(run: Run) -> list[str]:
    return [f"profile {s.profile} skipped: {s.reason}" for s in run.skipped]


def judge(
    diff: Diff,
    policy: Policy,
    *,
    now: datetime,
    references_required: bool = False,
    first_night: bool = False,
) -> Diff:
    """The diff with exit code, headline, reasons, notes, and each row's `gated` and `gate_reason`.

    A failed canary is 4 whatever else (a damaged database never gets here: reading it raises StoreError, and
    that exits with 4). Otherwise the first of 3, 1, 4 for which there is a reason, else 0.
    `references_required` makes a row without a baseline a reason for 4; `first_night` says that no reference
    exists at all.
    """
    today = now.date()
    anything = diff.compared > 0
    judged = [_judge_row(c, policy, today, anything) for c in diff.comparisons]
    diff = replace(diff, comparisons=tuple(row for row, _ in judged))
    failed = [c for c in diff.canaries if not c.ok and c.fatal]
    reasons = [_Reason(Exit.NO_ANSWER, f"canary {c.name} failed: {c.sentence}") for c in failed]
    reasons += [reason for _, row in judged for reason in row]
    rules = [r for rule in policy.require_equal for row in diff.matrix for r in _equal_profiles(rule, row)]
    rules += _absent_profiles(policy, diff)
    rules += _no_baseline(diff, policy, references_required)
    reasons += [*rules, *_nothing_compared(diff, first_night)]
    codes = {reason.code for reason in reasons}
    precedence = (Exit.UNTRUSTWORTHY, Exit.CHANGED, Exit.NO_ANSWER)
    code = Exit.NO_ANSWER if failed else next((c for c in precedence if c in codes), Exit.CLEAN)
    # The reasons of the exit code first, the others after them.
    reasons.sort(key=lambda reason: reason.code is not code)
    return replace(
        diff,
        exit_code=int(code),
        headline=headline(diff, code, [reason.text for reason in reasons], edits=_edits(diff.comparisons)),
        reasons=tuple(reason.text for reason in reasons),
        beside_rows=tuple(reason.text for reason in rules),
        notes=_notes(diff, policy, today, code),
    )
