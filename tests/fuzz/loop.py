"""The loop: case after case, each with a limit of CPU time, findings kept as files."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import reprodb
from tests.fuzz.targets import Target

PACKAGE = f"{Path(reprodb.__file__).parent}/"
CASE_SECONDS = 10.0  # of CPU: what takes longer hangs


class Hang(BaseException):
    """A case ran past its limit."""


@dataclass(slots=True)
class Tally:
    """What was done, by target: cases, those taken and not refused, and the places that refused.

    A case is one input given to one reader. Findings are kept by where they were raised.
    """

    cases: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    places: dict[str, set[str]] = field(default_factory=dict)
    findings: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.cases.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case was taken, or refused at a `place` (file:line of the package), or is a `finding`."""

    taken: bool = False
    place: str | None = None
    finding: str | None = None


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


def attempt(target: Target, data: bytes) -> Outcome:
    """What one reader makes of one input."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CASE_SECONDS)
        target.read(data)
    except target.refusals as refusal:
        return Outcome(place=_place(refusal))
    except Hang:
        return Outcome(finding="ran past its limit")
    except MemoryError:
        return Outcome(finding="out of memory")
    except Exception as error:
        return Outcome(finding=f"{type(error).__name__} at {_place(error)}: {error}"[:300])
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return Outcome(taken=True)


def _place(error: BaseException) -> str:
    """The innermost line of the package (else of anything) that the error went through."""
    trace, found, last = error.__traceback__, None, "?"
    while trace is not None:
        code = trace.tb_frame.f_code
        last = f"{code.co_filename}:{trace.tb_lineno}"
        if code.co_filename.startswith(PACKAGE):
            found = last.removeprefix(PACKAGE)
        trace = trace.tb_next
    return found or last


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
    seeds = {target.name: sorted(target.seeds(), key=len) for target in chosen}
    assert all(seeds.values()), "a target has no valid text to begin with"
    weights = [target.weight for target in chosen]
    deadline = None if seconds is None else time.monotonic() + seconds
    done = 0
    with limited():
        while (cases is None or done < cases) and (deadline is None or time.monotonic() < deadline):
            for target in rng.choices(chosen, weights, k=64):
                name = target.name
                data = target.spoilt(rng, seeds[name])
                outcome = attempt(target, data)
                tally.cases[name] = tally.cases.get(name, 0) + 1
                tally.taken[name] = tally.taken.get(name, 0) + outcome.taken
                done += 1
                if outcome.place is not None:
                    tally.places.setdefault(name, set()).add(outcome.place)
                if outcome.finding is not None:
                    key = f"{name}: {outcome.finding.partition(': ')[0]}"
                    tally.findings.setdefault(key, (outcome.finding, data))


def keep(tally: Tally, folder: Path) -> None:
    """Findings as files, named by their digest, with the reason beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, (finding, data) in tally.findings.items():
        name = f"{key.partition(':')[0].replace(' ', '-')}-{sha256(data).hexdigest()[:12]}"
        (folder / name).write_bytes(data)
        (folder / f"{name}.txt").write_text(f"{key}\n{finding}\n", encoding="utf-8")
