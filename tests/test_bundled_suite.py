"""The bundled kernels and the test suites: their numbers, followed in NumPy, and that all of them compile."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reprodb import build
from reprodb.accuracy import judge, kahan_values
from reprodb.digest import hex64, run_hash
from reprodb.domain import Accuracy, Determinism, Kernel, OutputSamples, Role
from reprodb.inputs import generate, resolve
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.suite import bundled_suite, load_suite, select_kernels
from reprodb.toolchains import catalog, pool

SUITES = Path(__file__).parent / "suites"
DOCS = Path(__file__).parents[1] / "docs"
ROOTS = {"bundled": bundled_suite(), "edits": SUITES / "edits", "cases": SUITES / "cases"}

Floats = NDArray[np.float32]
THREADS = 256
PUBLISHED_N = 4_194_915


def _kernel(root: str, name: str) -> Kernel:
    return next(k for k in load_suite(ROOTS[root]).kernels if k.name == name)


def _ramp(n: int) -> Floats:
    return generate(resolve("x", "ramp1000", n, "float32", {}))


# --- The tree's order, step by step in float32 -------------------------------------------------


def _contracted(x: Floats) -> Floats:
    """fma(x, x, 0.25): for x in [1, 2) the double result is exact, so the cast is the only rounding."""
    wide = x.astype(np.float64)
    return (wide * wide + 0.25).astype(np.float32)


def _separate(x: Floats) -> Floats:
    """The product rounded, then the sum rounded."""
    return x * x + np.float32(0.25)


def _fold(values: Floats) -> Floats:
    """The halving tree over the last axis."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def _partials(terms: Floats, blocks: int) -> Floats:
    """Each thread's grid-stride sum from +0, then each block's tree; shape (blocks,)."""
    lanes = blocks * THREADS
    sums = np.zeros(lanes, np.float32)
    for start in range(0, len(terms), lanes):
        piece = terms[start : start + lanes]
        sums[: len(piece)] += piece
    return _fold(sums.reshape(blocks, THREADS))


def _total(partials: Floats) -> int:
    """Pass 2: one block, each thread its partials in steps of THREADS, then the tree. The total's bits."""
    sums = np.zeros(THREADS, np.float32)
    for row in partials.reshape(-1, THREADS):
        sums += row
    return int(_fold(sums).view(np.uint32))


def test_the_emulated_fma_is_the_exact_one() -> None:
    for x in _ramp(1000):
        exact = Fraction(float(x)) ** 2 + Fraction(1, 4)
        near = [np.nextafter(_contracted(x), np.float32(side)) for side in (-np.inf, np.inf)]
        gap = abs(Fraction(float(_contracted(x))) - exact)
        assert all(gap < abs(Fraction(float(other)) - exact) for other in near)


def test_the_published_total_under_both_contractions() -> None:
    x = _ramp(PUBLISHED_N)
    assert _total(_partials(_contracted(x), 1024)) == 0x4B25426D
    assert _total(_partials(_separate(x), 1024)) == 0x4B25426D
    assert hex64(run_hash([0x4B25426D.to_bytes(4, "little")], [0] * 100)) == "0x8189389fe1bc0a65"


def test_contraction_moves_73_partials_and_not_the_total() -> None:
    x = _ramp(PUBLISHED_N)
    fused, apart = _partials(_contracted(x), 1024), _partials(_separate(x), 1024)
    ulps = np.abs(fused.view(np.int32) - apart.view(np.int32))
    assert int(np.count_nonzero(ulps)) == 73
    assert int(ulps.max()) == 2
    assert int(np.flatnonzero(ulps)[0]) == 8


def test_39_of_the_1000_input_values_feel_contraction() -> None:
    x = _ramp(1000)
    assert int(np.count_nonzero(_contracted(x) != _separate(x))) == 39


@pytest.mark.parametrize("terms", [_contracted, _separate])
def test_the_tree_at_two_to_the_26(terms: Any) -> None:
    """Seen on an H200: 0x4d253cb6, contracted or not."""
    values = np.resize(terms(_ramp(1000)), 1 << 26)  # the ramp repeats every 1,000 elements
    assert _total(_partials(values, 1024)) == 0x4D253CB6


@pytest.mark.parametrize("terms", [_contracted, _separate])
def test_the_published_edits_keep_the_total(terms: Any) -> None:
    """Twice the blocks, or pass 2 from the last partial to the first: on this input the same total."""
    values = terms(_ramp(PUBLISHED_N))
    assert _total(_partials(values, 2048)) == 0x4B25426D
    assert _total(_partials(values, 1024)[::-1].copy()) == 0x4B25426D


def test_the_edits_are_other_sums_on_another_input() -> None:
    """They are real edits: with random terms each gives another total. The equality above is luck."""
    terms = generate(resolve("x", "normal", 1 << 20, "float32", {"seed": 68}))
    baseline = _total(_partials(terms, 1024))
    assert _total(_partials(terms, 2048)) != baseline
    assert _total(_partials(terms, 1024)[::-1].copy()) != baseline


# --- Tolerances --------------------------------------------------------------------------------


def _arrivals(values: Floats, seed: int) -> float:
    """One float32 accumulator from +0, the values in a shuffled order."""
    order = np.random.default_rng(seed).permutation(len(values))
    return float(np.cumsum(values[order], axis=0, dtype=np.float32).reshape(-1)[-1])


def test_one_atomic_a_block_stays_within_its_tolerance_and_churns() -> None:
    case = _kernel("bundled", "sum_tree_atomic").cases[0]
    x = _ramp(case.n)
    exact = kahan_values("sum", case.inputs, {"x": x}, 1)[0]
    totals = {_arrivals(_partials(x, 1024), seed) for seed in range(20)}
    assert len(totals) > 1
    assert case.rel_tol is not None
    assert max(abs(t - exact) / exact for t in totals) < case.rel_tol / 5


def test_one_atomic_an_element_cannot_meet_1e_5() -> None:
    """Whole warps in a shuffled order, lanes in theirs: outside 1e-5, inside the declared tolerance."""
    case = _kernel("bundled", "sum_global_atomic").cases[0]
    x = _ramp(case.n)
    exact = kahan_values("sum", case.inputs, {"x": x}, 1)[0]
    warps = x.reshape(-1, 32)
    errors = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(warps))
        total = float(np.cumsum(warps[order].reshape(-1), dtype=np.float32)[-1])
        errors.append(abs(total - exact) / exact)
    assert case.rel_tol is not None
    assert max(errors) > 1e-5
    assert max(errors) < case.rel_tol


# --- What the suites declare -------------------------------------------------------------------


def test_the_six_kernels() -> None:
    suite = load_suite(bundled_suite())
    assert suite.name == "reprodb"
    six = select_kernels(suite, (), ("published",))
    assert [(k.name, k.determinism, k.cases[0].name) for k in six] == [
        ("sum_global_atomic", Determinism.NOT_GUARANTEED, "ramp1000-4194304"),
        ("sum_shared_atomic", Determinism.NOT_GUARANTEED, "ramp1000-4194304"),
        ("sum_squares_atomic", Determinism.NOT_GUARANTEED, "ramp1000-4194915"),
        ("sum_squares_kahan_atomic", Determinism.NOT_GUARANTEED, "ramp1000-4194915"),
        ("sum_squares_tree", Determinism.RUN_TO_RUN, "ramp1000-4194915"),
        ("sum_tree_atomic", Determinism.NOT_GUARANTEED, "ramp1000-4194304"),
    ]
    assert all(k.shape_defines == ("BLOCKS", "THREADS") for k in six)


def test_every_kernel_is_in_the_full_selection_and_the_quick_ones_run_by_default() -> None:
    suite = load_suite(bundled_suite())
    assert suite.default_tags == ("quick",)
    assert select_kernels(suite, (), ("full",)) == suite.kernels
    assert select_kernels(suite, ()) == select_kernels(suite, (), ("quick",))


@pytest.mark.parametrize(
    ("name", "guarantee"),
    [
        ("sum_squares_tree", None),
        ("sum_squares_atomic", Determinism.RUN_TO_RUN),
        ("sum_squares_kahan_atomic", Determinism.RUN_TO_RUN),
        ("sum_tree_atomic", Determinism.RUN_TO_RUN),
        ("sum_shared_atomic", None),  # its block sums churn with the threads
    ],
)
def test_block_sums_are_witnesses_with_their_own_guarantee(name: str, guarantee: Determinism | None) -> None:
    buffers = {b.name: b for b in _kernel("bundled", name).cases[0].buffers}
    assert (buffers["partials"].role, buffers["partials"].shape) == (Role.WITNESS, (1024,))
    assert buffers["partials"].determinism is guarantee


def test_accumulators_that_atomics_meet_in_start_at_zero() -> None:
    for root in ROOTS.values():
        for kernel in load_suite(root).kernels:
            if "atomic" in kernel.tags and "append" not in kernel.name:
                results = [b for b in kernel.cases[0].buffers if b.role is Role.RESULT]
                assert [b.init for b in results] == ["zero"], kernel.name


def test_every_manifest_of_the_bundled_suite_gives_a_reason_for_its_tolerance() -> None:
    for kernel in load_suite(bundled_suite()).kernels:
        text = (bundled_suite() / kernel.manifest).read_text(encoding="utf-8")
        assert "# Tolerance: " in text, kernel.name


def test_the_edits_differ_from_the_baseline_in_one_thing_each() -> None:
    base, shape, order = (_kernel("edits", n) for n in ("tree", "tree_2048_blocks", "tree_reversed"))
    assert (shape.source, shape.order, shape.shape_defines) == (base.source, base.order, base.shape_defines)
    assert shape.stages[0].grid == (2048, 1, 1)
    assert (order.stages, order.defines) == (base.stages, base.defines)
    assert order.source != base.source
    assert order.order != base.order


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("row0_of_4", "row0_of_8"),
        ("zeros_exact", "zeros_padded"),
        ("slot_nan_a", "slot_number"),
        ("barrier_kept", "barrier_missing"),
        ("two_outputs", "two_outputs_one_moved"),
        ("ring", "ring_fused"),
    ],
)
def test_cases_that_are_compared_have_the_same_input(left: str, right: str) -> None:
    assert _kernel("cases", left).cases[0].inputs == _kernel("cases", right).cases[0].inputs


@pytest.mark.parametrize(("name", "lanes"), [("zeros_exact", 32), ("zeros_padded", 64)])
def test_the_sum_of_zeros_has_the_sign_that_its_case_pins(name: str, lanes: int) -> None:
    case = _kernel("cases", name).cases[0]
    values = np.zeros(lanes, np.float32)
    values[:32] = generate(case.inputs[0])
    bits = f"0x{int(_fold(values).view(np.uint32)):08x}"
    assert case.expected == (("total", bits),)


# --- The manual's own kernel --------------------------------------------------------------------


FILES = re.compile(r"^```(?:cuda|toml)\n(?://|#) (mysuite/\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    """The suite of docs/suites.md, laid out as its first comments say."""
    text = (DOCS / "suites.md").read_text(encoding="utf-8")
    for name, content in FILES.findall(text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path / "mysuite"


def test_the_manuals_kernel_is_right(manual: Path) -> None:
    (kernel,) = load_suite(manual).kernels
    case = kernel.cases[0]
    rows = generate(case.inputs[0]).reshape(64, 1024)
    sums = np.zeros((64, 128), np.float32)
    for piece in rows.reshape(64, 8, 128).swapaxes(0, 1):
        sums += piece
    outputs = (OutputSamples(case.buffers[0], (_fold(sums).tobytes(),), (0,)),)
    assert judge(kernel, case, {}, outputs).verdict is Accuracy.OK


# --- Compiling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["default", "cuda12"])
def test_every_kernel_compiles(profile: str, manual: Path) -> None:
    """With NVRTC 13 and 12, every entry that a stage names present in the PTX."""
    wanted = load_profiles(bundled_profiles())[profile]
    toolchain = catalog.match(wanted, catalog.find())
    assert toolchain is not None
    requests = [
        build.request(suite, kernel, wanted, toolchain, "sm_90")
        for suite in map(load_suite, (*ROOTS.values(), manual))
        for kernel in suite.kernels
        if kernel.program is None  # programs are built by their own commands, where they run
    ]
    failed = {}
    for done in pool.compile_all(requests, 2):
        asked, output = requests[done.number], done.output
        absent = [e for e in asked.entries if f".entry {e}(" not in (output.ptx or "")]
        if not output.ok or absent or not output.cubin:
            failed[asked.kernel] = output.log or absent
    assert failed == {}
