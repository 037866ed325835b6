"""Honest bounds: what n equal repetitions say about how often the bits may still flip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log10

from reprodb.domain import Lane, Result, Run, Status


def flip_rate_bound(repetitions: int, confidence: float = 0.95) -> float:
    """The largest flip rate that still shows 0 flips in n repetitions with probability 1 - confidence.

    Exact for independent repetitions, 1 - (1 - confidence)**(1/n); close to 3/n at 95 %.
    """
    return float(1 - (1 - confidence) ** (1 / repetitions))


def _percent(rate: float) -> str:
    """A rate rounded up to two digits, so that the statement stays true: `3 %`, `0.3 %`, `14 %`."""
    percent = 100 * rate
    unit = 10.0 ** (floor(log10(percent)) - 1)
    return f"{ceil(round(percent / unit, 9)) * unit:.10g} %"


def bound_phrase(repetitions: int) -> str:
    """`0 of 100 bounds the rate below 3 % (95 %)`."""
    return f"0 of {repetitions:,} bounds the rate below {_percent(flip_rate_bound(repetitions))} (95 %)"


@dataclass(frozen=True, slots=True)
class Pool:
    """Repetitions of several runs taken together: only those of one pinned tuple on one GPU model."""

    repetitions: int
    flips: int  # repetitions that differ from the most frequent pattern of all
    runs: int
    devices: int

    @property
    def phrase(self) -> str:
        where = f"{self.runs:,} run{'s' * (self.runs != 1)}, {self.devices} device{'s' * (self.devices != 1)}"
        if self.flips:
            return f"{self.flips} of {self.repetitions:,} over {where}"
        return f"{bound_phrase(self.repetitions)} over {where}"


def _poolable(run: Run, result: Result) -> tuple[object, ...] | None:
    """What must be equal before repetitions may be counted together; None where it is not known."""
    device = run.environment.device
    code = result.build.code if result.build else None
    if run.lane is not Lane.MEASURED or result.status is not Status.OK or device is None:
        return None
    if code is None or code.sass is None or not result.input_digest:
        return None
    return (
        result.kernel.name,
        result.case.name,
        result.condition,
        result.input_digest,
        tuple((s.grid, s.per_batch, s.block, s.shared) for s in result.kernel.stages),
        result.kernel.composition,
        code.sass,
        code.constants,
        device.name,
    )


def pool(newest: tuple[Run, Result], earlier: Iterable[tuple[Run, Result]]) -> Pool | None:
    """The repetitions of a result and of earlier ones of the same code, case, input and GPU model.

    None on the modelled lane, without a digest of the code, and without a guaranteed output.
    """
    key = _poolable(*newest)
    if key is None or not any(o.determinism.guaranteed for o in newest[1].outputs):
        return None
    alike = [newest, *(pair for pair in earlier if _poolable(*pair) == key and pair[0].uid != newest[0].uid)]
    flips = 0
    for name in (o.name for o in newest[1].outputs if o.determinism.guaranteed):
        counts: dict[str, int] = {}
        for _, result in alike:
            for output in result.outputs:
                if output.name == name:
                    for pattern in output.patterns:
                        counts[pattern.sha256] = counts.get(pattern.sha256, 0) + pattern.count
        flips = max(flips, sum(counts.values()) - max(counts.values()))
    uuids = {run.environment.device.uuid for run, _ in alike if run.environment.device}
    return Pool(sum(r.repetitions for _, r in alike), flips, len({run.uid for run, _ in alike}), len(uuids))
