"""Where in an ordered list something changes: a halving search, and a walk over every step. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2

# What one probe showed: the identity of bits or code, None where there is none (a step to be skipped).
Key = str | None


@dataclass(frozen=True, slots=True)
class Boundary:
    """Two probed places: `before` has the good end's key and `first` has not.

    Every place between them was skipped, so that the change may be at any of `first` and those.
    """

    before: int
    first: int
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A change between two neighbours. `returns_to` is the earliest place that had the new key already."""

    before: int
    first: int
    returns_to: int | None = None


def most_probes(count: int) -> int:
    """How many probes a halving search over `count` places takes where none is skipped, the ends included."""
    return min(count, 2) if count < 3 else 2 + ceil(log2(count - 1))


def halve(count: int) -> Generator[int, Key, Boundary | None]:
    """Ask for places and find one at which the key stops being the good end's (place 0).

    None where an end gives no key or both give the same one. Of several changes one is found, not always the
    first: what lies between two probes of equal key is taken to be equal.
    """
    good = yield 0
    if good is None or count < 2:
        return None
    bad = yield count - 1
    if bad is None or bad == good:
        return None
    low, high = 0, count - 1
    skipped: set[int] = set()
    while left := [place for place in range(low + 1, high) if place not in skipped]:
        middle = (low + high) / 2
        place = min(left, key=lambda p: abs(p - middle))
        key = yield place
        if key is None:
            skipped.add(place)
        elif key == good:
            low = place
        else:
            high = place
    return Boundary(low, high, tuple(sorted(p for p in skipped if low < p < high)))


def carry_out(count: int, probe: Callable[[int], Key]) -> Boundary | None:
    """Run `halve` to its end with `probe` answering."""
    search = halve(count)
    try:
        place = next(search)
        while True:
            place = search.send(probe(place))
    except StopIteration as end:
        found: Boundary | None = end.value
        return found


def steps(keys: Sequence[Key] | Mapping[int, Key]) -> tuple[Step, ...]:
    """Every change of a walk (all keys in order, or place → key); places without a key are passed over."""
    places = dict(enumerate(keys)) if isinstance(keys, Sequence) else dict(sorted(keys.items()))
    earliest: dict[str, int] = {}
    found = []
    last: tuple[int, str] | None = None
    for place, key in places.items():
        if key is None:
            continue
        if last is not None and key != last[1]:
            found.append(Step(last[0], place, earliest.get(key)))
        earliest.setdefault(key, place)
        last = (place, key)
    return tuple(found)
