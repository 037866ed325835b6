"""Which requests a composition serves, in which order, how many a launch: seeded, the same everywhere.

Random words are splitmix64 of a counter, so that no library's generator and no machine has a say in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import Composition

Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
# What random words are drawn for: neighbouring purposes give unrelated words.
_SIZE, _STRANGERS, _MORE, _ORDER = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """One composition: `order` has the request numbers as they are served, a multiple of `batch` of them.

    Launch i serves `order[i * batch : (i + 1) * batch]`. `places` says where in `order` each probe stands,
    shape (probes,).
    """

    batch: int
    order: Numbers
    places: Numbers

    @property
    def launches(self) -> int:
        return len(self.order) // self.batch


def served(composition: Composition, batch: int) -> int:
    """How many requests a composition of this BATCH serves: all its launches are full."""
    return -(-(composition.probes + composition.strangers) // batch) * batch


def most_served(composition: Composition) -> int:
    """How many requests a composition serves at most."""
    return max(served(composition, batch) for batch in range(1, max(composition.batches) + 1))


def compose(composition: Composition, number: int) -> Composed:
    """The composition of a number from 0.

    Those below the count of `batches` have these sizes in turn; later ones any size from 1 to the largest,
    its bit length drawn first. Strangers are no probes as long as there are enough others, each at most once.
    """

    def draw(purpose: int, count: int) -> Words:
        return _words(count, composition.seed, number, purpose)

    if number < len(composition.batches):
        batch = composition.batches[number]
    else:
        batch = _size(draw(_SIZE, 2), max(composition.batches))
    probes = np.arange(composition.probes, dtype=np.int64)
    others = np.arange(composition.probes, composition.requests, dtype=np.int64)
    wanted = served(composition, batch) - composition.probes
    strangers = others[_shuffled(draw(_STRANGERS, len(others)))][:wanted]
    if len(strangers) < wanted:
        again = _shuffled(draw(_MORE, composition.requests))
        strangers = np.concatenate([strangers, np.resize(again, wanted - len(strangers))])
    order = _shuffled(draw(_ORDER, composition.probes + wanted))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return Composed(batch, np.concatenate([probes, strangers])[order], places[: composition.probes])


def _size(words: Words, most: int) -> int:
    """A size from 1 to `most`: its bit length first, so that small sizes and large ones are as frequent."""
    least = 1 << int(words[0]) % most.bit_length()
    return least + int(words[1]) % (min(2 * least - 1, most) - least + 1)


def mix(value: Words) -> Words:
    """The output function of splitmix64, element by element."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _words(count: int, *labels: int) -> Words:
    """`count` random words that follow from the labels alone."""
    state = 0
    for label in labels:
        state = int(mix(np.array([(state ^ label) + _GOLDEN & _MASK], np.uint64))[0])
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return mix(steps + np.uint64(state))


def _shuffled(keys: Words) -> NDArray[Any]:
    """A permutation: places in the order of their random words."""
    return np.argsort(keys, kind="stable")
