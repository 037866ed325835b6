"""What fuzzing did, as JSON: one document a process, and all those of a folder added up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.loop import Tally


@dataclass(frozen=True, slots=True)
class Process:
    """What one process was asked: its seed, since when, and which targets it cannot run, with the reason."""

    seed: int
    absent: Mapping[str, str]
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def document(tally: Tally, process: Process) -> dict[str, Any]:
    return {
        "seeds": [process.seed],
        "seconds": round(process.seconds, 1),
        "cpu_seconds": round(process.cpu_seconds, 1),
        "total": tally.total,
        "cases": dict(sorted(tally.cases.items())),
        "taken": dict(sorted(tally.taken.items())),
        "refused_at": {name: sorted(places) for name, places in sorted(tally.places.items())},
        "absent": dict(process.absent),
        "findings": sorted(tally.findings),
    }


def merged(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All of them as one: cases and CPU seconds added up, wall-clock seconds of the longest."""
    whole: dict[str, Any] = {
        "seeds": [], "seconds": 0.0, "cpu_seconds": 0.0, "total": 0,
        "cases": {}, "taken": {}, "refused_at": {}, "absent": {}, "findings": [],
    }  # fmt: skip
    for one in documents:
        whole["seeds"] += one["seeds"]
        whole["seconds"] = max(whole["seconds"], one["seconds"])
        whole["cpu_seconds"] = round(whole["cpu_seconds"] + one["cpu_seconds"], 1)
        whole["total"] += one["total"]
        for key in ("cases", "taken"):
            for name, count in one[key].items():
                whole[key][name] = whole[key].get(name, 0) + count
        for name, places in one["refused_at"].items():
            whole["refused_at"][name] = sorted({*whole["refused_at"].get(name, ()), *places})
        whole["absent"] |= one["absent"]
        whole["findings"] = sorted({*whole["findings"], *one["findings"]})
    return whole


def merge_folder(folder: Path) -> dict[str, Any]:
    """Adds up every `counts-SEED.json` of a folder, and writes `counts.json` beside them."""
    files = sorted(folder.glob("counts-*.json"))
    whole = merged(json.loads(file.read_text(encoding="utf-8")) for file in files)
    write(whole, folder / "counts.json")
    return whole


def write(counts: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


def table(counts: Mapping[str, Any]) -> str:
    """A line a target: cases, the share taken, and how many places of the code refused one."""
    lines = [f"{'target':<16} {'cases':>12} {'taken':>6} {'places':>6}"]
    for name, count in sorted(counts["cases"].items(), key=lambda item: -item[1]):
        places = len(counts["refused_at"].get(name, ()))
        lines.append(f"{name:<16} {count:>12,} {counts['taken'][name] / count:>6.1%} {places:>6}")
    rate = counts["total"] / max(counts["cpu_seconds"], 0.1)
    lines.append(f"{counts['total']:,} cases, {rate:,.0f} a CPU second; {len(counts['findings'])} findings")
    lines += [f"not run here: {name}: {reason}" for name, reason in counts["absent"].items()]
    return "\n".join((*lines, *counts["findings"], ""))
