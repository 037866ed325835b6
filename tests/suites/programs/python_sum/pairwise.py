"""Sums the first half and the second half of a .npy file, each in the same way, and then the two."""

import sys

import numpy as np


def pairwise(x: np.ndarray) -> np.float64:
    half = len(x) // 2
    return x[0] if len(x) == 1 else pairwise(x[:half]) + pairwise(x[half:])


x, repetitions = np.load(sys.argv[1]), int(sys.argv[2])
halves = np.array([pairwise(x[: len(x) // 2]), pairwise(x[len(x) // 2 :])])
np.save(sys.argv[3], np.repeat(halves[0] + halves[1], repetitions))
np.tile(halves, repetitions).tofile(sys.argv[4])
