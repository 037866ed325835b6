"""What an H200 measured of the reduction family, SUM-24 and the batches, and the model's prediction of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from reprodb.digest import sha256
from reprodb.domain import Accuracy, Artifact, Determinism, Result
from reprodb.executors.model import ModelExecutor
from reprodb.store import open_store
from reprodb.store.bundles import import_bundle
from reprodb.store.store import Store
from tests.test_evidence import EVIDENCE, rows

BUNDLES = ("batch", "compositions", "family", "libraries", "night-cuda12", "night-cuda13")
PROFILES = {
    "default", "no-fmad", "fast-math", "cuda12", "cuda12-no-fmad", "nvcc12", "nvcc12-no-fmad", "nvcc13",
    "nvcc13-no-fmad",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(str(tmp_path_factory.mktemp("family") / "evidence.db"), write=True) as opened:
        import_bundle(opened, [EVIDENCE / f"h200-{name}.reprodb" for name in BUNDLES])
        yield opened


def predicted(store: Store, found: tuple[Result, ...]) -> int:
    """Execute the bundle's own PTX; how many guaranteed outputs are equal, all of which must be."""
    executor = ModelExecutor()
    equal = 0
    for row in found:
        assert row.build is not None
        ptx, sass = store.code_texts(row.build.key)
        samples = executor.execute(Artifact(row.build, ptx=ptx, sass=sass), row.kernel, row.case, 1)
        modelled = {o.buffer.name: sha256(o.patterns[0]) for o in samples.outputs}
        for output in row.outputs:
            if output.determinism.guaranteed:
                assert output.distinct == 1, (row.kernel.name, row.profile, output.name)
                assert modelled[output.name] == output.sha256, (row.kernel.name, row.profile, output.name)
                equal += 1
    return equal


def test_the_family_is_what_the_model_predicts(store: Store) -> None:
    """Every eleventh row of 12 kernels under 9 profiles; `make soak` takes all."""
    found = rows(store, "family-h200")
    assert {r.profile for r in found} == PROFILES
    assert len(found) == 108
    assert predicted(store, found[::11]) == 19


@pytest.mark.soak
def test_all_of_the_family_is_what_the_model_predicts(store: Store) -> None:
    assert predicted(store, rows(store, "family-h200")) == 207


def test_appending_shows_the_same_elements_in_other_orders(store: Store) -> None:
    for row in rows(store, "family-h200"):
        if row.kernel.name == "append_atomic":
            items = next(o for o in row.outputs if o.name == "items")
            assert items.determinism is Determinism.NOT_GUARANTEED
            assert items.distinct > 1, row.profile


def test_sum_24_is_0_or_1_by_its_grouping_under_every_build(store: Store) -> None:
    bits = {
        name: {r.results[0].first_bits for r in rows(store, "batch-h200") if r.kernel.name == name}
        for name in ("sum24_left", "sum24_right", "sum24_widened", "sum24_float64")
    }
    assert bits == {
        "sum24_left": {"0x00000000"},
        "sum24_right": {"0x3f800000"},
        "sum24_widened": {"0x0000000000000000"},
        "sum24_float64": {"0x3ff0000000000000"},
    }


def test_no_composition_of_a_batch_moved_a_probe(store: Store) -> None:
    """12 fixed sizes, 2,345 shuffled compositions: the serial kernel's one pattern; 484 right lists."""
    found = {r.kernel.name: r for r in rows(store, "batch-h200-compositions")}
    batched, serial = found["row_logits_batched"], found["row_logits_serial"]
    assert batched.repetitions == 2357
    assert batched.batches[:12] == (1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 127, 256)
    assert len(set(batched.batches)) == 243
    assert all(o.distinct == 1 for o in batched.outputs)
    alone = {o.name: o.sha256 for o in serial.outputs}
    assert {o.name: o.sha256 for o in batched.outputs} == alone
    for name in ("row_logits_batched", "row_logits_serial", "row_logits_ranked"):
        assert found[name].accuracy.verdict is Accuracy.OK, name


def test_a_split_by_the_batch_gave_14_requests_another_best_word(store: Store) -> None:
    """Of 64 probes with BATCH 8, under every build; with BATCH 64, where nothing is split, none."""
    found = {(r.kernel.name, r.profile): r for r in rows(store, "batch-h200")}

    def words(kernel: str, profile: str, *shape: int) -> NDArray[np.uint32]:
        output = next(o for o in found[kernel, profile].outputs if o.name == "ranked")
        return np.frombuffer(store.pattern(output.sha256), np.uint32).reshape(shape)

    for profile in PROFILES:
        split = words("row_logits_split_k", profile, 2, 64, 16)
        alone = words("row_logits_serial", profile, 64, 16)
        assert np.count_nonzero(split[0, :, 0] != alone[:, 0]) == 14, profile
        assert np.count_nonzero((split[0] != alone).any(axis=1)) == 57, profile
        assert np.array_equal(split[1], alone), profile


def test_batches_are_what_the_model_predicts(store: Store) -> None:
    found = rows(store, "batch-h200")
    assert {r.profile for r in found} == PROFILES
    assert predicted(store, found[::7]) == 17


def test_of_the_libraries_only_what_may_vary_does(store: Store) -> None:
    """cuBLAS says that symv may vary where atomics are allowed: on the H200 it does, and nothing else."""
    found = {r.kernel.name: r for r in rows(store, "lib-h200-1")}
    distinct = {name: r.results[0].distinct for name, r in found.items()}
    assert distinct.pop("lib_cublas_ssymv_atomics") == 100
    assert set(distinct.values()) == {1}
    assert len(distinct) == 11
    for name in ("lib_cublas_sgemm", "lib_cublas_sgemv"):
        assert found[name].results[0].sha256 == found[f"{name}_atomics"].results[0].sha256
    # Another order than the published tree's gives another sum of the same input.
    assert found["lib_cub_reduce"].results[0].first_bits == "0x4abff678"
    assert found["lib_cub_reduce_portable"].results[0].first_bits == "0x4abff679"


def test_the_trees_measured_order_is_the_models_under_every_build(store: Store) -> None:
    """The digest is the one that `reprodb order sum_squares_tree --device model` gives at the same size."""
    nights = (*rows(store, "night-cuda12-77-1"), *rows(store, "night-cuda13-77-1"))
    trees = {r.profile: r.fingerprint for r in nights if r.kernel.name == "sum_squares_tree"}
    assert trees.keys() == PROFILES
    assert {f.digest[:16] for f in trees.values() if f and f.digest} == {"3a1d673ee16d007d"}
    assert all(f is not None and f.distinct == 1 for f in trees.values())


def test_the_familys_orders_are_the_models_under_every_build(store: Store) -> None:
    """The digests are those that `reprodb order NAME --device model` gives at the same sizes."""
    found: dict[str, set[str]] = {}
    for row in rows(store, "family-h200"):
        if row.fingerprint is not None:
            assert row.fingerprint.distinct == 1, (row.kernel.name, row.profile)
            found.setdefault(row.kernel.name, set()).add((row.fingerprint.digest or "")[:16])
    # One tree over threads and blocks has three types and two ways to fold the blocks.
    assert found == {
        "sum_bf16": {"5cd9b2b5501a34ad"},
        "sum_float64": {"5cd9b2b5501a34ad"},
        "sum_last_block": {"5cd9b2b5501a34ad"},
        "sum_float4": {"892c8dbb03e317e3"},
        "sum_warp_shuffle": {"db96f694226c1494"},
        "sum_tree_fast": {"fa9f19df751ad2a0"},
    }
