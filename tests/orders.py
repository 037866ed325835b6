"""The orders of the bundled sums, followed in NumPy: each addition rounded, in the kernel's own grouping."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

THREADS = 256


def halving(values: Array) -> Array:
    """The halving tree over the last axis: element k meets k + half, for half of the length down to 1."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def by_warps(values: Array) -> Array:
    """The last axis by shuffles: a tree of each 32 lanes, then one of the warps' sums, padded with +0."""
    sums = halving(values.reshape(*values.shape[:-1], -1, 32))
    padded = np.zeros((*sums.shape[:-1], 32), sums.dtype)
    padded[..., : sums.shape[-1]] = sums
    return halving(padded)


def strided(terms: Array, lanes: int) -> Array:
    """Each of `lanes` threads sums its terms from +0 in steps of `lanes`; shape (lanes,)."""
    sums = np.zeros(lanes, terms.dtype)
    for start in range(0, len(terms), lanes):
        piece = terms[start : start + lanes]
        sums[: len(piece)] += piece
    return sums


def block_sums(terms: Array, blocks: int) -> Array:
    """Grid stride a thread, halving tree a block; shape (blocks,)."""
    return halving(strided(terms, blocks * THREADS).reshape(blocks, THREADS))


def folded(partials: Array) -> Array:
    """One block: its threads sum the partials in steps of THREADS, then the halving tree."""
    return halving(strided(partials, THREADS))


def shuffled(terms: Array, blocks: int) -> tuple[Array, Array]:
    """The partials and the total of a sum whose trees are shuffles."""
    partials = by_warps(strided(terms, blocks * THREADS).reshape(blocks, THREADS))
    threads = np.zeros(THREADS, terms.dtype)
    threads[:blocks] = partials
    return partials, by_warps(threads)


def by_quads(terms: Array, blocks: int) -> Array:
    """Four sums a thread over quads by grid stride, the tail to the first threads, then the block's tree."""
    quads = len(terms) // 4
    sums = np.zeros((blocks * THREADS, 4), terms.dtype)
    for start in range(0, quads, blocks * THREADS):
        piece = terms[4 * start : 4 * min(quads, start + blocks * THREADS)].reshape(-1, 4)
        sums[: len(piece)] += piece
    tail = terms[4 * quads :]
    sums[: len(tail), 0] += tail
    threads = (sums[:, 0] + sums[:, 1]) + (sums[:, 2] + sums[:, 3])
    return halving(threads.reshape(blocks, THREADS))


def in_flight(terms: Array, blocks: int, threads: int, flight: int) -> tuple[Array, Array]:
    """Quads by grid stride, `flight` strides a round with a quad of sums each; trees by shuffles."""
    lanes, quads = blocks * threads, len(terms) // 4
    strides = [terms[4 * start :][: 4 * lanes] for start in range(0, quads, lanes)]
    sums = np.zeros((flight, lanes, 4), terms.dtype)
    whole = quads // (flight * lanes) * flight  # strides that fill rounds
    for number, stride in enumerate(strides):
        piece = stride[: 4 * (quads - number * lanes)].reshape(-1, 4)
        sums[number % flight if number < whole else 0, : len(piece)] += piece
    tail = terms[4 * quads :]
    sums[0, : len(tail), 0] += tail
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    x, y, z, w = sums[0].T
    partials = by_warps(((x + z) + (y + w)).reshape(blocks, threads))
    return partials, by_warps(strided(partials, threads))


def compensated(terms: Array, blocks: int) -> tuple[Array, Array, Array]:
    """Values and losses of each block, and the total, of the compensated tree."""
    lanes = blocks * THREADS
    value, lost = np.zeros(lanes, terms.dtype), np.zeros(lanes, terms.dtype)
    for start in range(0, len(terms), lanes):
        piece = terms[start : start + lanes]
        here = slice(0, len(piece))
        value[here], lost[here] = two_sum(value[here], lost[here], piece, np.zeros_like(piece))
    values, losses = _joined(value.reshape(blocks, THREADS), lost.reshape(blocks, THREADS))
    last, rest = _joined(values[None], losses[None])
    return values, losses, (last - rest)[0]


def two_sum(a: Array, lost_a: Array, b: Array, lost_b: Array) -> tuple[Array, Array]:
    """The rounded sum, and what is to be taken from it: both losses less the error of this addition."""
    total = a + b
    second = total - a
    error = (a - (total - second)) + (b - second)
    return total, (lost_a + lost_b) - error


def _joined(value: Array, lost: Array) -> tuple[Array, Array]:
    while value.shape[-1] > 1:
        half = value.shape[-1] // 2
        value, lost = two_sum(value[..., :half], lost[..., :half], value[..., half:], lost[..., half:])
    return value[..., 0], lost[..., 0]
