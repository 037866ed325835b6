"""The committed results as Markdown, between marks of docs/performance.md: `python -m benchmarks.tables`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
_MARKED = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def figure(value: float, unit: str = "s") -> str:
    """Three digits in the unit that reads best: `0.0048` seconds are `4.8 ms`."""
    if unit != "s":
        return f"{value:,.0f} {unit}"
    scale, name = (1.0, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")
    return f"{value * scale:.3g} {name}"


def _goal(row: dict[str, Any]) -> str:
    goals = []
    if row["goal"] is not None:
        goals.append(f"≤ {figure(row['goal'], row.get('unit', 's'))}")
    if row["goal_ratio"] is not None:
        goals.append(f"ratio ≤ {row['goal_ratio']}")
    return f"{' and '.join(goals)}: {'met' if row['met'] else '**missed**'}" if goals else ""


def table(group: str) -> str:
    """A group's rows, with where they ran above them."""
    record = json.loads((RESULTS / f"{group}.json").read_text())
    lines = [
        f"On {_where(record['environment'])}; medians, with the smallest and the largest ratio:",
        "",
        "| what | lane | ours | peer | theirs | ratio | goal |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in record["rows"]:
        unit, ratio = row.get("unit", "s"), row["ratio"]
        cells = (
            row["name"],
            row["lane"] if row["lane"] != "-" else "",
            figure(row["ours"]["median"], unit),
            row["peer_name"],
            figure(row["peer"]["median"], unit),
            f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})",
            _goal(row),
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
