"""What a run says while it goes: a bar on a terminal, plain lines in a pipe, nothing when quiet."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol, Self

from reprodb.domain import Artifact, Result, Status

if TYPE_CHECKING:
    from reprodb.campaign import Plan, PlannedBuild


class Listener(Protocol):
    """Hears of a run as it goes. A context manager, so that a bar is taken down whatever happens."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def said(self, sentence: str) -> None:
        """Something that a person should know: which lane was taken and why, a skipped profile."""

    def stage(self, name: str) -> None:
        """The next part of the run begins."""

    def planned(self, plan: Plan) -> None:
        """The work is known: how many results will come."""

    def built(self, build: PlannedBuild, artifact: Artifact) -> None:
        """An artifact is there."""

    def finished(self, result: Result) -> None:
        """A result is recorded."""


def describe(result: Result) -> str:
    """One line about a result: `sum_squares_tree ramp1000-4194915 default: 1 pattern of 100, 0x4b25426d`."""
    under = "" if result.condition == "plain" else f" [{result.condition}]"
    name = f"{result.kernel.name} {result.case.name} {result.profile}{under}"
    if result.status is not Status.OK:
        first = next((line for line in result.error.splitlines() if line.strip()), "no reason given")
        from reprodb.render.text import visible

        return f"{name}: {result.status.value.replace('_', ' ')}: {visible(first.strip(), 160)}"
    output = (result.results or result.outputs)[0] if result.outputs else None
    if output is None:
        return f"{name}: nothing recorded"
    patterns = "1 pattern" if output.distinct == 1 else f"{output.distinct} patterns"
    bits = output.first_bits or output.sha256[:12]
    return f"{name}: {patterns} of {len(output.sequence)}, {bits}, {result.seconds:.2f} s"


def listener(
    *, quiet: bool, stream: IO[str] | None = None, problems: bool = False, verbose: bool = False
) -> Listener:
    """The listener for a stream, standard error by default: standard output holds the answer alone.

    `problems` leaves out results that went well, `verbose` adds a line an artifact.
    """
    out = stream or sys.stderr
    if quiet:
        return Silent()
    if problems or verbose or not out.isatty():
        return Lines(out, problems=problems, verbose=verbose)
    return Bar(out)


class Silent:
    """Says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def said(self, sentence: str) -> None:
        return

    def stage(self, name: str) -> None:
        return

    def planned(self, plan: Plan) -> None:
        return

    def built(self, build: PlannedBuild, artifact: Artifact) -> None:
        return

    def finished(self, result: Result) -> None:
        return


class Lines(Silent):
    """One plain line a result."""

    def __init__(self, stream: IO[str], *, problems: bool = False, verbose: bool = False) -> None:
        self._stream = stream
        self._problems = problems
        self._verbose = verbose
        self._total = 0
        self._done = 0

    def said(self, sentence: str) -> None:
        print(sentence, file=self._stream, flush=True)

    def planned(self, plan: Plan) -> None:
        self._total, self._done = len(plan.rows), 0

    def built(self, build: PlannedBuild, artifact: Artifact) -> None:
        if self._verbose:
            how = "from the store" if artifact.cached else artifact.build.status.value.replace("_", " ")
            self.said(
                f"{build.kernel.name} {build.profile.name} {build.arch}: {build.toolchain.label}, {how}"
            )

    def finished(self, result: Result) -> None:
        self._done += 1
        if not self._problems or result.status is not Status.OK:
            self.said(f"{self._done}/{self._total} {describe(result)}")


class Both:
    """Two listeners that hear the same."""

    def __init__(self, first: Listener, second: Listener) -> None:
        self._pair = (first, second)

    def __enter__(self) -> Self:
        for each in self._pair:
            each.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._pair:
            each.__exit__(kind, error, trace)

    def said(self, sentence: str) -> None:
        for each in self._pair:
            each.said(sentence)

    def stage(self, name: str) -> None:
        for each in self._pair:
            each.stage(name)

    def planned(self, plan: Plan) -> None:
        for each in self._pair:
            each.planned(plan)

    def built(self, build: PlannedBuild, artifact: Artifact) -> None:
        for each in self._pair:
            each.built(build, artifact)

    def finished(self, result: Result) -> None:
        for each in self._pair:
            each.finished(result)


class Bar(Silent):
    """A progress bar with the last result beside it; sentences and failures stay above it."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        # What kernels and cases are called is text from outside: no column reads markup.
        self._bar = Progress(
            TextColumn("{task.fields[stage]}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[last]}", markup=False),
            console=Console(file=stream, markup=False, emoji=False, highlight=False),
            transient=True,
        )
        self._task: Any = None
        self._built = 0

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task("", total=None, stage="preparing", last="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def said(self, sentence: str) -> None:
        self._bar.console.print(sentence)

    def planned(self, plan: Plan) -> None:
        self._bar.update(self._task, total=len(plan.rows), completed=0, stage="building")

    def built(self, build: PlannedBuild, artifact: Artifact) -> None:
        self._built += 1
        self._bar.update(self._task, last=f"built {build.kernel.name} {build.profile.name}")

    def finished(self, result: Result) -> None:
        self._bar.update(self._task, advance=1, stage="executing", last=describe(result))
        if result.status is not Status.OK:
            self.said(describe(result))
