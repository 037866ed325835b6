"""Run the benchmarks, print their table, and write each group with its environment to benchmarks/results/."""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import metadata

from rich.console import Console
from rich.table import Table

from benchmarks import compare, hashing, history, model, nightly, startup
from benchmarks.harness import Row, Spread, figure, goal_words, ratio_words, scale_of
from benchmarks.tables import RESULTS
from reprodb.codec import encode
from reprodb.domain import Environment
from reprodb.environment import dotted, driver_version, find_gpus, host_environment

WITHOUT_GPU: dict[str, Callable[[], list[Row]]] = {
    "startup": startup.rows,
    "compare": compare.rows,
    "hashing": hashing.rows,
    "model": model.rows,
    "nightly": nightly.rows,
    "history": history.rows,
}


def _gpu() -> dict[str, Callable[[], list[Row]]]:
    from benchmarks import gpu, published, reduce

    return {"gpu": gpu.rows, "gpu-reduce": reduce.rows, "gpu-nightly": published.rows}


def _environment(*, gpu: bool) -> Environment:
    """Where the figures come from; with the device, and the compilers and libraries of the peers."""
    found = host_environment()
    if not gpu:
        return found
    import cupy

    gpus = find_gpus()
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    peers = (("cupy", cupy.__version__), *_versions("nvidia-cuda-cccl", "cuda-cccl"))
    return replace(
        found,
        device=gpus.devices[0],
        driver=driver_version(),
        cuda_driver=gpus.cuda_driver,
        cuda_runtime=dotted(runtime),
        libraries=tuple(sorted({*found.libraries, *peers})),
    )


def _versions(*names: str) -> list[tuple[str, str]]:
    found = []
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return found


def _time(spread: Spread, unit: str) -> str:
    """The median with its range, in one unit."""
    if unit != "s":
        return figure(spread.median, unit)
    scale, _ = scale_of(spread.median)
    return f"{figure(spread.median)} ({spread.low * scale:.3g}–{spread.high * scale:.3g})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="which groups; all by default")
    parser.add_argument("--gpu", action="store_true", help="the groups that need a GPU")
    options = parser.parse_args()
    groups = _gpu() if options.gpu else WITHOUT_GPU
    unknown = set(options.names) - set(groups)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(groups)}")
    found = {name: run() for name, run in groups.items() if name in (options.names or groups)}
    table = Table("benchmark", "lane", "ours: median (min–max)", "peer", "peer: median", "ratio", "goal")
    for row in (row for rows in found.values() for row in rows):
        table.add_row(
            row.name,
            row.lane,
            _time(row.ours, row.unit),
            row.peer_name,
            _time(row.peer, row.unit),
            ratio_words(row),
            goal_words(row, "MISSED") or "–",
        )
    Console(width=180 if not sys.stdout.isatty() else None).print(table)
    RESULTS.mkdir(exist_ok=True)
    for name, rows in found.items():
        record = {
            "environment": encode(_environment(gpu=options.gpu)),
            "rows": [asdict(row) | {"met": row.met} for row in rows],
        }
        (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
