"""Shapes that follow the device: declared, resolved for the device, refused where they promise more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reprodb.compare import compare_results
from reprodb.domain import Lane
from reprodb.errors import UsageError
from reprodb.findings import Moved, Verdict
from reprodb.suite import load_suite
from tests.builders import ATOMIC_TOTAL, H200, make_environment, make_result, make_run

MANIFEST = """\
[kernel]
name = "k"
source = "k.cu"
operation = "sum of x"
determinism = "run_to_run"
accumulator = "float32"
device_derived = true
defines = { WAVES = 2 }
[[buffer]]
name = "partials"
dtype = "float32"
size = "SM_COUNT * WAVES"
role = "witness"
[[buffer]]
name = "total"
dtype = "float32"
size = 1
role = "result"
[[stage]]
entry = "k"
grid = "SM_COUNT * WAVES"
block = 32
args = ["x", "n", "partials", "total"]
[[case]]
input = "ramp1000"
n = 1000
"""


def _suite(tmp_path: Path, text: str = MANIFEST) -> Path:
    home = tmp_path / "suite" / "k"
    home.mkdir(parents=True)
    (home / "kernel.toml").write_text(text)
    (home / "k.cu").write_text("")
    return home.parent


@pytest.mark.parametrize(("device", "blocks"), [(None, 264), (132, 264), (40, 80)])
def test_the_grid_is_that_of_the_device_or_of_the_model(
    tmp_path: Path, device: int | None, blocks: int
) -> None:
    """132 multiprocessors on the model (H100 SXM, H200); a T4 has 40."""
    (kernel,) = load_suite(_suite(tmp_path), device).kernels
    assert kernel.stages[0].grid == (blocks, 1, 1)
    assert kernel.cases[0].buffers[0].shape == (blocks,)
    assert kernel.sm_count == (device or 132)
    assert kernel.shape_defines == ("WAVES",)
    assert kernel.defines == (("WAVES", "2"),)  # the compiler is told nothing of the device


def test_constant_shapes_name_no_device(tmp_path: Path) -> None:
    text = MANIFEST.replace("SM_COUNT", "3").replace("device_derived = true\n", "")
    assert load_suite(_suite(tmp_path, text), 40).kernels[0].sm_count is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("device_derived = true\n", "", ["SM_COUNT in a size", "say device_derived = true"]),
        ("SM_COUNT * WAVES", "WAVES", ["device_derived = True", "a size that uses SM_COUNT"]),
        ("WAVES = 2", "WAVES = 2, SM_COUNT = 4", ["define 'SM_COUNT'", "is the device's"]),
        ('determinism = "run_to_run"', 'determinism = "gpu_to_gpu"', ["another order on another GPU"]),
        ('role = "witness"', 'role = "witness"\ndeterminism = "gpu_to_gpu"', ["[[buffer]] 1", "another GPU"]),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, said: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        load_suite(_suite(tmp_path, MANIFEST.replace(old, new)))
    for words in said:
        assert words in str(caught.value)
    assert "no define is called" not in str(caught.value), "one mistake is one complaint"


def test_another_number_of_multiprocessors_is_a_change_of_shape() -> None:
    """The same card cut in two: other bits, and the launch shape is the first layer."""
    whole = make_result(lane=Lane.MEASURED)
    half = make_result([ATOMIC_TOTAL] * 100, lane=Lane.MEASURED)
    pair = []
    for result, sms in ((whole, 132), (half, 66)):
        (stage,) = result.kernel.stages
        kernel = replace(result.kernel, sm_count=sms, stages=(replace(stage, grid=(2 * sms, 1, 1)),))
        pair.append(replace(result, kernel=kernel))
    run = replace(make_run(lane=Lane.MEASURED), environment=make_environment(H200))
    found = compare_results(pair[0], pair[1], run, run, lambda sha256: b"")
    assert found.verdict is Verdict.CHANGED
    assert found.attribution is not None
    assert found.attribution.first_layer == "launch shape"
    assert found.attribution.moved == (Moved.SHAPE,)
    assert "264" in found.attribution.causes[1].detail
    assert "132" in found.attribution.causes[1].detail
