"""The reduction family on the model: every guaranteed output is what NumPy gives in the pinned order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reprodb.accuracy import exact_values, judge
from reprodb.bits import values_of
from reprodb.domain import Accuracy, Determinism, Kernel, OutputSamples, Profile
from reprodb.executors.model.engine import run_stages
from reprodb.inputs import generate
from reprodb.suite import bundled_suite, load_suite
from tests import orders
from tests.built import built
from tests.command import reprodb

Array = NDArray[Any]
Answers = Mapping[str, Array]


def kernel_named(name: str) -> Kernel:
    return next(k for k in load_suite(bundled_suite()).kernels if k.name == name)


@cache
def arrays_of(name: str) -> dict[str, Array]:
    case = kernel_named(name).cases[0]
    return {i.name: generate(i) for i in case.inputs}


def terms(name: str) -> Array:
    """The elements as float32 values, exact for the narrower types."""
    (spec,) = kernel_named(name).cases[0].inputs
    return values_of(arrays_of(name)[spec.name], spec.dtype).astype(np.float32)


# --- Independent answers -----------------------------------------------------------------------


def two_pass(values: Array, blocks: int = 64) -> Answers:
    partials = orders.block_sums(values, blocks)
    return {"partials": partials, "total": orders.folded(partials)}


def by_shuffles(values: Array) -> Answers:
    partials, total = orders.shuffled(values, 64)
    return {"partials": partials, "total": total}


def by_quads(values: Array) -> Answers:
    partials = orders.by_quads(values, 64)
    return {"partials": partials, "total": orders.folded(partials)}


def compensated(values: Array) -> Answers:
    partials, lost, total = orders.compensated(values, 256)
    return {"partials": partials, "lost": lost, "total": total}


def rows_of_eight(name: str) -> Array:
    """Lanes 0 to 3 of a row hold four of x, lanes 4 to 7 four of y; shape (512, 8), as bits."""
    x, y = (arrays_of(name)[key].view(np.uint32).reshape(512, 4) for key in ("x", "y"))
    return np.concatenate([x, y], axis=1)


def total_order(bits: Array) -> Array:
    """Numbers by size, -0 below +0."""
    magnitude = (bits & 0x7FFFFFFF).astype(np.int64)
    return np.where(bits >> 31, -magnitude - 1, magnitude)


def largest_number(bits: Array, sign: int) -> Array:
    """Of each row the largest number (sign 1) or the smallest (-1); NaNs pass, and alone give 0x7fffffff."""
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rank = np.where(nan, np.int64(-1) << 40, sign * total_order(bits))
    best = np.take_along_axis(bits, rank.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(nan.all(axis=1), np.uint32(0x7FFFFFFF), best).astype(np.uint32)


def by_comparison(bits: Array, greater: bool) -> Array:
    """The tree of `right beats left ? right : left` over lanes 4 + 2 + 1 apart."""
    while bits.shape[1] > 1:
        half = bits.shape[1] // 2
        left, right = bits[:, :half], bits[:, half:]
        with np.errstate(invalid="ignore"):
            a, b = left.copy().view(np.float32), right.copy().view(np.float32)
            bits = np.where(b > a if greater else b < a, right, left)
    return bits[:, 0]


def max_min() -> Answers:
    bits = rows_of_eight("max_min")
    return {"largest": largest_number(bits, 1), "smallest": largest_number(bits, -1)}


def max_min_select() -> Answers:
    bits = rows_of_eight("max_min_select")
    return {"largest": by_comparison(bits, True), "smallest": by_comparison(bits, False)}


def in_flight() -> Answers:
    partials, total = orders.in_flight(terms("sum_tree_fast"), 128, 1024, 4)
    return {"partials": partials, "total": total}


ANSWERS: Mapping[str, Callable[[], Answers]] = {
    "sum_tree_fast": in_flight,
    "sum_last_block": lambda: two_pass(terms("sum_last_block")),
    "sum_device_grid": lambda: two_pass(terms("sum_device_grid"), 264),
    "sum_warp_shuffle": lambda: by_shuffles(terms("sum_warp_shuffle")),
    "sum_float4": lambda: by_quads(terms("sum_float4")),
    "sum_float64": lambda: two_pass(terms("sum_float64").astype(np.float64)),
    "sum_kahan_tree": lambda: compensated(terms("sum_kahan_tree")),
    "sum_bf16": lambda: two_pass(terms("sum_bf16")),
    "sum_f16": lambda: two_pass(terms("sum_f16")),
    "max_min": max_min,
    "max_min_select": max_min_select,
}
# The totals of the answers above, computed once with NumPy 2.4 from the raw words of PCG64 and kept.
TOTALS = {
    "sum_tree_fast": 0xC4861C2A,
    "sum_last_block": 0x3DECF000,
    "sum_device_grid": 0x3DECE400,
    "sum_warp_shuffle": 0x3DECDC00,
    "sum_float4": 0x3DECEE00,
    "sum_float64": 0x3FA66FD3D3484A00,
    "sum_kahan_tree": 0x3DECEE0F,
    "sum_bf16": 0x3E53BA00,
    "sum_f16": 0x3E2A4A00,
}


@cache
def answer(name: str) -> Answers:
    return ANSWERS[name]()


def modelled(name: str, repetitions: int = 3) -> dict[str, list[bytes]]:
    """Each recorded buffer's bytes, a repetition each, of NVRTC 13's PTX on the model."""
    kernel = kernel_named(name)
    case, artifact = kernel.cases[0], built(bundled_suite(), Profile("default", "any", "any"))[name]
    assert artifact.ptx is not None, artifact.build.log
    return run_stages(artifact.ptx, kernel.stages, case.buffers, arrays_of(name), case.n, repetitions, 7)


# --- Bits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOTALS)
def test_the_pinned_order_gives_the_total(name: str) -> None:
    total = answer(name)["total"]
    assert int(total.view(f"u{total.itemsize}")) == TOTALS[name]


# One of each way to fold; the rest is the soak's.
QUICK = ("sum_device_grid", "sum_warp_shuffle", "max_min_select")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in ANSWERS]
)
def test_the_model_gives_the_pinned_orders_bits(name: str) -> None:
    found = modelled(name)
    assert found.keys() == answer(name).keys()
    for buffer, raws in found.items():
        assert set(raws) == {answer(name)[buffer].tobytes()}, buffer


def test_sums_of_the_same_elements_in_other_orders_are_other_sums() -> None:
    """The data shows an order where there is one: five groupings of one input, five totals."""
    same = ("sum_last_block", "sum_device_grid", "sum_warp_shuffle", "sum_float4", "sum_kahan_tree")
    assert len({arrays_of(name)["x"].tobytes() for name in same}) == 1
    assert len({TOTALS[name] for name in same}) == 5


@pytest.mark.parametrize("name", TOTALS)
def test_another_shape_is_another_total(name: str) -> None:
    values = terms(name).astype(np.float64 if name == "sum_float64" else np.float32)
    totals = {two_pass(values, blocks)["total"].tobytes() for blocks in (32, 64, 128, 256)}
    assert len(totals) >= 3


@pytest.mark.parametrize("name", TOTALS)
def test_the_total_is_within_a_tenth_of_its_tolerance(name: str) -> None:
    """But for the compensated one, whose answer is the exact one rounded once."""
    kernel = kernel_named(name)
    case = kernel.cases[0]
    exact = exact_values("sum", case.inputs, arrays_of(name), 1)[0]
    error = abs(float(answer(name)["total"]) - exact) / abs(exact)
    assert case.rel_tol is not None
    assert error < case.rel_tol / 10
    if name == "sum_kahan_tree":
        assert answer(name)["total"] == np.float32(exact)


@pytest.mark.soak
def test_measured_orders_tell_the_trees_apart_and_the_types_not(tmp_path: Path) -> None:
    """The fingerprint is the tree's: float32, float64 and bfloat16 share one, other groupings do not."""
    kernels = [name for name in TOTALS if kernel_named(name).fingerprint is not None]
    chosen = [part for name in kernels for part in ("--kernel", name)]
    where = ("--db", tmp_path / "orders.db", "--store", tmp_path / "store")
    done = reprodb("run", "--device", "model", "--profile", "default", "-n", 2, *chosen, *where, "--json")
    digests = {row["kernel"]: row["fingerprint"]["digest"] for row in done.json["results"]}
    alike = {digests[name] for name in ("sum_last_block", "sum_float64", "sum_bf16")}
    others = [digests[name] for name in ("sum_device_grid", "sum_warp_shuffle", "sum_float4")]
    assert len(alike) == 1
    assert len({*alike, *others}) == 4
    assert sorted(digests) == sorted(kernels)


# --- Largest and smallest ----------------------------------------------------------------------


def test_the_rows_hold_every_pair_that_matters() -> None:
    """Zeros of both signs, numbers beside NaNs on either side, and rows of NaNs alone."""
    bits = rows_of_eight("max_min")
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    zeros = ((bits == 0).any(axis=1)) & ((bits == 0x80000000).any(axis=1))
    left, right = nan[:, :4].any(axis=1), nan[:, 4:].any(axis=1)
    assert zeros.any()
    assert (left & ~right).any()
    assert (right & ~left).any()
    assert nan.all(axis=1).any()


def test_the_instructions_have_no_order_and_the_comparison_has_one() -> None:
    bits = rows_of_eight("max_min")
    rng = np.random.default_rng(68)
    moved = 0
    for _ in range(4):
        other = bits[:, rng.permutation(8)]
        assert np.array_equal(largest_number(other, 1), largest_number(bits, 1))
        moved += int(np.count_nonzero(by_comparison(other, True) != by_comparison(bits, True)))
    assert moved > 0


# --- Arrival order -----------------------------------------------------------------------------


def test_integers_arrive_in_any_order_and_give_one_sum() -> None:
    raws = modelled("sum_int_atomic", 10)["total"]
    whole = sum(int(word) for word in arrays_of("sum_int_atomic")["x"]) % 2**32
    assert whole == 0xE894D09C
    assert set(raws) == {whole.to_bytes(4, "little")}


def test_a_list_filled_by_a_counter_holds_the_same_in_another_order() -> None:
    found = modelled("append_atomic", 10)
    x = arrays_of("append_atomic")["x"]
    kept = np.sort(x[x > np.float32(1.25)])
    assert len(kept) == 0x105
    assert set(found["count"]) == {(0x105).to_bytes(4, "little")}
    assert len(set(found["items"])) > 1
    for raw in found["items"]:
        items = np.frombuffer(raw, np.float32)
        assert np.array_equal(np.sort(items[: len(kept)]), kept)
        assert set(raw[4 * len(kept) :]) == {0xA5}  # what nobody appended to keeps its poison


# --- Contracts ---------------------------------------------------------------------------------


def test_each_declares_what_it_truly_has() -> None:
    """Additions, comparisons and integers in a constant shape hold on every GPU; a device's grid does not.

    The tree that was tuned on one GPU promises no more until another one has agreed.
    """
    declared = {
        name: kernel_named(name).determinism for name in (*ANSWERS, "sum_int_atomic", "append_atomic")
    }
    assert declared.pop("append_atomic") is Determinism.NOT_GUARANTEED
    assert declared.pop("sum_device_grid") is Determinism.RUN_TO_RUN
    assert declared.pop("sum_tree_fast") is Determinism.RUN_TO_RUN
    assert set(declared.values()) == {Determinism.GPU_TO_GPU}


def test_the_device_grid_follows_the_device() -> None:
    found = {
        sms: next(k for k in load_suite(bundled_suite(), sms).kernels if k.name == "sum_device_grid")
        for sms in (40, 132)
    }
    assert [k.stages[0].grid for k in found.values()] == [(80, 1, 1), (264, 1, 1)]
    values = terms("sum_device_grid")
    assert two_pass(values, 80)["total"] != two_pass(values, 264)["total"]


def test_the_compensated_total_is_judged_and_the_plain_one_would_fail_there() -> None:
    kernel = kernel_named("sum_kahan_tree")
    case = kernel.cases[0]
    total = next(b for b in case.buffers if b.name == "total")
    for value, verdict in (
        (TOTALS["sum_kahan_tree"], Accuracy.OK),
        (TOTALS["sum_last_block"], Accuracy.OUTSIDE),
    ):
        samples = OutputSamples(total, (value.to_bytes(4, "little"),), (0,))
        assert judge(kernel, case, arrays_of("sum_kahan_tree"), (samples,)).verdict is verdict
