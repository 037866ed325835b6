"""Why one comparison's bits differ: both sides made again with changes exchanged, and what that shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from reprodb import counterfactual
from reprodb.attribute import causes
from reprodb.conclusions import Explanation, Held, Trial, shown, told
from reprodb.coordinates import INPUT, SOURCE, TOOLCHAIN, Coordinate, Side, differing, mix, side_of
from reprodb.counterfactual import Answer, Set
from reprodb.domain import Result, Run, Status, Toolchain
from reprodb.experiments import Experiment, Laboratory, Setting, bits_of, changes, failure
from reprodb.findings import Comparison
from reprodb.recovery import Compilers, Library, Missing, Texts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Means:
    """What experiments are carried out with, and how far to go."""

    laboratory: Laboratory
    library: Library
    compilers: Compilers
    limit: int = 100
    every: bool = False
    say: Callable[[str], None] = lambda _: None


def judged_outputs(before: Result, after: Result) -> tuple[str, ...]:
    """The outputs of both sides whose bits are guaranteed on both: those that differ first, results first."""
    old = {o.name: o for o in before.outputs}
    both = [
        o
        for o in (*after.results, *after.witnesses)
        if o.name in old and o.determinism.guaranteed and old[o.name].determinism.guaranteed
    ]
    both.sort(key=lambda o: bits_of(before, (o.name,)) == bits_of(after, (o.name,)))
    return tuple(o.name for o in both)


def moved(comparison: Comparison) -> bool:
    """Whether there is something to explain: guaranteed bits of both sides, and not the same."""
    before, after = comparison.baseline, comparison.candidate
    if before is None or after is None:
        return False
    outputs = judged_outputs(before, after)
    old, new = bits_of(before, outputs), bits_of(after, outputs)
    return bool(outputs) and None not in (old, new) and old != new


def explain(
    comparison: Comparison, baseline_run: Run | None, candidate_run: Run | None, means: Means
) -> Explanation:
    """Re-execute a row that `moved` with its differing coordinates exchanged."""
    before, after = comparison.baseline, comparison.candidate
    lane = means.laboratory.lane
    if before is None or after is None or before.build is None or after.build is None:
        return Explanation(comparison, lane, obstacle="it is not recorded how one of the sides was built")
    base, candidate = side_of(before, before.build), side_of(after, after.build)
    coordinates = differing(before, after, base, candidate)
    found = Explanation(
        comparison,
        lane,
        outputs=judged_outputs(before, after),
        coordinates=coordinates,
        environment=causes(before, after, baseline_run, candidate_run)[-1].detail,
    )
    stock = _gather(base, candidate, coordinates, means)
    if isinstance(stock, Missing):
        remedy = f" ({stock.remedy})" if stock.remedy else ""
        return replace(found, obstacle=f"neither side can be made again: {stock.why}{remedy}")
    found = replace(found, held=stock.held, notes=stock.notes)
    means.say(_plan(found, means.limit))
    bench = _Bench(base, candidate, found, stock, means)
    search = counterfactual.search(found.exchangeable, limit=means.limit, every=means.every)
    findings = counterfactual.carry_out(search, bench.probe)
    seen = bench.bits[frozenset()], bench.bits[frozenset(found.exchangeable)]
    recorded = bits_of(before, found.outputs), bits_of(after, found.outputs)
    old, new = (None if s is None else s == r for s, r in zip(seen, recorded, strict=True))
    return replace(found, reproduced=(old, new), findings=findings, trials=tuple(bench.trials))


def _plan(found: Explanation, limit: int) -> str:
    changes = [c.change for c in found.coordinates if c.name in found.exchangeable]
    held = [h.coordinate.name for h in found.held]
    what = "; ".join(changes) or "nothing that can be exchanged"
    kept = f"; held: {', '.join(held)}" if held else ""
    most = min(limit, 2 ** len(changes))
    return f"{found.comparison.kernel} {found.comparison.case}: {what}{kept}; at most {most} experiments"


# --- What experiments need ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stock:
    """Texts and toolchains of baseline and candidate, and what had to be held at one side's value."""

    texts: tuple[Texts, Texts]
    toolchains: tuple[Toolchain, Toolchain]
    held: tuple[Held, ...]
    notes: tuple[str, ...]


def _gather(base: Side, candidate: Side, coordinates: Sequence[Coordinate], means: Means) -> _Stock | Missing:
    """Find what both sides were made of. Missing where not even one side's can be had."""
    held: list[Held] = []
    texts = [means.library.texts(side.sources) for side in (base, candidate)]
    toolchains = [means.compilers.like(side.toolchain) for side in (base, candidate)]
    for part, pair in ((SOURCE, texts), (TOOLCHAIN, toolchains)):
        coordinate = next((c for c in coordinates if part in c.parts), None)
        lacking = [thing for thing in pair if isinstance(thing, Missing)]
        if lacking and (coordinate is None or len(lacking) == len(pair)):
            return lacking[0]
        if coordinate is None:
            continue
        old, new = pair
        if isinstance(old, Missing):
            held.append(Held(coordinate, "candidate", f"the baseline's: {old.why}", old.remedy))
        elif isinstance(new, Missing):
            held.append(Held(coordinate, "baseline", f"the candidate's: {new.why}", new.remedy))
        elif part == TOOLCHAIN and old == new:
            held.append(Held(coordinate, "candidate", "there is one such toolchain here, of these parts"))
    for coordinate in coordinates:
        if coordinate.parts == {INPUT} and base.case.inputs == candidate.case.inputs:
            why = "the same pattern made other bytes then; this reprodb makes one kind"
            held.append(Held(coordinate, "candidate", why))
    old_texts, new_texts = (t for t in texts)
    old_tool, new_tool = (t for t in toolchains)
    kept_texts = _either(old_texts, new_texts)
    kept_tools = _either(old_tool, new_tool)
    notes = tuple(dict.fromkeys(note for t in kept_texts for note in t.notes))
    return _Stock(kept_texts, kept_tools, tuple(held), notes)


def _either(old: T | Missing, new: T | Missing) -> tuple[T, T]:
    """Both things; what is missing gives way to the other side's."""
    if isinstance(old, Missing):
        assert not isinstance(new, Missing)  # noqa: S101 -- the caller returned where both are
        return new, new
    return (old, old) if isinstance(new, Missing) else (old, new)


# --- Experiments -------------------------------------------------------------------------------


class _Bench:
    """Answers a search: sets of coordinate names become settings, settings experiments, those trials."""

    def __init__(
        self,
        base: Side,
        candidate: Side,
        found: Explanation,
        stock: _Stock,
        means: Means,
    ) -> None:
        self.trials: list[Trial] = []
        self.bits: dict[Set, str | None] = {}
        self._base, self._candidate, self._stock = base, candidate, stock
        self._parts = {c.name: c.parts for c in found.coordinates if c.name in found.exchangeable}
        self._fixed: frozenset[str] = frozenset().union(
            *(h.coordinate.parts for h in stock.held if h.at == "candidate")
        )
        self._outputs = found.outputs
        self._means = means
        self._ends: tuple[str | None, str | None] = (None, None)
        self._first: Result | None = None
        self._details: dict[int, str] = {}  # number of an executed experiment → its detail

    def probe(self, sets: tuple[Set, ...]) -> list[Answer]:
        experiments = self._means.laboratory.carry_out([self._setting(s) for s in sets])
        answers = []
        for exchanged, experiment in zip(sets, experiments, strict=True):
            result = experiment.result
            self.bits[exchanged] = bits = bits_of(result, self._outputs)
            answers.append(Answer(bits, "" if bits else failure(result)))
        if self._first is None:
            self._first = experiments[0].result
            self._ends = (answers[0].bits, answers[-1].bits)
        for exchanged, experiment, answer in zip(sets, experiments, answers, strict=True):
            self._tell(exchanged, experiment, answer)
        return answers

    def _setting(self, exchanged: Set) -> Setting:
        parts = self._fixed.union(*(self._parts[name] for name in exchanged))
        side = mix(self._base, self._candidate, parts)
        texts = self._stock.texts[SOURCE in parts]
        toolchain = self._stock.toolchains[TOOLCHAIN in parts]
        return Setting(side.kernel, texts.files, side.profile, toolchain, side.arch)

    def _tell(self, exchanged: Set, experiment: Experiment, answer: Answer) -> None:
        ends = {self._ends[1]: "candidate", self._ends[0]: "baseline"}  # where both agree: baseline
        shows = "nothing" if answer.bits is None else ends.get(answer.bits, "other")
        number = experiment.number
        source = number if experiment.same_as is None else experiment.same_as
        if source not in self._details:
            self._details[source] = answer.why or self._detail(experiment.result)
        names = tuple(name for name in self._parts if name in exchanged)
        trial = Trial(
            number,
            names,
            shows,
            shown(experiment.result, self._outputs),
            self._details[source],
            experiment.compiled,
            experiment.same_as,
        )
        self.trials.append(trial)
        self._means.say(told(trial))

    def _detail(self, result: Result) -> str:
        """How the bits differ from those of the baseline's own experiment."""
        first = self._first
        if first is None or first is result or first.status is not Status.OK:
            return ""
        return changes(first, result, self._outputs)
