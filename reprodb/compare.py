"""Two sides to comparisons: which rows belong together, and what their bits say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from reprodb.attribute import NOTHING_KNOWN, Background, attribute, shapes_differ
from reprodb.bounds import bound_phrase, pool
from reprodb.deltas import Fetch, output_delta, representative
from reprodb.dependence import under_stress
from reprodb.domain import Accuracy, Determinism, Lane, Output, Result, Role, Run, Status
from reprodb.errors import UsageError
from reprodb.findings import Comparison, OutputDelta, Verdict
from reprodb.invariance import batch_effects, loss_by_batch, serial_of
from reprodb.invariance import notes as batch_notes
from reprodb.matrix import References, Row, matrix
from reprodb.variation import churn_of, loss_of

__all__ = ["ACROSS", "Side", "compare_references", "compare_results", "compare_runs", "matrix"]

# What may be compared all the same on request, labelled and without gating.
ACROSS = frozenset({"lane", "gpu", "input"})

# Other results of a row's scope, newest first.
Earlier = Callable[[Result], Iterable[tuple[Run, Result]]]


def nothing_earlier(result: Result) -> tuple[tuple[Run, Result], ...]:
    """Where no other run is known or counts."""
    return ()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a diff: a run and those of its results that are looked at.

    `beside` are others of the run that these are held against: their serial kernels' (see `invariance`).
    """

    run: Run
    results: tuple[Result, ...]
    beside: tuple[Result, ...] = ()


# --- One row -----------------------------------------------------------------------------------


def _pairs(baseline: Result, candidate: Result) -> list[tuple[Output | None, Output | None]]:
    """Outputs of two results by name; what is left of two different kernels by role, in order."""
    old = {o.name: o for o in baseline.outputs}
    pairs: list[tuple[Output | None, Output | None]] = []
    alone: list[Output] = []
    for output in candidate.outputs:
        if output.name in old:
            pairs.append((old.pop(output.name), output))
        else:
            alone.append(output)
    if baseline.kernel.name != candidate.kernel.name:
        for output in tuple(alone):
            partner = next((o for o in old.values() if o.role is output.role), None)
            if partner is not None:
                pairs.append((old.pop(partner.name), output))
                alone.remove(output)
    return [*pairs, *((None, o) for o in alone), *((o, None) for o in old.values())]


def _one_sided(output: Output, side: str) -> OutputDelta:
    return OutputDelta(
        output.name,
        output.role,
        output.dtype,
        output.shape,
        changed=output.elements,
        of=output.elements,
        note=f"only in the {side}",
    )


def _delta(before: Output | None, after: Output | None, fetch: Fetch) -> OutputDelta:
    if before is None or after is None:
        return _one_sided(after, "candidate") if after is not None else _one_sided(_known(before), "baseline")
    return output_delta(before, after, fetch)


_T = TypeVar("_T")


def _known(value: _T | None) -> _T:
    assert value is not None  # noqa: S101 -- the caller's case split says so
    return value


def _gpu(run: Run | None) -> str | None:
    device = run.environment.device if run else None
    return device.name if device else None


def _obstacles(
    baseline: Result, candidate: Result, baseline_run: Run | None, candidate_run: Run | None
) -> dict[str, str]:
    """Why two results cannot be compared: word for `--across` → what differs."""
    found: dict[str, str] = {}
    if baseline.lane is not candidate.lane:
        found["lane"] = f"another lane ({baseline.lane} → {candidate.lane})"
    old, new = _gpu(baseline_run), _gpu(candidate_run)
    portable = candidate.kernel.determinism is Determinism.GPU_TO_GPU
    known = baseline_run is not None and candidate_run is not None
    if known and "lane" not in found and old != new and not portable:
        found["gpu"] = f"another GPU model ({old or 'unknown'} → {new or 'unknown'})"
    if baseline.input_digest and candidate.input_digest and baseline.input_digest != candidate.input_digest:
        found["input"] = "another input under the same case name"
    return found


def _other_batch(baseline: Result, candidate: Result) -> bool:
    """Whether two kernels differ in launch shape and nothing promises that it does not matter."""
    old, new = baseline.kernel, candidate.kernel
    return (
        old.name != new.name and shapes_differ(old, new) and not (old.batch_invariant or new.batch_invariant)
    )


def _guarantee(output: Output, elsewhere: bool) -> bool:
    """Whether an output's bits are judged: guaranteed, and on another GPU or architecture from GPU to GPU."""
    return output.determinism is Determinism.GPU_TO_GPU if elsewhere else output.determinism.guaranteed


def _bits_verdict(
    pairs: list[tuple[Output | None, Output | None]], elsewhere: bool
) -> tuple[Verdict, tuple[Output, Output] | None]:
    """The verdict of two results whose candidate kept its determinism, and the pair whose churn to show.

    Guaranteed outputs decide. A `not_guaranteed` kernel's guaranteed witness decides for it: moved, the row
    is `latent` although the result churns beside it.
    """
    churning = [(a, b) for a, b in pairs if a and b and not b.determinism.guaranteed]
    # Results first; of several, the one whose support moved.
    churning.sort(
        key=lambda p: (p[1].role is not Role.RESULT, {x.sha256 for x in p[0].patterns} == _shas(p[1]))
    )
    shown = churning[0] if churning and churning[0][1].role is Role.RESULT else None
    judged = [(a, b) for a, b in pairs if _guarantee(_known(b or a), elsewhere)]
    if any(a is not None and a.determinism.guaranteed and a.distinct > 1 for a, _ in judged):
        return Verdict.DETERMINISM_GAINED, shown
    moved = {
        _known(b or a).role
        for a, b in judged
        if a is None
        or b is None
        or a.shape != b.shape
        or representative(a).sha256 != representative(b).sha256
    }
    if Role.RESULT in moved:
        return Verdict.CHANGED, shown
    if Role.WITNESS in moved:
        return Verdict.LATENT, shown
    if shown is not None and not any(_known(b or a).role is Role.RESULT for a, b in judged):
        return Verdict.CHURN, shown
    return Verdict.SAME, shown


def _shas(output: Output) -> set[str]:
    return {p.sha256 for p in output.patterns}


def _result_error(result: Result) -> str:
    first_line = result.error.strip().splitlines()[0] if result.error.strip() else ""
    return f"{result.status}: {first_line}" if first_line else f"{result.status}"


def _one_side(
    baseline: Result | None,
    candidate: Result | None,
    baseline_run: Run | None,
    candidate_run: Run | None,
    fetch: Fetch,
    background: Background,
) -> Comparison:
    """A row with bits on one side at most."""
    either = _known(candidate or baseline)
    names = (either.kernel.name, either.case.name)
    if candidate is None:
        accuracy = _known(baseline).accuracy.verdict
        return Comparison(*names, baseline, None, Verdict.MISSING, accuracy)
    accuracy = candidate.accuracy.verdict
    if candidate.status is not Status.OK:
        return Comparison(
            *names, baseline, candidate, Verdict.NO_RESULT, Accuracy.UNKNOWN, note=_result_error(candidate)
        )
    verdict = Verdict.NO_BASELINE if baseline_run is None else Verdict.NEW
    note = candidate.friendly
    if baseline is not None:
        note = f"the baseline has no result ({_result_error(baseline)})"
    effects = batch_effects(candidate, background.serial, fetch)
    loss = loss_by_batch(effects, loss_of(candidate_run, candidate, fetch), candidate)
    if loss is not None:
        verdict = Verdict.DETERMINISM_LOST
        note = note or "nothing to compare with: the bits differ inside this run"
    bound = ""
    guaranteed = any(o.determinism.guaranteed for o in candidate.outputs)
    if loss is None and guaranteed and candidate.lane is Lane.MEASURED:
        bound = _bound(candidate_run, candidate, background)
    note = "; ".join(filter(None, [note, *batch_notes(candidate, background.serial, effects), bound]))
    return Comparison(*names, baseline, candidate, verdict, accuracy, loss=loss, note=note, batch=effects)


def _bound(run: Run | None, result: Result, background: Background) -> str:
    """What the absence of flips bounds: over this run, or over earlier ones of the same pinned tuple too."""
    pooled = pool((run, result), background.earlier) if run is not None else None
    return pooled.phrase if pooled is not None and pooled.runs > 1 else bound_phrase(result.repetitions)


def _notes(
    verdict: Verdict, baseline: Result, candidate: Result, labels: list[str], baseline_lost: bool, bound: str
) -> str:
    notes = list(labels)
    if baseline.kernel.determinism.guaranteed and not candidate.kernel.determinism.guaranteed:
        notes.append(
            f"the guarantee was dropped: {baseline.kernel.determinism} → {candidate.kernel.determinism}"
        )
    if verdict is Verdict.CHANGED and baseline.kernel.name != candidate.kernel.name:
        notes.append("both repeat their bits and do not agree: repeatability and agreement are two questions")
    if verdict is Verdict.DETERMINISM_LOST and baseline_lost:
        notes.append("the baseline was not deterministic either")
    quiet = (Verdict.SAME, Verdict.LATENT, Verdict.CHANGED, Verdict.DETERMINISM_GAINED)
    if candidate.friendly and verdict in (*quiet, Verdict.CHURN):
        notes.append(candidate.friendly)  # and what was not seen then bounds nothing
    elif candidate.lane is Lane.MEASURED and verdict in quiet and candidate.repetitions > 0:
        notes.append(bound)
    if baseline.repetitions != candidate.repetitions:
        notes.append(
            f"run hashes not comparable: {baseline.repetitions:,} and {candidate.repetitions:,} repetitions"
        )
    return "; ".join(notes)


def compare_results(
    baseline: Result | None,
    candidate: Result | None,
    baseline_run: Run | None,
    candidate_run: Run | None,
    fetch: Fetch,
    *,
    across: frozenset[str] = frozenset(),
    background: Background = NOTHING_KNOWN,
) -> Comparison:
    """The comparison of one row, attributed. At least one side is given.

    `baseline_run` None means that nothing was ever accepted for the row (`no_baseline`); a run that lacks the
    row makes it `new`. `fetch` gives a pattern's bytes by SHA-256, asked only where digests differ.
    `across` names obstacles of ACROSS to compare over, labelled and without gating.
    """
    if baseline is None or candidate is None or Status.OK not in (baseline.status, candidate.status):
        return _one_side(baseline, candidate, baseline_run, candidate_run, fetch, background)
    if baseline.status is not Status.OK or candidate.status is not Status.OK:
        row = _one_side(baseline, candidate, baseline_run, candidate_run, fetch, background)
        return attribute(row, baseline_run, candidate_run, background=background)

    obstacles = _obstacles(baseline, candidate, baseline_run, candidate_run)
    barred = {word: why for word, why in obstacles.items() if word not in across}
    labels = [f"not gated: {why}, compared on request" for word, why in obstacles.items() if word in across]
    portable = candidate.kernel.determinism is Determinism.GPU_TO_GPU
    other_arch = baseline.arch != candidate.arch
    if other_arch and not portable:
        labels.append(f"not gated: another architecture ({baseline.arch} → {candidate.arch})")
    if _other_batch(baseline, candidate):
        labels.append("not gated: two kernels of other launch shapes, and neither declares batch_invariant")
    other_gpu = baseline_run is not None and _gpu(baseline_run) != _gpu(candidate_run)
    elsewhere = portable and (other_arch or other_gpu)

    effects = batch_effects(candidate, background.serial, fetch)
    loss = loss_by_batch(effects, loss_of(candidate_run, candidate, fetch), candidate)
    baseline_lost = any(o.determinism.guaranteed and o.distinct > 1 for o in baseline.outputs)
    pairs = _pairs(baseline, candidate)
    verdict, shown = _bits_verdict(pairs, elsewhere)
    if barred:
        verdict, shown, pairs = Verdict.NOT_COMPARABLE, None, []
        labels = [*labels, *barred.values()]
    if loss is not None:
        verdict = Verdict.DETERMINISM_LOST
    comparison = Comparison(
        kernel=candidate.kernel.name,
        case=candidate.case.name,
        baseline=baseline,
        candidate=candidate,
        verdict=verdict,
        accuracy=candidate.accuracy.verdict,
        outputs=tuple(_delta(a, b, fetch) for a, b in pairs),
        churn=churn_of(*shown, fetch) if shown else None,
        loss=loss,
        note=_notes(
            verdict,
            baseline,
            candidate,
            [*labels, *batch_notes(candidate, background.serial, effects)],
            baseline_lost,
            _bound(candidate_run, candidate, background),
        ),
        may_gate=not labels,
        batch=effects,
    )
    return attribute(comparison, baseline_run, candidate_run, background=background)


# --- Matching rows -----------------------------------------------------------------------------


def _by_key(
    results: Iterable[Result], key: Callable[[Result], Hashable], side: str
) -> dict[Hashable, Result]:
    found: dict[Hashable, Result] = {}
    for result in results:
        if (name := key(result)) in found:
            other = found[name]
            raise UsageError(
                f"the {side} has two results for {result.kernel.name} {result.case.name}: "
                f"profiles {other.profile} and {result.profile}",
                allowed="one profile (and kernel) a side, where sides are matched without it",
                remedy=f"name it: RUN:{result.profile}",
            )
        found[name] = result
    return found


def _match(
    baseline: tuple[Result, ...], candidate: tuple[Result, ...], by_profile: bool, by_kernel: bool
) -> list[tuple[Result | None, Result | None]]:
    """Pairs of rows, the candidate's order first, then what is missing.

    Rows that only the architecture (or, between two kernels, the case's name) keeps apart are paired too,
    where there is one such row a side.
    """

    def key(result: Result) -> Hashable:
        kernel, case, profile, arch, condition = result.row
        return (kernel if by_kernel else "", case, profile if by_profile else "", arch, condition)

    def without_arch(result: Result) -> Hashable:
        kernel, case, profile, _, condition = result.row
        return (kernel if by_kernel else "", case, profile if by_profile else "", condition)

    def by_input(result: Result) -> Hashable:
        return (result.input_digest, result.arch, result.condition)

    left = _by_key(baseline, key, "baseline")
    right = _by_key(candidate, key, "candidate")
    partner = {id(new): left[name] for name, new in right.items() if name in left}
    loosely = (without_arch,) if by_kernel else (without_arch, by_input)
    for loose in loosely:
        taken = {id(old) for old in partner.values()}
        olds = _groups((r for r in baseline if id(r) not in taken), loose)
        news = _groups((r for r in candidate if id(r) not in partner), loose)
        for name, group in news.items():
            if len(group) == 1 and len(olds.get(name, ())) == 1:
                partner[id(group[0])] = olds[name][0]
    taken = {id(old) for old in partner.values()}
    pairs: list[tuple[Result | None, Result | None]] = [(partner.get(id(new)), new) for new in candidate]
    return [*pairs, *((old, None) for old in baseline if id(old) not in taken)]


def _check_across(across: frozenset[str]) -> None:
    for word in sorted(across - ACROSS):
        raise UsageError(
            f"cannot compare across {word!r}",
            allowed=", ".join(sorted(ACROSS)),
            remedy="name what differs between the two sides",
        )


def _groups(results: Iterable[Result], key: Callable[[Result], Hashable]) -> dict[Hashable, list[Result]]:
    groups: dict[Hashable, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def compare_runs(
    baseline: Side,
    candidate: Side,
    fetch: Fetch,
    *,
    by_profile: bool = True,
    by_kernel: bool = True,
    across: frozenset[str] = frozenset(),
    earlier: Earlier = nothing_earlier,
) -> tuple[Comparison, ...]:
    """Two runs row by row, in the candidate's order, then the rows it lacks.

    Without `by_profile` each side is one profile (`RUN:PROFILE`), without `by_kernel` one kernel
    (`RUN:PROFILE:KERNEL`). Raises UsageError where a side then has two results for one row.
    """
    _check_across(across)
    rows = tuple(
        replace(
            compare_results(
                old,
                new,
                baseline.run,
                candidate.run,
                fetch,
                across=across,
                background=Background(
                    earlier=tuple(earlier(new)) if new is not None else (),
                    serial=serial_of(new, (*candidate.results, *candidate.beside))
                    if new is not None
                    else None,
                ),
            ),
            reference_run=baseline.run.id if old is not None else None,
            reference_kind="named" if old is not None else None,
        )
        for old, new in _match(baseline.results, candidate.results, by_profile, by_kernel)
    )
    return tuple(under_stress(row, candidate.results) for row in rows)


def _in_plan(candidate: Side) -> Callable[[Row], bool]:
    """Rows whose kernel and profile the run has results of, but for profiles it skipped."""
    kernels = {r.kernel.name for r in candidate.results}
    profiles = {r.profile for r in candidate.results} - {s.profile for s in candidate.run.skipped}
    return lambda row: row[0] in kernels and row[2] in profiles


def compare_references(
    references: References,
    candidate: Side,
    fetch: Fetch,
    *,
    planned: Callable[[Row], bool] | None = None,
    across: frozenset[str] = frozenset(),
    earlier: Earlier = nothing_earlier,
    sources: Mapping[Row, str] | None = None,
) -> tuple[Comparison, ...]:
    """A nightly: each row with its own reference (result, run, blessed | accepted).

    The run of a reference is None where only a blessing's digests are known; `sources` then has the digest of
    the sources that were blessed.

    A row without a reference is `no_baseline`. A reference row that did not appear is `missing` where
    `planned` says that this run set out to produce it; by default where its kernel and its profile ran.
    """
    _check_across(across)
    planned = planned or _in_plan(candidate)
    comparisons = []
    for result in candidate.results:
        reference, run, kind = references.get(result.row, (None, None, None))
        background = Background(
            (sources or {}).get(result.row, ""),
            tuple(earlier(result)),
            serial_of(result, candidate.results),
        )
        comparison = compare_results(
            reference, result, run, candidate.run, fetch, across=across, background=background
        )
        comparisons.append(replace(comparison, reference_run=run.id if run else None, reference_kind=kind))
    seen = {result.row for result in candidate.results}
    for row, (reference, run, kind) in references.items():
        if row not in seen and planned(row):
            comparison = compare_results(reference, None, run, candidate.run, fetch)
            comparisons.append(
                replace(comparison, reference_run=run.id if run else None, reference_kind=kind)
            )
    return tuple(under_stress(comparison, candidate.results) for comparison in comparisons)
