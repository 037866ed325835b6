"""The reduction family on a GPU: its bits are those that NumPy gives in the pinned order, every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reprodb.executors.arrays import Arrays
from reprodb.executors.cuda import CudaExecutor
from reprodb.suite import bundled_suite, load_suite
from tests.test_cuda_gpu import built
from tests.test_family import ANSWERS, answer, terms, two_pass

pytestmark = pytest.mark.gpu


@pytest.fixture(name="executor", scope="module")
def on_the_gpu() -> CudaExecutor:
    return CudaExecutor.open(0, Arrays())


def measured(executor: CudaExecutor, name: str, folder: Path) -> dict[str, tuple[bytes, ...]]:
    """The distinct patterns of each recorded buffer, its grid that of the device."""
    device = executor.platform().device
    suite = load_suite(bundled_suite(), device.sm_count if device else None)
    kernel = next(k for k in suite.kernels if k.name == name)
    samples = executor.execute(built(suite, name, folder), kernel, kernel.cases[0], 100)
    return {output.buffer.name: output.patterns for output in samples.outputs}


@pytest.mark.parametrize("name", [name for name in ANSWERS if name != "sum_device_grid"])
def test_every_guaranteed_output_is_predicted(executor: CudaExecutor, name: str, tmp_path: Path) -> None:
    found = measured(executor, name, tmp_path)
    assert {buffer: len(patterns) for buffer, patterns in found.items()} == dict.fromkeys(found, 1)
    for buffer, (pattern,) in found.items():
        assert pattern == answer(name)[buffer].tobytes(), buffer


def test_the_device_grid_sums_in_the_order_of_the_devices_multiprocessors(
    executor: CudaExecutor, tmp_path: Path
) -> None:
    device = executor.platform().device
    assert device is not None
    found = measured(executor, "sum_device_grid", tmp_path)
    expected = two_pass(terms("sum_device_grid"), 2 * device.sm_count)
    assert found == {name: (values.tobytes(),) for name, values in expected.items()}


def test_integers_give_one_pattern_and_a_list_one_multiset(executor: CudaExecutor, tmp_path: Path) -> None:
    (total,) = measured(executor, "sum_int_atomic", tmp_path)["total"]
    assert total == (0xE894D09C).to_bytes(4, "little")
    lists = measured(executor, "append_atomic", tmp_path)
    assert lists["count"] == ((0x105).to_bytes(4, "little"),)
    assert len({np.sort(np.frombuffer(items, np.uint32)).tobytes() for items in lists["items"]}) == 1
