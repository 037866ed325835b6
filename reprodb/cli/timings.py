"""Where a run's time went: seconds of its stages on the clock, and what its workers did meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from reprodb.cli.progress import Listener
from reprodb.domain import Artifact, Result
from reprodb.render.text import count

if TYPE_CHECKING:
    from reprodb.campaign import Plan, PlannedBuild

Clock = Callable[[], float]


class Timed:
    """A listener that passes everything on to another one and keeps the time of each stage."""

    def __init__(self, listener: Listener, clock: Clock = time.perf_counter) -> None:
        self._listener = listener
        self._clock = clock
        self._began = clock()
        self._stages: list[tuple[str, float]] = [("start", self._began)]
        self._executing = 0.0
        self._results = self._compiled = self._reused = 0

    def __enter__(self) -> Self:
        self._listener.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.__exit__(kind, error, trace)

    def said(self, sentence: str) -> None:
        self._listener.said(sentence)

    def stage(self, name: str) -> None:
        self._stages.append((name, self._clock()))
        self._listener.stage(name)

    def planned(self, plan: Plan) -> None:
        self._listener.planned(plan)

    def built(self, build: PlannedBuild, artifact: Artifact) -> None:
        self._reused += artifact.cached
        self._compiled += not artifact.cached
        self._listener.built(build, artifact)

    def finished(self, result: Result) -> None:
        self._results += 1
        self._executing += result.seconds
        self._listener.finished(result)

    def lines(self) -> list[str]:
        """A line a stage, in order, and what was done in the workers; the last stage ends now."""
        ends = [began for _, began in self._stages[1:]] + [self._clock()]
        total = ends[-1] - self._began
        spent = [(name, end - began) for (name, began), end in zip(self._stages, ends, strict=True)]
        told = [f"{name:<12}{seconds:8.2f} s{_share(seconds, total)}" for name, seconds in spent]
        return [
            *told,
            f"{'in all':<12}{total:8.2f} s",
            f"{count(self._results, 'result')}: {self._executing:.2f} s in workers; "
            f"{count(self._compiled, 'artifact')} compiled, {self._reused} reused",
        ]


def _share(seconds: float, total: float) -> str:
    return f"{100 * seconds / total:5.0f} %" if total > 0 else ""
