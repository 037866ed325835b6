"""Random programs on a GPU against the slow interpreter: what the hardware does with PTX that nobody wrote.

The model agrees with the interpreter on such programs (`test_agreement.py`), which needs no GPU.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.model.on_gpu import assemble, launch
from tests.model.reference.compare import buffers_of, differences, interpreted
from tests.model.reference.programs import Program, program

Prepared = tuple[int, Program, dict[str, bytes], dict[str, bytes], Path]

# Where the optimiser of ptxas 13.0 changes what a program does, read in its SASS: longest → seeds.
OPTIMISED = {
    # A predicate is taken for true in every round of a loop, as it is in the first.
    1: {1622},
    # F2I.U32, which gives 0 for negative numbers, becomes F2I.S16 because a 16-bit shift uses its result.
    15: {944},
}


def prepare(seed: int, statements: int, folder: Path) -> Prepared:
    """The program, what it starts from, what the interpreter says, and its cubin."""
    rng = Random(seed)
    p = program(rng, statements)
    buffers = buffers_of(p, rng)
    cubin = assemble(p.ptx, folder / f"{seed}.cubin")
    return seed, p, buffers, interpreted(p.ptx, p.launch, buffers), cubin


@pytest.mark.gpu
@pytest.mark.parametrize(("programs", "longest"), [(4000, 1), (1200, 15)], ids=["one statement", "longer"])
def test_random_programs_on_a_gpu(programs: int, longest: int, tmp_path: Path) -> None:
    import cupy

    failures = {}
    seeds = range(programs)
    lengths = [1 + seed % longest for seed in seeds]
    # The children must not inherit this process's CUDA context.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        prepared = pool.map(prepare, seeds, lengths, [tmp_path] * programs, chunksize=16)
        for seed, p, buffers, expected, cubin in prepared:
            found = differences(launch(cupy, cubin, p.launch, buffers), expected)
            if found:
                failures[seed] = f"seed {seed}: {len(found)} words differ: {'; '.join(found[:4])}"
    assert failures.keys() == OPTIMISED[longest], "\n".join(failures.values())
