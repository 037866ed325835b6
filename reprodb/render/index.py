"""The front page of a site: the newest verdict, every run, every kernel."""

from collections.abc import Sequence
from dataclasses import dataclass

from reprodb.domain import Accuracy, Result, Run, Status
from reprodb.dossier import Dossier
from reprodb.findings import Diff
from reprodb.render.text import count, sentence, when
from reprodb.render.timeline import STEPS, moments
from reprodb.render.words import headline, run_name, tally, verdict_alone, worst_word

# Runs that the front page lists openly: a fortnight of nights. Older ones are folded.
RECENT = 14


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run as the index lists it; what a site keeps of a run whose page is up to date."""

    uid: str
    name: str
    path: str
    started: str
    lane: str
    where: str
    mark: str
    tone: str
    headline: str
    exit_code: int | None
    counts: tuple[tuple[str, int], ...]  # verdict, rows
    kernels: tuple[str, ...]
    code: tuple[str, ...] = ()  # artifacts whose whole texts its page links to
    verdict: str = ""  # the headline without its counts


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """One kernel as the index lists it."""

    name: str
    path: str
    determinism: str
    operation: str
    results: int
    steps: tuple[tuple[str, int], ...]
    last_moved: str  # the newest run in which its bits moved, with what changed then
    accuracy: str = "unknown"  # the worst of its newest run


@dataclass(frozen=True, slots=True)
class UpgradeEntry:
    """The newest dossier of a suite on one lane and GPU."""

    path: str
    steps: tuple[str, ...]
    where: str
    run: str
    mark: str
    tone: str
    headline: str
    code: tuple[str, ...] = ()


def run_entry(run: Run, results: Sequence[Result], diff: Diff | None, path: str) -> RunEntry:
    failed = sum(r.status is not Status.OK for r in results)
    if diff is not None:
        word, words = worst_word(diff), headline(diff)
        mark, tone = word.mark, word.tone
    else:
        mark, tone = ("!", "bad") if failed or not run.complete else ("○", "info")
        words = f"{count(len(results), 'result')} recorded" + (f", {failed:,} without bits" if failed else "")
        words += "" if run.complete else "; the run did not finish"
    device = run.environment.device
    return RunEntry(
        run.uid,
        run_name(run),
        path,
        when(run.started_at),
        run.lane.value,
        device.name if device else run.environment.cpu,
        mark,
        tone,
        words,
        diff.exit_code if diff else run.exit_code,
        tuple((verdict.value, n) for verdict, n in tally(diff.comparisons)) if diff else (),
        tuple(sorted({r.kernel.name for r in results})),
        verdict=verdict_alone(diff) if diff else words,
    )


def kernel_entry(name: str, entries: Sequence[tuple[Run, Result]], path: str) -> KernelEntry:
    """A kernel with its history, the newest first."""
    found = moments(entries)
    steps = [m.step for m in found]
    moved = next((m for m in found if m.step in ("lost", "moved", "latent")), None)
    last = ""
    if moved is not None:
        last = f"{run_name(moved.run)}, {moved.result.profile}: {moved.step}"
        last += f" ({'; '.join(moved.changed)})" if moved.changed else ""
    kernel = found[0].result.kernel
    return KernelEntry(
        name,
        path,
        kernel.determinism.value,
        kernel.operation,
        len(found),
        tuple((step, steps.count(step)) for step in STEPS if step in steps),
        last,
        _worst_accuracy(entries),
    )


def _worst_accuracy(entries: Sequence[tuple[Run, Result]]) -> str:
    newest = entries[0][0].uid
    seen = {result.accuracy.verdict for run, result in entries if run.uid == newest}
    return next(a for a in (Accuracy.OUTSIDE, Accuracy.UNKNOWN, Accuracy.OK) if a in seen).value


def upgrade_entry(value: Dossier, path: str) -> UpgradeEntry:
    run, word = value.candidate, worst_word(value.diff)
    device = run.environment.device
    return UpgradeEntry(
        path,
        value.steps,
        f"{run.suite}, {run.lane.value} on {device.name if device else run.environment.cpu}",
        run_name(run),
        word.mark,
        word.tone,
        sentence(value.verdict),
    )


@dataclass(frozen=True, slots=True)
class IndexPage:
    newest: RunEntry | None
    runs: tuple[RunEntry, ...]  # the newest
    older: tuple[RunEntry, ...]  # folded
    kernels: tuple[KernelEntry, ...]
    upgrades: tuple[UpgradeEntry, ...]


def index_page(
    runs: Sequence[RunEntry], kernels: Sequence[KernelEntry], upgrades: Sequence[UpgradeEntry]
) -> IndexPage:
    """The view of the front page; runs are given newest first. A compared run leads where there is one."""
    newest = next((run for run in runs if run.counts), runs[0] if runs else None)
    return IndexPage(newest, tuple(runs[:RECENT]), tuple(runs[RECENT:]), tuple(kernels), tuple(upgrades))
