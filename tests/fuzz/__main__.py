"""`python -m tests.fuzz --seconds 600 --seed 7 --out FOLDER [TARGET…]`: fuzz, count, keep what is found."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.fuzz.loop import Tally, fuzz, keep
from tests.fuzz.targets import targets


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="only these (parts of names)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    wanted = parser.parse_args()
    chosen = [t for t in targets() if not wanted.targets or any(w in t.name for w in wanted.targets)]
    tally, began, round_ = Tally(), time.monotonic(), 0
    # In rounds, so that counts and findings of a run that is cut off are on disk.
    while (left := wanted.seconds - (time.monotonic() - began)) > 0:
        fuzz(chosen, wanted.seed * 1_000_003 + round_, seconds=min(left, 20.0), tally=tally)
        round_ += 1
        if tally.findings:
            keep(tally, wanted.out)
        wanted.out.mkdir(parents=True, exist_ok=True)
        counts = {"seed": wanted.seed, "seconds": round(time.monotonic() - began), "total": tally.total,
                  "cases": tally.cases, "taken": tally.taken, "findings": sorted(tally.findings)}  # fmt: skip
        (wanted.out / f"counts-{wanted.seed}.json").write_text(json.dumps(counts, indent=1))
    sys.stdout.write(
        f"{tally.total:,} cases in {time.monotonic() - began:.0f} s, {len(tally.findings)} findings\n"
    )
    for finding, _ in tally.findings.values():
        sys.stdout.write(finding + "\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
