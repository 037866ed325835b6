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


def seconds(call: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


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
) -> Row:
    """Ours and the peer in turn, after one unmeasured call of each."""
    ours()
    peer()
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        mine.append(seconds(ours))
        theirs.append(seconds(peer))
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return Row(
        name, lane, Spread.of(mine), peer_name, Spread.of(theirs), Spread.of(ratios), goal, goal_ratio
    )  # fmt: skip
