"""`python -m tests.fuzz --seconds 600 --seed 7 --processes 4 --out FOLDER [TARGET…]`: fuzz, count, keep."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz import counts
from tests.fuzz.running import Wanted, several_processes


def arguments() -> tuple[Wanted, int]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="only these (parts of names)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first process; the others count on from it"
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    given = parser.parse_args()
    return Wanted(tuple(given.targets), given.seconds, given.seed, given.out), given.processes


def main() -> int:
    """0 where nothing was found, 1 for findings, 3 where a process died or a target cannot run here."""
    wanted, processes = arguments()
    died = several_processes(wanted, processes)
    whole = counts.merge_folder(wanted.out)
    sys.stdout.write(counts.table(whole) + "".join(f"{said}\n" for said in died))
    if whole["findings"]:
        return 1
    return 3 if died or whole["absent"] else 0


if __name__ == "__main__":
    sys.exit(main())
