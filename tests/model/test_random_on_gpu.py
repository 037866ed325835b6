"""Random programs on a GPU against the slow interpreter: what the hardware does with PTX that nobody wrote.

The driver compiles the PTX here. Every float operation of the programs names its rounding, so that nothing
is fused.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.model.reference import Launch
from tests.model.reference.compare import buffers_of, differences, interpreted
from tests.model.reference.programs import program

PROGRAMS = 200


def on_gpu(cupy: Any, path: Path, launch: Launch, buffers: dict[str, bytes]) -> dict[str, bytes]:
    module = cupy.RawModule(path=str(path))
    arrays = {name: cupy.asarray(bytearray(data), dtype=cupy.uint8) for name, data in buffers.items()}
    args = tuple(arrays[str(name)] for name in launch.args)
    module.get_function(launch.entry)(launch.grid, launch.block, args)
    return {name: bytes(array.get().tobytes()) for name, array in arrays.items()}


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(4))
def test_random_programs_on_the_gpu(part: int, tmp_path: Path) -> None:
    import cupy

    failures = []
    for seed in range(part * PROGRAMS, (part + 1) * PROGRAMS):
        rng = Random(seed)
        p = program(rng, 2 + seed % 14)
        buffers = buffers_of(p, rng)
        path = tmp_path / f"{seed}.ptx"
        path.write_text(p.ptx)
        found = differences(on_gpu(cupy, path, p.launch, buffers), interpreted(p.ptx, p.launch, buffers))
        if found:
            failures.append(f"seed {seed}: {len(found)} words differ: {'; '.join(found[:4])}")
    assert not failures, f"{len(failures)} of {PROGRAMS} programs differ\n" + "\n".join(failures)
