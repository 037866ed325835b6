"""Geometry of the inline SVG charts: a map of moved elements, and histograms of patterns on one ULP axis."""

from collections.abc import Iterable
from dataclasses import dataclass

from reprodb.findings import Support

# A map has at most this many cells; larger buffers share a cell among neighbours.
MAP_CELLS = 2048
# A histogram has at most this many bars a side; a wider spread is binned.
BINS = 61
# A histogram's axis in drawing units: every chart of a page has this scale, so that its labels can be read.
AXIS = 360
# A character of a label, in drawing units.
CHARACTER = 6
# The widest that a bar and its gap may be, in drawing units.
PITCH = 22


@dataclass(frozen=True, slots=True)
class ElementMap:
    """A grid of cells, one an element or a run of `step` elements; `path` draws the cells with a move."""

    columns: int
    rows: int
    step: int  # elements a cell
    cells: int
    path: str  # of squares in cell units
    last: int  # cells in the last row


def element_map(moved: Iterable[int], of: int) -> ElementMap:
    """The map of `of` elements in which flat indices `moved` differ; wide rather than tall."""
    step = -(-of // MAP_CELLS)
    cells = max(1, -(-of // step))
    columns = cells if cells <= 32 else 32 if cells <= 256 else 64
    rows = -(-cells // columns)
    marked = sorted({index // step for index in moved})
    path = "".join(f"M{c % columns} {c // columns}h1v1h-1z" for c in marked)
    return ElementMap(columns, rows, step, cells, path, cells - (rows - 1) * columns)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its place on the axis in bins and its height as a share of the tallest."""

    place: int
    height: float  # 0 … 1
    count: int
    label: str  # the pattern, or how many patterns share the bar


@dataclass(frozen=True, slots=True)
class Histogram:
    """Patterns over a ULP axis from `low` to `high`; several sides share the axis and the scale."""

    low: int
    high: int
    width: int  # ULP a bin
    bins: int
    sides: tuple[tuple[Bar, ...], ...]
    unplaced: tuple[int, ...]  # a side: patterns that have no place on the axis (NaN, several elements)
    tallest: int  # repetitions of the tallest bar of all sides

    @property
    def pitch(self) -> float:
        """Drawing units from a bar to the next."""
        return min(PITCH, AXIS / self.bins)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """A few axis labels: place in bins (at the middle of a bin) and ULP from the lowest pattern."""
        room = self.bins * self.pitch / (len(f"{self.bins * self.width:,}") + 2)
        wanted = min(self.bins, 5 if room > 5 * CHARACTER else 3 if room > 3 * CHARACTER else 2)
        places = sorted({round(i * (self.bins - 1) / max(1, wanted - 1)) for i in range(wanted)})
        return tuple((p + 0.5, f"+{p * self.width:,}" if p else "0") for p in places)


def histogram(*sides: Support) -> Histogram | None:
    """Histograms of supports over one axis; None where no pattern has a place on it."""
    placed = [[(ulp, n, bits) for bits, n, ulp in side.patterns if ulp is not None] for side in sides]
    every = [ulp for side in placed for ulp, _, _ in side]
    if not every:
        return None
    low, high = min(every), max(every)
    width = max(1, -(-(high - low + 1) // BINS))
    bins = (high - low) // width + 1
    grouped = [_binned(side, low, width) for side in placed]
    tallest = max(n for side in grouped for n, _ in side.values())
    bars = tuple(
        tuple(Bar(place, n / tallest, n, label) for place, (n, label) in sorted(side.items()))
        for side in grouped
    )
    unplaced = tuple(len(s.patterns) - len(p) for s, p in zip(sides, placed, strict=True))
    return Histogram(low, high, width, bins, bars, unplaced, tallest)


def _binned(side: list[tuple[int, int, str]], low: int, width: int) -> dict[int, tuple[int, str]]:
    bins: dict[int, list[tuple[int, str]]] = {}
    for ulp, n, bits in side:
        bins.setdefault((ulp - low) // width, []).append((n, bits))
    return {
        place: (sum(n for n, _ in found), found[0][1] if len(found) == 1 else f"{len(found)} patterns")
        for place, found in bins.items()
    }
