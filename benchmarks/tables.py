"""The committed results as Markdown, between marks of docs/performance.md: `python -m benchmarks.tables`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Spread, figure, goal_words, ratio_words

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
_MARKED = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _row(record: dict[str, Any]) -> Row:
    spreads = {key: Spread(**record[key]) for key in ("ours", "peer", "ratio")}
    return Row(**{key: value for key, value in record.items() if key != "met"} | spreads)


def table(group: str) -> str:
    """A group's rows, with where they ran above them."""
    record = json.loads((RESULTS / f"{group}.json").read_text())
    lines = [
        f"On {_where(record['environment'])}; medians, with the smallest and the largest ratio:",
        "",
        "| what | lane | ours | peer | theirs | ratio | goal |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in map(_row, record["rows"]):
        cells = (
            row.name,
            row.lane if row.lane != "-" else "",
            figure(row.ours.median, row.unit),
            row.peer_name,
            figure(row.peer.median, row.unit),
            ratio_words(row),
            goal_words(row, "**missed**"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _where(environment: dict[str, Any]) -> str:
    device, driver = environment.get("device"), environment.get("driver")
    gpu = f"{device['name']}, driver {driver}, " if device else ""
    return f"{gpu}{environment['cpu']}, Python {environment['python']}"


def filled(page: str) -> str:
    """The page with every marked place holding its group's table."""
    return _MARKED.sub(lambda mark: mark[1] + table(mark[2]) + mark[3], page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
