"""A kernel's results over the runs, each set beside the one before it in its scope."""

from collections.abc import Iterable
from dataclasses import dataclass

from reprodb.domain import Output, Result, Run, Status, scope_of
from reprodb.render.words import patterns

# What may have changed beside the bits, by the letter that a strip has room for.
TURNS: dict[str, str] = {
    "T": "toolchain",
    "F": "flags",
    "S": "source",
    "I": "input",
    "D": "driver",
    "G": "GPU",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """Something beside the bits that is another than before: `T`, `nvrtc 12.6.85 → nvrtc 13.5.37`."""

    letter: str  # of TURNS
    text: str


@dataclass(frozen=True, slots=True)
class Moment:
    """One result of a history. `step` says how its bits stand to the result before it in the same scope.

    Steps: `first`, `same`, `latent` (witness bits alone), `moved`, `churn` (several patterns on a side),
    `lost` (several where one is guaranteed) and `no result`. `turns` say what else changed since.
    """

    run: Run
    result: Result
    step: str
    turns: tuple[Turn, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        return tuple(turn.text for turn in self.turns)


# How a step is told: mark, tone, meaning.
STEPS: dict[str, tuple[str, str, str]] = {
    "first": ("○", "info", "the first result of its scope"),
    "same": ("=", "good", "the same result and witness bits"),
    "latent": ("≃", "warn", "witness bits moved, the result did not"),
    "moved": ("≠", "bad", "result bits moved"),
    "lost": ("!", "bad", "several patterns where one is guaranteed"),
    "churn": ("~", "quiet", "several patterns by nature, or before"),
    "no result": ("∅", "bad", "it did not build, launch or finish"),
}


def moments(entries: Iterable[tuple[Run, Result]]) -> tuple[Moment, ...]:
    """The moments of a history given newest first, in the same order."""
    latest: dict[object, tuple[Run, Result]] = {}
    found = []
    for run, result in reversed(tuple(entries)):
        scope = scope_of(run, result)
        before = latest.get(scope)
        found.append(Moment(run, result, _step(before, result), _turns(before, run, result)))
        if result.status is Status.OK:
            latest[scope] = (run, result)
    return tuple(reversed(found))


def _step(before: tuple[Run, Result] | None, result: Result) -> str:
    if result.status is not Status.OK:
        return "no result"
    if any(o.determinism.guaranteed and o.distinct > 1 for o in result.outputs):
        return "lost"
    if before is None:
        return "first"
    if max(patterns(result), patterns(before[1])) > 1:
        return "churn"
    if _bits(result.results) != _bits(before[1].results):
        return "moved"
    return "same" if _bits(result.outputs) == _bits(before[1].outputs) else "latent"


def _bits(outputs: Iterable[Output]) -> tuple[object, ...]:
    return tuple((o.name, tuple(sorted(p.sha256 for p in o.patterns))) for o in outputs)


def _turns(before: tuple[Run, Result] | None, run: Run, result: Result) -> tuple[Turn, ...]:
    if before is None:
        return ()
    old_run, old = before
    pairs: list[tuple[str, str, str | None, str | None]] = []
    pairs.append(("D", "driver ", old_run.environment.driver, run.environment.driver))
    if old.build and result.build:
        pairs.append(("T", "", old.build.toolchain.label, result.build.toolchain.label))
        options = old.build.options, result.build.options
        gone, come = ([o for o in options[a] if o not in options[1 - a]] for a in (0, 1))
        pairs.append(("F", "flags ", " ".join(gone), " ".join(come)))
        pairs.append(("S", "source ", old.build.source_digest[:8], result.build.source_digest[:8]))
    old_device, device = old_run.environment.device, run.environment.device
    pairs.append(("G", "GPU ", old_device.uuid if old_device else None, device.uuid if device else None))
    pairs.append(("I", "input ", old.input_digest[:8], result.input_digest[:8]))
    return tuple(
        Turn(letter, f"{name}{a or 'none'} → {b or 'none'}") for letter, name, a, b in pairs if a != b
    )
