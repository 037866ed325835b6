"""The page of a toolkit upgrade: what changed in the toolchains, every kernel pair by pair, what moved."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from reprodb.codegen import code_delta, delta_phrase, launched
from reprodb.domain import Result, Role
from reprodb.dossier import Dossier, Leg
from reprodb.findings import Comparison, Verdict
from reprodb.render.finding import CodeShelf, Finding, finding
from reprodb.render.sources import Sources
from reprodb.render.spectra import ChurnGroup, churn_groups
from reprodb.render.text import count, joined, sentence
from reprodb.render.top import Top, diff_top
from reprodb.render.words import VERDICTS, Step, Word, bits_of, flagged, run_name, worst_first


@dataclass(frozen=True, slots=True)
class LegRow:
    """One pair of profiles: what the upgrade is made of."""

    name: str
    step: str
    moved: bool
    parts: tuple[str, ...]  # `ptxas 12.4.131 → 13.0.88`
    options: tuple[str, ...]
    rows: str  # its rows by verdict


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel under one pair."""

    comparison: Comparison
    leg: str
    word: Word
    anchor: str  # of its finding; empty where nothing is opened up
    bits: str
    witness: str
    code: str
    detail: str  # what its opcode counts say
    instructions: str


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """All pairs of one kernel and case."""

    kernel: str
    case: str
    operation: str
    determinism: str
    rows: tuple[KernelRow, ...]


@dataclass(frozen=True, slots=True)
class DossierPage:
    top: Top
    legs: tuple[LegRow, ...]
    kernels: tuple[KernelGroup, ...]
    findings: tuple[Finding, ...]
    churn: tuple[ChurnGroup, ...]
    next: tuple[Step, ...]


def dossier_page(value: Dossier, sources: Sources) -> DossierPage:
    diff = value.diff
    ordered = worst_first(diff.comparisons)
    loud = tuple(c for c in ordered if flagged(c))
    shelf = CodeShelf(sources)
    findings = tuple(finding(c, n, shelf, value.candidate, sources) for n, c in enumerate(loud, 1))
    anchors = {id(f.comparison): f.anchor for f in findings}
    return DossierPage(
        _top(value),
        tuple(_leg(leg) for leg in value.legs),
        kernel_groups(value, anchors),
        findings,
        churn_groups((c for c in ordered if not flagged(c) and c.churn), opened=False),
        _next(value),
    )


def _top(value: Dossier) -> Top:
    top = diff_top(value.diff)
    old, new = value.baseline, value.candidate
    one = old.uid == new.uid
    where = run_name(new) if one else f"{run_name(old)} → {run_name(new)}"
    compared, *facts = top.facts
    pairs = f"{count(len(value.legs), 'pair')} of profiles {'inside' if one else 'over'} {where}"
    return Top(
        f"upgrade dossier · {new.suite} · {where}",
        top.mark,
        top.tone,
        top.headline.replace(" → ", "\u00a0→\u00a0"),  # a version is not parted from its arrow
        top.tally,
        top.reasons,
        (replace(compared, text=pairs), *facts),
        top.unanswered,
        top.alarms,
    )


def _leg(leg: Leg) -> LegRow:
    counts: dict[Verdict, int] = {}
    for c in worst_first(leg.diff.comparisons):
        counts[c.verdict] = counts.get(c.verdict, 0) + 1
    gone, come = leg.options
    return LegRow(
        leg.name,
        leg.step,
        leg.moved,
        tuple(f"{name} {a or 'none'} → {b or 'none'}" for name, a, b in leg.parts),
        tuple(f"{o} gone" for o in gone) + tuple(f"{o} new" for o in come),
        ", ".join(f"{n:,} {VERDICTS[verdict].label}" for verdict, n in counts.items()),
    )


def kernel_groups(value: Dossier, anchors: dict[int, str]) -> tuple[KernelGroup, ...]:
    """Kernels by name and case; the pairs of each in the dossier's order."""
    groups: dict[tuple[str, str], list[KernelRow]] = {}
    for leg in value.legs:
        for c in leg.diff.comparisons:
            groups.setdefault((c.kernel, c.case), []).append(_kernel(c, leg, anchors.get(id(c), "")))
    found = []
    for (kernel, case), rows in sorted(groups.items()):
        whole = rows[0].comparison.either.kernel
        found.append(KernelGroup(kernel, case, whole.operation, whole.determinism.value, tuple(rows)))
    return tuple(found)


def _kernel(c: Comparison, leg: Leg, anchor: str) -> KernelRow:
    free = {o.name for o in c.either.outputs if not o.determinism.guaranteed}
    witness = [d for d in c.outputs if d.role is Role.WITNESS]
    moved = [d for d in witness if d.changed and d.name not in free]
    told = "equal" if any(d.name not in free for d in witness) else "varies" if witness else "none"
    if moved:
        told = ", ".join(f"{d.changed:,} of {d.of:,} {d.name}" for d in moved)
    code, detail = code_words(c)
    return KernelRow(
        c, leg.name, VERDICTS[c.verdict], anchor, bits_words(c), told, code, detail, _instructions(c)
    )


def bits_words(c: Comparison) -> str:
    """`0x4b25426d`, `0x4b25426d → 0x4b25426e`, `13 → 11 patterns`."""
    if c.churn:
        return f"{c.churn.baseline.distinct:,} → {c.churn.candidate.distinct:,} patterns"
    before, after = bits_of(c.baseline), bits_of(c.candidate)
    return after or before or "–" if before == after or not (before and after) else f"{before} → {after}"


def code_words(c: Comparison) -> tuple[str, str]:
    """Whether the code differs, and how the counts of the kernel's own functions do."""
    old, new = (side.build.code if side and side.build else None for side in (c.baseline, c.candidate))
    if old is None or new is None:
        return "unknown", ""
    same = [a == b for a, b in ((old.sass, new.sass), (old.constants, new.constants)) if a and b]
    if not same:
        same = [old.ptx == new.ptx] if old.ptx and new.ptx else []
    if not same:
        return "unknown", ""
    if all(same):
        return "same", ""
    entries = {stage.entry for stage in c.either.kernel.stages}
    known = old.sass is not None and new.sass is not None
    # Where SASS is known, what PTX counts says nothing of what ran.
    deltas = [d for d in code_delta(old, new) if launched(d.function, entries) and (d.sass or not known)]
    return "differs", "; ".join(delta_phrase(d) for d in deltas) or "opcode counts equal"


def _instructions(c: Comparison) -> str:
    """Instructions of the kernel's own functions: `612 → 598`."""
    counts = [instructions(side) for side in (c.baseline, c.candidate)]
    if None in counts:
        return "–"
    return f"{counts[0]:,} → {counts[1]:,}" if counts[0] != counts[1] else f"{counts[0]:,}"


def instructions(result: Result | None) -> int | None:
    """SASS instructions of the functions that a result launches; None where they are not known."""
    code = result.build.code if result and result.build else None
    if code is None or result is None or code.sass is None:
        return None
    entries = {stage.entry for stage in result.kernel.stages}
    return sum(n for f in code.counts if launched(f.function, entries) for _, n in f.sass)


def _next(value: Dossier) -> tuple[Step, ...]:
    """What a person who decides about the upgrade does with it."""
    gated = [c for c in value.comparisons if c.gated]
    where = "this GPU" if value.candidate.lane.value == "measured" else "the model"
    if value.exit_code == 4:
        return (Step("Make the rows without an answer run on both sides, then ask again."),)
    if gated:
        kernels = joined(sorted({c.kernel for c in gated}))
        return (
            Step(f"Keep the old toolchain for {kernels}, or bless the new bits with a reason."),
            *_bless(value, gated),
        )
    latent = sum(c.verdict is Verdict.LATENT for c in value.comparisons)
    leg = value.legs[0]
    sides = (
        f"{run.id}:{name}" for run, name in zip((value.baseline, value.candidate), leg.profiles, strict=True)
    )
    code = Step("What the compiler changed:", shlex.join(["reprodb", "code", *sides, "KERNEL", "--sass"]))
    told = f"Nothing stands against the upgrade for these inputs on {where}."
    if latent:
        many = count(latent, "row has", "rows have")
        told += f" {sentence(many + ' other witness bits: another input may move their results')}"
    return (Step(told), code)


def _bless(value: Dossier, gated: Iterable[Comparison]) -> tuple[Step, ...]:
    if value.candidate.id is None:
        return ()
    profiles = sorted({c.candidate.profile for c in gated if c.candidate and c.verdict is Verdict.CHANGED})
    return tuple(
        Step("", f'reprodb bless {value.candidate.id}:{profile} --reason "…"') for profile in profiles
    )
