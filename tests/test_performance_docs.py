"""docs/performance.md shows the committed results, all of them, as they are."""

from __future__ import annotations

import re

from benchmarks.harness import figure
from benchmarks.tables import PAGE, RESULTS, filled


def test_the_page_holds_the_committed_results() -> None:
    page = PAGE.read_text()
    assert filled(page) == page


def test_every_group_has_its_place() -> None:
    places = re.findall(r"<!-- results: ([\w-]+) -->", PAGE.read_text())
    assert sorted(places) == sorted(path.stem for path in RESULTS.glob("*.json"))


def test_figures_read_well() -> None:
    assert [figure(v) for v in (22.71, 0.00611, 0.0000235)] == ["22.7 s", "6.11 ms", "23.5 µs"]
    assert figure(216.4, "bytes") == "216 bytes"
