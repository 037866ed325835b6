"""Faults on a real card: a case larger than its memory, and a context that an earlier result lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprodb.suite import load_suite
from tests.command import reprodb
from tests.test_bad_input import MANIFEST, SOURCE, write_kernel

ELEMENTS = 1 << 37  # of eight bytes: a TiB
SCRATCH = '[[buffer]]\nname = "scratch"\ndtype = "float64"\nsize = "n"\nrole = "scratch"\n'
INPUT = f'inputs = {{ x = {{ pattern = "ones", n = 8 }} }}\nn = {ELEMENTS}'
HUGE = MANIFEST.replace("[[stage]]", f"{SCRATCH}[[stage]]").replace('input = "ones"\nn = 8', INPUT)
ILLEGAL = SOURCE.replace("out[0] = sum;", "*(float*)(n * 4096) = sum; out[0] = sum;")


@pytest.fixture(name="suite")
def a_suite_with_two_bad_kernels(tmp_path: Path) -> Path:
    """`huge` needs a TiB; `illegal` writes to an address of nobody; `total` is well."""
    suite = tmp_path / "suite"
    write_kernel(suite, "huge", manifest=HUGE)
    write_kernel(suite, "illegal", source=ILLEGAL)
    write_kernel(suite, "total")
    return suite


def test_the_suite_is_what_it_should_be(suite: Path) -> None:
    huge = load_suite(suite).kernels[0]
    assert max(buffer.nbytes for buffer in huge.cases[0].buffers) == 8 * ELEMENTS


@pytest.mark.gpu
def test_memory_that_no_card_has_and_a_lost_context_cost_their_results_alone(
    suite: Path, tmp_path: Path
) -> None:
    said = reprodb("run", "--suite", suite, "--device", "gpu", "--profile", "nvcc13", "-n", 20, "--json",
                   folder=tmp_path)  # fmt: skip
    rows = {row["kernel"]: row for row in said.json["results"]}
    assert said.code == 4
    assert {name: row["status"] for name, row in rows.items()} == {
        "huge": "launch_failed", "illegal": "launch_failed", "total": "ok",
    }  # fmt: skip
    assert "MemoryAllocation" in rows["huge"]["error"]
    assert "IllegalAddress" in rows["illegal"]["error"]
    assert rows["total"]["outputs"]["out"]["first_bits"] == "0x41000000"  # eight ones
