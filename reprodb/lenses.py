"""What a place of a hunt is looked at by: the bits that its kernel shows, or the code that is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reprodb.codegen import code_delta, delta_phrase
from reprodb.compare import compare_results
from reprodb.digest import content_key
from reprodb.domain import Artifact, Case, Code, Kernel, Lane, Output, Result, Role, Status
from reprodb.experiments import Experiment, Laboratory, Setting, Workshop, bits_of, changes, failure
from reprodb.matrix import code_key

SHORT = 12  # digits of a digest that are shown


@dataclass(frozen=True, slots=True)
class Look:
    """What one place showed. `key` is None where there was nothing to see, `why` then says why."""

    key: str | None
    code: str | None = None  # the code's identity
    bits: tuple[tuple[str, str], ...] = ()  # case, the bits of its judged outputs
    compiled: bool = False
    executed: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class CaseChange:
    """How two neighbours differ in one case (or in code, then without one), and what moved in a sentence."""

    case: str
    change: str
    sentence: str = ""


class Lens(Protocol):
    what: str  # bits | code
    notes: tuple[str, ...]

    def look(self, settings: Sequence[Setting]) -> Look: ...

    def again(
        self, before: Sequence[Setting], after: Sequence[Setting], looks: tuple[Look, Look]
    ) -> tuple[bool, tuple[CaseChange, ...]]:
        """Look at two neighbours once more: whether they show the same again, and how they differ."""


class BitsLens:
    """Executes every case. The first look decides which cases count: one without bits there is left out."""

    what = "bits"

    def __init__(self, laboratory: Laboratory) -> None:
        self.notes: tuple[str, ...] = ()
        self._laboratory = laboratory
        self._cases: frozenset[str] | None = None

    def look(self, settings: Sequence[Setting]) -> Look:
        experiments = self._laboratory.carry_out(self._chosen(settings))
        if self._cases is None:
            experiments = self._first(experiments)
        results = [e.result for e in experiments]
        key, why = self._key(results)
        return Look(
            key,
            code=next((_code(r.build.code, r.lane) for r in results if r.build), None),
            bits=tuple((r.case.name, _shown(r)) for r in results),
            compiled=any(e.compiled for e in experiments),
            executed=any(e.executed for e in experiments),
            why=why,
        )

    def again(
        self, before: Sequence[Setting], after: Sequence[Setting], looks: tuple[Look, Look]
    ) -> tuple[bool, tuple[CaseChange, ...]]:
        old, new = self._chosen(before), self._chosen(after)
        results = [e.result for e in self._laboratory.carry_out([*old, *new], afresh=True)]
        sides = results[: len(old)], results[len(old) :]
        keys = [self._key(side)[0] for side in sides]
        cases = tuple(_case_change(a, b) for a, b in zip(*sides, strict=True))
        return keys == [look.key for look in looks], cases

    def _chosen(self, settings: Sequence[Setting]) -> list[Setting]:
        return [s for s in settings if self._cases is None or s.case.name in self._cases]

    def _first(self, experiments: Sequence[Experiment]) -> tuple[Experiment, ...]:
        """Those that have bits; all of them where none has, so that their failure is told."""
        kept = tuple(e for e in experiments if self._key([e.result])[0] is not None)
        if kept:
            self._cases = frozenset(e.result.case.name for e in kept)
            self.notes = tuple(
                f"case {e.result.case.name} is left out: {failure(e.result)}"
                for e in experiments
                if e not in kept
            )
        return kept or tuple(experiments)

    @staticmethod
    def _key(results: Sequence[Result]) -> tuple[str | None, str]:
        """The identity of all the cases' bits, or why there is none."""
        parts = []
        for result in results:
            outputs = judged(result.kernel, result.case)
            if not outputs:
                return None, f"{result.kernel.name} guarantees none of its bits"
            bits = bits_of(result, outputs)
            if bits is None:
                return None, failure(result)
            parts += [result.case.name, bits]
        return content_key("reprodb.look/1", *parts), ""


class CodeLens:
    """Builds alone: normalised instructions and constants, or the PTX where no disassembler is here."""

    what = "code"

    def __init__(self, workshop: Workshop) -> None:
        self.notes: tuple[str, ...] = ()
        self._workshop = workshop

    def look(self, settings: Sequence[Setting]) -> Look:
        artifact = self._artifact(settings)
        if isinstance(artifact, str):
            return Look(None, why=artifact)
        key = _code(artifact.build.code, Lane.MODELLED)
        return Look(key, key, compiled=not artifact.cached, why="" if key else "its code is not known")

    def again(
        self, before: Sequence[Setting], after: Sequence[Setting], looks: tuple[Look, Look]
    ) -> tuple[bool, tuple[CaseChange, ...]]:
        artifacts = [self._artifact(side) for side in (before, after)]
        codes = [a.build.code if isinstance(a, Artifact) else None for a in artifacts]
        keys = [_code(code, Lane.MODELLED) for code in codes]
        old, new = codes
        deltas = code_delta(old, new) if old and new else ()
        phrases = [f"{d.function}: {delta_phrase(d)}" for d in deltas if d.sass or d.ptx]
        change = "; ".join(phrases) or "the same opcodes counted, other operands, registers or order"
        return keys == [look.key for look in looks], (CaseChange("", change),)

    def _artifact(self, settings: Sequence[Setting]) -> Artifact | str:
        """One artifact: the cases of a kernel share it."""
        made = self._workshop.build(settings[:1])[0]
        if isinstance(made, str):
            return made.splitlines()[0]
        if made.build.status is not Status.OK:
            lines = (line.strip() for line in made.build.log.splitlines() if line.strip())
            return f"did not build: {next(lines, 'no reason given')}"
        return made


def judged(kernel: Kernel, case: Case) -> tuple[str, ...]:
    """The recorded buffers of a case whose bits the kernel guarantees, results first."""
    buffers = sorted(case.recorded, key=lambda b: b.role is not Role.RESULT)
    return tuple(b.name for b in buffers if (b.determinism or kernel.determinism).guaranteed)


def _case_change(before: Result, after: Result) -> CaseChange:
    outputs = judged(after.kernel, after.case)
    attribution = compare_results(before, after, None, None, _no_data).attribution
    return CaseChange(
        after.case.name, changes(before, after, outputs), attribution.sentence if attribution else ""
    )


def _no_data(sha256: str) -> bytes:
    raise LookupError(sha256)


def _shown(result: Result) -> str:
    """`0x4b25426d`; of several judged outputs each by name."""
    names = judged(result.kernel, result.case)
    found = [(o.name, _bits(o)) for o in result.outputs if o.name in names]
    if len(found) == 1:
        return found[0][1]
    return ", ".join(f"{name} {bits}" for name, bits in found) or "no bits"


def _bits(output: Output) -> str:
    if output.distinct > 1:
        return f"{output.distinct} patterns"
    return output.first_bits or output.sha256[:SHORT]


def _code(code: Code | None, lane: Lane) -> str | None:
    key = code_key(code, lane)
    return None if key is None else content_key("reprodb.code/1", *key)
