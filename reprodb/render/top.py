"""The top of a page: the verdict in words, what was compared, where, and what could not be answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from reprodb.domain import CanaryOutcome, Environment, Lane, Result, Run, Status
from reprodb.findings import Comparison, Diff
from reprodb.invariance import words as batch_words
from reprodb.render.text import count, joined, sentence, when
from reprodb.render.words import (
    EXITS,
    VERDICTS,
    Step,
    Word,
    run_name,
    skips,
    tally,
    toolchains_of,
    unanswered,
    untouched,
    verdict_alone,
    worst_word,
)

# Reasons for an exit code at the top of a page.
REASONS = 6


@dataclass(frozen=True, slots=True)
class Fact:
    """One row at the top of a page, with further lines in a softer voice."""

    name: str
    text: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Top:
    eyebrow: str
    mark: str
    tone: str
    headline: str
    tally: tuple[tuple[Word, int], ...]
    reasons: tuple[str, ...]
    facts: tuple[Fact, ...]
    unanswered: tuple[Step, ...]
    alarms: tuple[CanaryOutcome, ...]


def environment_fact(run: Run) -> Fact:
    """The GPU with its driver where one ran, else the CPU; then the host."""
    env: Environment = run.environment
    device = env.device if run.lane is Lane.MEASURED else None
    gpu = ""
    if device is not None:
        # The start of a UUID tells cards apart; the whole of it stands on the claim card.
        card = device.uuid if len(device.uuid) <= 16 else f"{device.uuid[:12]}…"
        parts = (
            f"driver {env.driver}" if env.driver else "",
            f"CUDA {env.cuda_runtime}" if env.cuda_runtime else "",
        )
        gpu = ", ".join(part for part in (*parts, card) if part)
    text = f"{device.name}, {device.arch}, {device.sm_count} SMs" if device else env.cpu or "unknown CPU"
    host = ", ".join(part for part in (env.host, env.os) if part)
    variables = ", ".join(f"{name}={value}" for name, value in env.variables)
    return Fact("Environment", text, tuple(part for part in (gpu, host, variables) if part))


def _libraries(run: Run) -> tuple[str, ...]:
    env = run.environment
    libraries = ", ".join(f"{name} {version}" for name, version in env.libraries)
    return tuple(part for part in (libraries, f"reprodb {env.reprodb}, Python {env.python}") if part)


def _canaries(canaries: Sequence[CanaryOutcome]) -> tuple[Fact, ...]:
    if not canaries:
        return ()
    held = sum(c.ok for c in canaries)
    failed = tuple(f"{c.name}: {c.sentence}" for c in canaries if not c.ok)
    return (Fact("Canaries", f"{held} of {len(canaries)} as expected", failed),)


def batches(comparisons: Sequence[Comparison]) -> tuple[Fact, ...]:
    """What follows the batch and promised nothing: said, though no row shows it. Equal sentences are one."""
    told: dict[str, list[str]] = {}
    for c in comparisons:
        if c.batch and not c.either.kernel.batch_invariant:
            told.setdefault(f"{c.kernel}: {batch_words(c.batch)}", []).append(c.either.profile)
    if not told:
        return ()
    kernels = joined(list(dict.fromkeys(text.partition(":")[0] for text in told)))
    lines = tuple(f"{text} ({joined(profiles)})" for text, profiles in told.items())
    return (Fact("Batches", f"the bits of {kernels} follow the batch: shape moved, nothing gates", lines),)


def _fatal(canaries: Sequence[CanaryOutcome]) -> tuple[CanaryOutcome, ...]:
    return tuple(c for c in canaries if not c.ok and c.fatal)


def _profiles(comparisons: Sequence[Comparison]) -> str:
    """`default → no-fmad` where every row has these two profiles on its sides."""
    pairs = {(c.baseline.profile, c.candidate.profile) for c in comparisons if c.baseline and c.candidate}
    before, after = pairs.pop() if len(pairs) == 1 else ("", "")
    return f"{before} → {after}" if before != after else ""


def _compared_with(diff: Diff) -> Fact:
    candidate = run_name(diff.candidate)
    more: tuple[str, ...] = ()
    if untouched(diff):
        text = "with nothing: each row waits for its first reference"
    elif diff.baseline is None:
        kinds: dict[str, int] = {}
        for c in diff.comparisons:
            kind = c.reference_kind or ("no reference" if c.baseline is None else "named")
            kinds[kind] = kinds.get(kind, 0) + 1
        if list(kinds) in (["accepted"], ["blessed"]):
            text = f"{candidate} with the {next(iter(kinds))} result of each row"
        else:
            text = f"{candidate} with the reference of each row"
            more = (", ".join(f"{kind}: {n:,}" for kind, n in sorted(kinds.items())),)
    elif diff.baseline.uid == diff.candidate.uid:
        builds = _profiles(diff.comparisons)
        text = f"{builds}, two builds inside {candidate}" if builds else f"two builds inside {candidate}"
        more = (f"started {when(diff.candidate.started_at)}",)
    else:
        builds = _profiles(diff.comparisons)
        text = f"{run_name(diff.baseline)} with {candidate}" + (f", {builds}" if builds else "")
        more = (f"started {when(diff.baseline.started_at)} and {when(diff.candidate.started_at)}",)
    rows = count(diff.compared, "row has bits on both sides", "rows have bits on both sides")
    code = f"exit code {diff.exit_code}: {EXITS.get(diff.exit_code, 'unknown')}"
    return Fact("Compared", text, (*more, rows, code))


def _few(reasons: tuple[str, ...]) -> tuple[str, ...]:
    """The first reasons and a count: each is told again where its row stands."""
    if len(reasons) <= REASONS:
        return reasons
    return (*reasons[: REASONS - 1], f"and {len(reasons) - REASONS + 1:,} more, each with its row below.")


def diff_top(diff: Diff) -> Top:
    counts, canaries = tally(diff.comparisons), diff.canaries or diff.candidate.canaries
    worst = worst_word(diff)
    both = [r for c in diff.comparisons for r in (c.baseline, c.candidate)]
    run = diff.candidate
    return Top(
        f"{run.suite} · {run_name(run)} · {when(run.started_at)}",
        worst.mark,
        worst.tone,
        verdict_alone(diff),
        tuple((VERDICTS[verdict], n) for verdict, n in counts),
        _few(tuple(sentence(reason) for reason in diff.reasons)),
        (
            _compared_with(diff),
            environment_fact(run),
            Fact("Toolchains", joined(list(toolchains_of(both))) or "none", _libraries(run)),
            *batches(diff.comparisons),
            *_canaries(canaries),
        ),
        unanswered(diff),
        _fatal(canaries),
    )


def _failure(result: Result) -> str:
    """`launch failed: python: exit code 3`: a status and the first line of what was said."""
    said = result.error or (result.build.log if result.build else "")
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    return ": ".join(part for part in (result.status.value.replace("_", " "), first) if part)


def run_top(run: Run, results: Sequence[Result]) -> Top:
    """The top of a run's page that was compared with nothing."""
    failed = [r for r in results if r.status is not Status.OK]
    done = len(results) - len(failed)
    words = f"{count(done, 'result')} recorded" + (f", {len(failed):,} without bits" if failed else "")
    open_end = "" if run.complete else " The run did not finish."
    blind = tuple(Step(f"{r.kernel.name}, {r.profile}: {_failure(r)}") for r in failed[:20])
    more = (Step(f"and {len(failed) - 20:,} more"),) if len(failed) > 20 else ()
    return Top(
        f"{run.suite} · {run_name(run)} · {when(run.started_at)}",
        "!" if failed or not run.complete else "○",
        "bad" if failed or not run.complete else "info",
        f"{words}; nothing compared.{open_end}",
        (),
        (),
        (
            Fact("Compared", "with nothing"),
            environment_fact(run),
            Fact("Toolchains", joined(list(toolchains_of(results))) or "none", _libraries(run)),
            *_canaries(run.canaries),
        ),
        (*blind, *more, *skips(run)),
        _fatal(run.canaries),
    )
