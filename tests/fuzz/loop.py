"""The loop: case after case, each with a limit of CPU time, findings kept as files."""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import Target

CASE_SECONDS = 10.0  # of CPU: what takes longer hangs


class Hang(BaseException):
    """A case ran past its limit."""


@dataclass(slots=True)
class Tally:
    """What was done: cases, those taken and not refused, and findings by where they were raised."""

    cases: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    findings: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.cases.values())


@contextmanager
def limited() -> Iterator[None]:
    def hang(number: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, hang)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def attempt(target: Target, data: bytes) -> tuple[bool, str | None]:
    """Whether the case was taken; and where and what was raised that should not be."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CASE_SECONDS)
        target.read(data)
    except target.refusals:
        return False, None
    except Hang:
        return False, "ran past its limit"
    except MemoryError:
        return False, "out of memory"
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/reprodb/" in f.filename]
        last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
        return (
            False,
            f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno} ({last.name}): {error}"[
                :300
            ],
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return True, None


def fuzz(
    chosen: Sequence[Target],
    seed: int,
    *,
    cases: int | None = None,
    seconds: float | None = None,
    tally: Tally,
) -> None:
    """Cases until their number or the time is used up; what is found goes into `tally`."""
    rng = random.Random(seed)
    seeds = {target.name: tuple(target.seeds()) for target in chosen}
    assert all(seeds.values()), "a target has no valid text to begin with"
    weights = [target.weight for target in chosen]
    deadline = None if seconds is None else time.monotonic() + seconds
    done = 0
    with limited():
        while (cases is None or done < cases) and (deadline is None or time.monotonic() < deadline):
            for target in rng.choices(chosen, weights, k=64):
                data = mutated(rng, seeds[target.name])
                taken, finding = attempt(target, data)
                tally.cases[target.name] = tally.cases.get(target.name, 0) + 1
                tally.taken[target.name] = tally.taken.get(target.name, 0) + taken
                done += 1
                if finding is not None:
                    tally.findings.setdefault(f"{target.name}: {finding.partition(': ')[0]}", (finding, data))


def keep(tally: Tally, folder: Path) -> None:
    """Findings as files, named by their digest, with the reason beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, (finding, data) in tally.findings.items():
        name = f"{key.partition(':')[0].replace(' ', '-')}-{sha256(data).hexdigest()[:12]}"
        (folder / name).write_bytes(data)
        (folder / f"{name}.txt").write_text(f"{key}\n{finding}\n", encoding="utf-8")
