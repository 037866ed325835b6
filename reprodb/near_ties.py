"""Inputs of y = W x whose two best elements are a hair apart, so that their order hangs on rounding.

Weights come in pairs of rows that differ in four elements by 2^-15. A probe leans towards a pair: its two
products are the largest, and their exact difference is below one unit in the last place of a sum of a
thousand terms. Which of the two comes out larger depends on the order of the sum alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# Of the elements in which the rows of a pair differ, by as much: two up and two down.
_STEPS = np.array([1, -1, 1, -1], np.float32) * np.float32(2.0**-15)


def _draws(source: np.random.PCG64, count: int) -> Floats:
    """Numbers from 0.5 to below 1, 23 bits of raw generator output each: all of them equally likely."""
    words = np.asarray(source.random_raw(-(-count // 2)), dtype="<u8").view("<u4")[:count]
    return ((words & 0x7FFFFF) | 0x3F000000).view(np.float32)


def _weights(seed: int, width: int, rows: int) -> Floats:
    """Rows of weights, shape (rows, width): odd rows are the ones before them with four elements stepped."""
    source = np.random.PCG64((seed, 0))
    pairs = -(-rows // 2)
    first = _draws(source, pairs * width).reshape(pairs, width)
    second = first.copy()
    places = np.asarray(source.random_raw(pairs * len(_STEPS)), "<u8").reshape(
        pairs, len(_STEPS)
    ) % np.uint64(width)
    for row, at in zip(second, places.astype(np.int64), strict=True):
        for place, step in zip(at, _STEPS, strict=True):
            row[place] += step
    return np.stack([first, second], axis=1).reshape(2 * pairs, width)[:rows]


def _requests(seed: int, width: int, words: int, probes: int, rows: int) -> Floats:
    """Requests, shape (rows, width): the first `probes` lean towards a pair each, in turn."""
    requests = _draws(np.random.PCG64((seed, 1)), rows * width).reshape(rows, width)
    weights = _weights(seed, width, words)[::2]
    for probe in range(min(probes, rows)):
        row = weights[probe % len(weights)]
        requests[probe] += (row + row) - np.float32(1.5)
    return requests


def make_weights(dtype: str, params: Mapping[str, Any], sizes: Iterable[int]) -> Iterator[Floats]:
    """As a pattern's maker: rows of `width` elements for as many elements as are asked for."""
    sizes, width = tuple(sizes), int(params["width"])
    yield from _cut(_weights(int(params["seed"]), width, -(-sum(sizes) // width)), sizes)


def make_requests(dtype: str, params: Mapping[str, Any], sizes: Iterable[int]) -> Iterator[Floats]:
    """As a pattern's maker: requests for the weights of the same seed and width, of `words` rows."""
    sizes, width = tuple(sizes), int(params["width"])
    rows = -(-sum(sizes) // width)
    made = _requests(int(params["seed"]), width, int(params["words"]), int(params["probes"]), rows)
    yield from _cut(made, sizes)


def _cut(rows: Floats, sizes: Iterable[int]) -> Iterator[Floats]:
    flat, start = rows.reshape(-1), 0
    for size in sizes:
        yield flat[start : start + size]
        start += size
