"""Fuzzing for a time, in one process or in several with a seed each."""

from __future__ import annotations

import multiprocessing
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fuzz import counts
from tests.fuzz.loop import Tally, fuzz, keep
from tests.fuzz.targets import targets, unusable

MEMORY = 8 << 30  # of address space a process: a case that asks for more is a finding, and costs no machine
ROUND_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """`names` are parts of the targets' names, none for all of them."""

    names: tuple[str, ...]
    seconds: float
    seed: int
    out: Path


def one_process(wanted: Wanted) -> None:
    """Fuzz in rounds, so that counts and findings of a run that is cut off are on disk."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    named = [t for t in targets() if not wanted.names or any(name in t.name for name in wanted.names)]
    absent = {target.name: reason for target in named if (reason := unusable(target)) is not None}
    chosen = [target for target in named if target.name not in absent]
    tally, began, used, round_ = Tally(), time.monotonic(), time.process_time(), 0
    parent = multiprocessing.parent_process()
    while (left := wanted.seconds - (time.monotonic() - began)) > 0 and (parent is None or parent.is_alive()):
        if chosen:
            seed = wanted.seed * 1_000_003 + round_
            fuzz(chosen, seed, seconds=min(left, ROUND_SECONDS), tally=tally)
        round_ += 1
        if tally.findings:
            keep(tally, wanted.out)
        process = counts.Process(wanted.seed, absent, time.monotonic() - began, time.process_time() - used)
        counts.write(counts.document(tally, process), wanted.out / f"counts-{wanted.seed}.json")
        if not chosen:
            return


def several_processes(wanted: Wanted, number: int) -> list[str]:
    """One process a seed. Returns how those ended that did not end by themselves."""
    new = multiprocessing.get_context("spawn")
    parts = [replace(wanted, seed=wanted.seed + i) for i in range(number)]
    processes = [new.Process(target=one_process, args=(part,)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [
        f"the process of seed {part.seed} ended with {process.exitcode}"
        for part, process in zip(parts, processes, strict=True)
        if process.exitcode
    ]
