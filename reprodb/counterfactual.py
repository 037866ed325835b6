"""Which exchanged coordinates move the bits: minimal sets, nothing assumed to be monotone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Set = frozenset[str]
NOTHING: Set = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """What one experiment showed: the identity of its bits, or None and why there are none."""

    bits: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Minimal:
    """Coordinates whose exchange moves the baseline's bits while no smaller part of them does.

    `gaps` are parts of the set that gave no bits: for those the claim could not be tried.
    """

    names: tuple[str, ...]
    reproduces: bool  # gives the candidate's bits
    gaps: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """What a search found. Every list is in the order of the coordinates, the smaller sets first.

    `reproducing` are the smallest tried sets that give the candidate's bits; `smallest` says that every
    smaller set was tried. `untried` counts sets that the limit cut off, of the size that was being tried.
    """

    differs: bool  # the two ends have bits, and not the same
    minimal: tuple[Minimal, ...] = ()
    reproducing: tuple[tuple[str, ...], ...] = ()
    smallest: bool = True
    complete: int = 0  # sets of up to so many coordinates were all tried, as far as they could matter
    untried: int = 0
    tried: int = 0


Search = Generator[tuple[Set, ...], Sequence[Answer], Findings]
Probe = Callable[[tuple[Set, ...]], Sequence[Answer]]


def search(names: Sequence[str], *, limit: int = 100, every: bool = False) -> Search:
    """Ask for batches of experiments, each a set of exchanged coordinates, and conclude.

    First the two ends, then sets by increasing size. It stops after the first size at which a set gives the
    candidate's bits, or goes on with `every` through all sets that hold no smaller mover. At most `limit`
    experiments are asked for; where that cuts the search off, the whole set is reduced one coordinate at a
    time, so that an answer remains.
    """
    order = tuple(names)
    everything = frozenset(order)
    known: dict[Set, Answer] = {}
    yield from _asked(known, (NOTHING, everything))
    base, target = known[NOTHING].bits, known[everything].bits
    if base is None or target is None or base == target:
        return Findings(False, tried=len(known))
    complete = untried = 0
    reserve = len(order)
    for size in range(1, len(order)):
        reached = _reached(known, target, everything)
        if reached and not every:
            break
        movers = _movers(known, base)
        wanted = [
            exchanged
            for exchanged in _subsets(order, size)
            if exchanged not in known and not (reached and any(m < exchanged for m in movers))
        ]
        room = max(0, limit - len(known) - (0 if reached else reserve))
        yield from _asked(known, tuple(wanted[:room]))
        untried = max(0, len(wanted) - room)
        if untried:
            break
        complete = size
    if untried and not _reached(known, target, everything):
        yield from _reduced(known, order, target, limit)
    return _conclude(order, known, base, target, complete, untried)


def carry_out(search: Search, probe: Probe) -> Findings:
    """Run a search to its end; `probe` answers a batch of sets, in their order."""
    try:
        batch = next(search)
        while True:
            batch = search.send(probe(batch))
    except StopIteration as end:
        findings: Findings = end.value
        return findings


def _asked(
    known: dict[Set, Answer], sets: tuple[Set, ...]
) -> Generator[tuple[Set, ...], Sequence[Answer], None]:
    wanted = tuple(dict.fromkeys(s for s in sets if s not in known))
    if wanted:
        known.update(zip(wanted, (yield wanted), strict=True))


def _reduced(
    known: dict[Set, Answer], order: tuple[str, ...], target: str, limit: int
) -> Generator[tuple[Set, ...], Sequence[Answer], None]:
    """Leave out one coordinate after the other as long as the candidate's bits stay."""
    current = frozenset(order)
    for name in order:
        smaller = current - {name}
        if not smaller or (smaller not in known and len(known) >= limit):
            return
        yield from _asked(known, (smaller,))
        if known[smaller].bits == target:
            current = smaller


def _subsets(order: tuple[str, ...], size: int) -> Iterable[Set]:
    return (frozenset(chosen) for chosen in combinations(order, size))


def _movers(known: Mapping[Set, Answer], base: str) -> list[Set]:
    return [exchanged for exchanged, answer in known.items() if answer.bits not in (None, base)]


def _reached(known: Mapping[Set, Answer], target: str, everything: Set) -> bool:
    return any(answer.bits == target for exchanged, answer in known.items() if exchanged != everything)


def _conclude(
    order: tuple[str, ...], known: Mapping[Set, Answer], base: str, target: str, complete: int, untried: int
) -> Findings:
    place = {name: number for number, name in enumerate(order)}

    def shown(exchanged: Set) -> tuple[str, ...]:
        return tuple(sorted(exchanged, key=place.__getitem__))

    def sorted_sets(sets: Iterable[Set]) -> list[Set]:
        return sorted(sets, key=lambda s: (len(s), [place[name] for name in shown(s)]))

    movers = sorted_sets(_movers(known, base))
    minimal = []
    for mover in movers:
        parts = [part for part in known if part < mover]
        whole = len(parts) == 2 ** len(mover) - 1  # every part was tried, nothing exchanged among them
        if whole and not any(other < mover for other in movers):
            gaps = sorted_sets(part for part in parts if known[part].bits is None)
            minimal.append(
                Minimal(shown(mover), known[mover].bits == target, tuple(shown(gap) for gap in gaps))
            )
    reproducing = sorted_sets(s for s, answer in known.items() if answer.bits == target)
    size = len(reproducing[0])
    return Findings(
        differs=True,
        minimal=tuple(minimal),
        reproducing=tuple(shown(s) for s in reproducing if len(s) == size),
        smallest=complete >= size - 1,
        complete=complete,
        untried=untried,
        tried=len(known),
    )
