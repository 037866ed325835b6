"""A launch of a composition has BATCH rows: what goes beyond them is an error that names kernel and line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reprodb.domain import Artifact, Kernel, Samples
from reprodb.errors import ExecutionError
from reprodb.executors.model.engine import ModelExecutor
from reprodb.suite import load_suite
from tests.executors.things import an_artifact
from tests.model.kernels import compiled

MANIFEST = """
[kernel]
name = "rows"
source = "rows.cu"
operation = "rows"
determinism = "run_to_run"
accumulator = "float32"
batch_invariant = true

[composition]
input = "x"
requests = 8
probes = 3
strangers = 4
batches = [1, 4, 3]

[[buffer]]
name = "y"
dtype = "float32"
shape = ["PROBES", 4]
role = "result"

[[stage]]
entry = "rows"
grid = "BATCH"
block = 4
args = ["x", "y", "BATCH"]

[[case]]
input = "ramp1000"
n = 32
"""

SOURCE = """
extern "C" __global__ void rows(const float* x, float* y, unsigned batch)
{
    unsigned at = blockIdx.x * 4 + threadIdx.x;
    BODY
}
"""
IN_BOUNDS = "y[at] = 2.0f * x[at];"


def served(folder: Path, body: str, edit: Callable[[str], str] = lambda text: text) -> Samples:
    """Six compositions of the kernel with that body, on the model."""
    (folder / "rows").mkdir(parents=True)
    (folder / "rows" / "kernel.toml").write_text(edit(MANIFEST), encoding="utf-8")
    (folder / "rows" / "rows.cu").write_text(SOURCE, encoding="utf-8")
    kernel: Kernel = load_suite(folder).kernels[0]
    artifact: Artifact = replace(an_artifact(), ptx=compiled(SOURCE.replace("BODY", body), "rows"))
    return ModelExecutor().execute(artifact, kernel, kernel.cases[0], 6)


def test_every_launch_has_its_own_rows(tmp_path: Path) -> None:
    samples = served(tmp_path, IN_BOUNDS)
    assert set(samples.batches) >= {1, 3, 4}
    (output,) = samples.outputs
    (pattern,) = output.patterns
    probes = np.float32(1) + np.arange(12).astype(np.float32) * np.float32(0.001)
    assert np.frombuffer(pattern, np.float32).tolist() == (2 * probes).tolist()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            IN_BOUNDS + " if (blockIdx.x == batch - 1) y[at + 4] = x[at];",
            r"rows: stage rows, block \(0, 0, 0\), thread \(0, 0, 0\): st.global.f32 at PTX line \d+ writes "
            r"4 bytes at 0x[0-9a-f]+, 16 bytes into this launch's rows of y, which have 16 bytes",
        ),
        (
            IN_BOUNDS + " if (threadIdx.x == 3) atomicAdd(y + batch * 4, 1.0f);",
            r"thread \(3, 0, 0\): (red|atom).global.add.f32 at PTX line \d+ writes 4 bytes at 0x[0-9a-f]+, "
            "16 bytes into this launch's rows of y",
        ),
        (
            "y[at] = x[at + 4 * (batch > 1)];",
            r"ld.global.f32 at PTX line \d+ reads 4 bytes at 0x[0-9a-f]+, "
            "64 bytes into this launch's rows of x, which have 64 bytes",
        ),
        (  # every launch but the first
            IN_BOUNDS + " if (blockIdx.x == 0 && ((unsigned long long)y & 0xffff)) y[(int)at - 4] = x[at];",
            r"st.global.f32 at PTX line \d+ writes 4 bytes at 0x[0-9a-f]+, "
            "16 bytes before this launch's rows of y",
        ),
    ],
)
def test_rows_of_other_launches_are_out_of_bounds(tmp_path: Path, body: str, said: str) -> None:
    """They lie in the same buffer, which has room for the largest composition."""
    with pytest.raises(ExecutionError, match=said) as caught:
        served(tmp_path, body)
    assert caught.value.remedy == "a launch has BATCH rows: let no thread go beyond them"
