"""Time two callables in turn and report the ratio pair by pair, so that drift of the machine cancels."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of a list of figures."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, figures: list[float]) -> "Spread":
        return cls(min(figures), statistics.median(figures), max(figures))


@dataclass(frozen=True, slots=True)
class Row:
    """One benchmark: seconds of ours and of the peer, their ratio, and the goal where there is one.

    `goal` is the most seconds (or `unit`) allowed for ours, `goal_ratio` the highest ratio, where one is set.
    """

    name: str
    lane: str  # modelled | measured | -
    ours: Spread
    peer_name: str
    peer: Spread
    ratio: Spread
    goal: float | None = None
    goal_ratio: float | None = None
    unit: str = "s"

    @property
    def met(self) -> bool | None:
        """Whether every goal that is set was met; None without one."""
        if self.goal is None and self.goal_ratio is None:
            return None
        within = self.goal is None or self.ours.median <= self.goal
        return within and (self.goal_ratio is None or self.ratio.median <= self.goal_ratio)


def ratios(mine: list[float], theirs: list[float]) -> Spread:
    """Ours by theirs, pair by pair as they were timed."""
    return Spread.of([a / b for a, b in zip(mine, theirs, strict=True)])


def scale_of(value: float) -> tuple[float, str]:
    """What seconds are multiplied by, and the unit they are then in, to read best: `0.0048` as `4.8 ms`."""
    return (1.0, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")


def figure(value: float, unit: str = "s") -> str:
    """Three digits in the unit that reads best."""
    if unit != "s":
        return f"{value:,.0f} {unit}"
    scale, name = scale_of(value)
    return f"{value * scale:.3g} {name}"


def ratio_words(row: Row) -> str:
    return f"{row.ratio.median:.2f} ({row.ratio.low:.2f}–{row.ratio.high:.2f})"


def goal_words(row: Row, missed: str) -> str:
    """What was wanted and whether it was reached, `missed` where not; empty without a goal."""
    wanted = [f"≤ {figure(row.goal, row.unit)}"] if row.goal is not None else []
    wanted += [f"ratio ≤ {row.goal_ratio}"] if row.goal_ratio is not None else []
    return f"{' and '.join(wanted)}: {'met' if row.met else missed}" if wanted else ""


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, on the wall unless another clock is given."""
    start = clock()
    call()
    return clock() - start


def pair(
    name: str,
    ours: Callable[[], object],
    peer_name: str,
    peer: Callable[[], object],
    *,
    lane: str,
    rounds: int = 9,
    goal: float | None = None,
    goal_ratio: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Row:
    """Ours and the peer in turn, after one unmeasured call of each."""
    ours()
    peer()
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        mine.append(seconds(ours, clock))
        theirs.append(seconds(peer, clock))
    return Row(
        name, lane, Spread.of(mine), peer_name, Spread.of(theirs), ratios(mine, theirs), goal, goal_ratio
    )  # fmt: skip
