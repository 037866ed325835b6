"""What a worker holds beside the inputs of a large case: up to 200 MB, interpreter and LLVM included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.model import sized
from benchmarks.peak import peak_of
from reprodb.executors.task import Task
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.suite import bundled_suite, load_suite, select_kernels
from tests.built import built

N = 1 << 26
ALLOWED = 200_000_000
PUBLISHED = ["sum_squares_tree", "sum_squares_atomic", "sum_squares_kahan_atomic", "sum_tree_atomic",
             "sum_shared_atomic", "sum_global_atomic"]  # fmt: skip
# The first has no arrival orders, the last has more of them than are kept.
QUICK = ("sum_squares_tree", "sum_global_atomic")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in PUBLISHED]
)
def test_a_large_case_takes_its_inputs_and_little_more(name: str) -> None:
    """A fresh process compiles, executes three orders, hashes and judges: 256 MB of input at 2^26."""
    root = bundled_suite()
    (kernel,) = select_kernels(load_suite(root), [name])
    case = sized(kernel.cases[0], N)
    artifact = built(root, load_profiles(bundled_profiles())["default"])[name]
    peak = peak_of(Task(artifact, replace(kernel, cases=(case,)), 3))
    assert peak > 4 * N  # it did hold them
    assert peak - 4 * N <= ALLOWED


def test_the_published_kernels_are_these() -> None:
    suite = load_suite(bundled_suite())
    assert sorted(PUBLISHED) == sorted(k.name for k in suite.kernels if "published" in k.tags)
