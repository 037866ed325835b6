"""The dossier of a toolkit upgrade: every kernel under the old and the new toolchain, pair by pair. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from reprodb.compare import Earlier, Side, nothing_earlier
from reprodb.deltas import Fetch
from reprodb.domain import Profile, Result, Run, Toolchain
from reprodb.errors import Exit, UsageError
from reprodb.findings import Comparison, Diff, Verdict
from reprodb.headline import counted, kernels_of
from reprodb.policy import Policy
from reprodb.review import review_runs

# The first of these that a pair has is the dossier's.
_GRAVITY = (Exit.UNTRUSTWORTHY, Exit.CHANGED, Exit.NO_ANSWER)


@dataclass(frozen=True, slots=True)
class Leg:
    """One pair of profiles, before and after: the same settings, built by two toolchains."""

    profiles: tuple[str, str]
    toolchains: tuple[Toolchain | None, Toolchain | None]
    parts: tuple[tuple[str, str, str], ...]  # of the toolchain's identity: name, before, after
    options: tuple[tuple[str, ...], tuple[str, ...]]  # that the other side has not
    diff: Diff

    @property
    def name(self) -> str:
        """`cuda12 → default`, or `default` where both sides have one name."""
        return self.profiles[0] if len(set(self.profiles)) == 1 else " → ".join(self.profiles)

    @property
    def step(self) -> str:
        """`nvrtc 12.6.85 → 13.5.37`, `nvrtc 13.5.37` where it is the same, `none` where nothing was built."""
        old, new = self.toolchains
        if old is None or new is None:
            return " → ".join(t.label if t else "none" for t in self.toolchains)
        if old.identity == new.identity:
            return old.label
        return f"{old.label} → {new.version if old.compiler == new.compiler else new.label}"

    @property
    def moved(self) -> bool:
        """Whether the toolchain is another."""
        old, new = self.toolchains
        return old is None or new is None or old.identity != new.identity


@dataclass(frozen=True, slots=True)
class Dossier:
    """An upgrade: its legs, those that differ in their toolchain first, and the verdict over all of them."""

    baseline: Run
    candidate: Run
    legs: tuple[Leg, ...]
    exit_code: int
    verdict: str

    @property
    def headline(self) -> str:
        """`upgrading nvrtc 12.6.85 → 13.5.37 keeps every fixed-order bit; 20 churn, 4 same`."""
        if not self.steps:
            name = self.legs[0].name if len(self.legs) == 1 else "the same toolchain"
            return f"{name} {self.verdict}"
        shown = " and ".join(self.steps) if len(self.steps) <= 2 else f"{len(self.steps)} toolchains"
        return f"upgrading {shown} {self.verdict}"

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return tuple(c for leg in self.legs for c in leg.diff.comparisons)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reason for leg in self.legs for reason in leg.diff.reasons))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for leg in self.legs for note in leg.diff.notes))

    @property
    def steps(self) -> tuple[str, ...]:
        """The upgrades in it: `nvrtc 12.6.85 → 13.5.37`."""
        return tuple(dict.fromkeys(leg.step for leg in self.legs if leg.moved))

    @property
    def diff(self) -> Diff:
        """All of it as one diff, for what reads diffs."""
        canaries = tuple(dict.fromkeys(c for leg in self.legs for c in leg.diff.canaries))
        return Diff(
            self.baseline,
            self.candidate,
            self.comparisons,
            canaries=canaries,
            exit_code=self.exit_code,
            headline=self.headline,
            reasons=self.reasons,
            notes=self.notes,
        )


# --- Which profiles belong together --------------------------------------------------------------


def natural_pairs(results: Iterable[Result]) -> tuple[tuple[str, str], ...]:
    """Profiles of one run that differ in their toolchain's version alone, each with the next newer one.

    `cuda12 → default`: the same compiler, flags and architecture, another toolkit.
    """
    from packaging.version import InvalidVersion, Version

    families: dict[Profile, dict[str, Version]] = {}
    for result in results:
        build = result.build
        if build is None:
            continue
        family = replace(build.profile, name="", toolkit="", arch=result.arch)
        try:
            families.setdefault(family, {})[result.profile] = Version(build.toolchain.version)
        except InvalidVersion:
            continue
    pairs = []
    for versions in families.values():
        ordered = sorted(versions.items(), key=lambda item: (item[1], item[0]))
        pairs += [(old, new) for (old, a), (new, b) in pairwise(ordered) if a < b]
    return tuple(sorted(pairs))


def common_profiles(baseline: Side, candidate: Side) -> tuple[tuple[str, str], ...]:
    """Profiles that both runs have."""
    names = [{r.profile for r in side.results} for side in (baseline, candidate)]
    return tuple((name, name) for name in sorted(names[0] & names[1]))


# --- The dossier -----------------------------------------------------------------------------------


def dossier(
    baseline: Side,
    candidate: Side,
    pairs: Sequence[tuple[str, str]],
    fetch: Fetch,
    policy: Policy,
    *,
    now: datetime,
    earlier: Earlier = nothing_earlier,
) -> Dossier:
    """The dossier of these pairs of profiles, the first of each in the baseline.

    Raises UsageError without a pair.
    """
    if not pairs:
        raise UsageError(
            f"runs {baseline.run.id} and {candidate.run.id} have no profiles that belong together",
            allowed="two runs with a profile in common; one run with two toolkits under the same flags; "
            "RUN:PROFILE on both sides",
        )
    legs = tuple(
        sorted(
            (_leg(baseline, candidate, pair, fetch, policy, now, earlier) for pair in pairs),
            key=lambda leg: (not leg.moved, leg.profiles),
        )
    )
    codes = {leg.diff.exit_code for leg in legs}
    code = next((c for c in _GRAVITY if c in codes), Exit.CLEAN)
    if any(not c.ok and c.fatal for leg in legs for c in leg.diff.canaries):
        code = Exit.NO_ANSWER
    return Dossier(baseline.run, candidate.run, legs, int(code), _verdict(legs, code))


def _leg(
    baseline: Side,
    candidate: Side,
    pair: tuple[str, str],
    fetch: Fetch,
    policy: Policy,
    now: datetime,
    earlier: Earlier,
) -> Leg:
    old, new = (
        Side(side.run, tuple(r for r in side.results if r.profile == name))
        for side, name in zip((baseline, candidate), pair, strict=True)
    )
    diff = review_runs(old, new, fetch, policy, now=now, by_profile=pair[0] == pair[1], earlier=earlier)
    tools = tuple(next((r.build.toolchain for r in s.results if r.build), None) for s in (old, new))
    options = tuple(
        dict.fromkeys(option for r in s.results if r.build for option in r.build.options) for s in (old, new)
    )
    alone = tuple(tuple(o for o in options[a] if o not in options[1 - a]) for a in (0, 1))
    return Leg(pair, (tools[0], tools[1]), _parts(*tools), (alone[0], alone[1]), diff)


def _parts(old: Toolchain | None, new: Toolchain | None) -> tuple[tuple[str, str, str], ...]:
    """What differs between the identities of two toolchains."""
    before, after = (dict(t.identity) if t else {} for t in (old, new))
    names = dict.fromkeys((*before, *after))
    found = ((name, before.get(name, ""), after.get(name, "")) for name in names)
    return tuple((name, a, b) for name, a, b in found if a != b)


def _verdict(legs: Sequence[Leg], code: Exit) -> str:
    """What the upgrade does, as what follows its name in a sentence; then the rows by verdict."""
    rows = [c for leg in legs for c in leg.diff.comparisons]
    gated = [c for c in rows if c.gated]
    counts = counted(rows) or "no rows"
    failed = [c.name for leg in legs for c in leg.diff.canaries if not c.ok and c.fatal]
    if failed:
        return f"says nothing, a canary failed: {', '.join(dict.fromkeys(failed))}; {counts}"
    if code is Exit.UNTRUSTWORTHY:
        lost = [c for c in gated if c.verdict is Verdict.DETERMINISM_LOST]
        if lost:
            return f"loses the determinism of {kernels_of(lost)}; {counts}"
        return f"takes {kernels_of(gated)} outside its tolerance; {counts}"
    if code is Exit.CHANGED:
        return f"moves the bits of {kernels_of(gated)}; {counts}"
    if code is Exit.NO_ANSWER:
        return f"gives no answer{' for ' + kernels_of(gated) if gated else ''}; {counts}"
    latent = sum(c.verdict is Verdict.LATENT for c in rows)
    if latent:
        many = f"{latent:,} row{'s' * (latent != 1)}"
        return f"keeps every fixed-order result and moves witness bits in {many}; {counts}"
    if any(c.verdict in (Verdict.CHANGED, Verdict.MISSING) for c in rows):
        return f"moves bits that do not gate; {counts}"
    return f"keeps every fixed-order bit; {counts}"
