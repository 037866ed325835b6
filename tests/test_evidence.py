"""The committed bundles of an H200 hold the published bits, and the model predicts every guaranteed one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprodb.artifacts import ArtifactStore
from reprodb.build import build_each, request
from reprodb.digest import hex64, sha256
from reprodb.domain import Artifact, Lane, Result, Suite
from reprodb.errors import UnsupportedError
from reprodb.executors.model import ModelExecutor
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.store import open_store
from reprodb.store.bundles import import_bundle
from reprodb.store.store import Store
from reprodb.suite import bundled_suite, load_suite
from reprodb.toolchains import catalog
from tests import shared

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "reports" / "evidence"
BUNDLES = ("h200-suite-1", "h200-suite-2", "h200-edits")
# NVRTC of both majors, with and without contraction: what the model is given to predict.
PREDICTED = ("default", "no-fmad", "fast-math", "cuda12", "cuda12-no-fmad")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A database with the bundles, as anybody would import them."""
    with open_store(str(tmp_path_factory.mktemp("evidence") / "evidence.db"), write=True) as opened:
        import_bundle(opened, [EVIDENCE / f"{name}.reprodb" for name in BUNDLES])
        yield opened


def rows(store: Store, label: str) -> tuple[Result, ...]:
    number = store.resolve(label).run_id
    assert number is not None
    run = store.run(number)
    assert run.lane is Lane.MEASURED
    assert run.environment.device is not None
    assert run.environment.device.name == "NVIDIA H200"
    return store.results(number)


@pytest.mark.parametrize("label", ["h200-suite-1", "h200-suite-2"])
def test_the_tree_has_the_published_bits_under_all_nine_profiles(store: Store, label: str) -> None:
    trees = [r for r in rows(store, label) if r.kernel.name == "sum_squares_tree"]
    toolchains = {r.build.toolchain.label for r in trees if r.build}
    assert toolchains == {"nvrtc 12.6.85", "nvrtc 13.5.37", "nvcc 12.4.131", "nvcc 13.0.88"}
    assert len(trees) == 9
    for row in trees:
        total = row.results[0]
        # Published for a Tesla T4 with CUDA 12.6: 1 pattern of 100, first bits, FNV-1a 64 of the 100 words.
        assert (total.distinct, total.first_bits) == (1, "0x4b25426d"), row.profile
        assert hex64(total.run_hash) == "0x8189389fe1bc0a65"


def test_atomics_churn_and_their_block_sums_do_not(store: Store) -> None:
    for row in rows(store, "h200-suite-1"):
        if row.kernel.name != "sum_squares_tree":
            assert row.results[0].distinct > 1, (row.kernel.name, row.profile)
        for witness in row.witnesses:
            assert witness.distinct == 1 or not witness.determinism.guaranteed


def test_each_published_edit_keeps_one_pattern(store: Store) -> None:
    found = rows(store, "h200-edits")
    assert {r.kernel.name for r in found} == {"tree", "tree_2048_blocks", "tree_reversed"}
    assert {r.results[0].first_bits for r in found} == {"0x4b25426d"}
    assert {r.results[0].distinct for r in found} == {1}


@pytest.mark.parametrize(
    ("label", "suite"),
    [("h200-suite-1", bundled_suite()), ("h200-edits", ROOT / "tests" / "suites" / "edits")],
)
def test_the_model_predicts_every_guaranteed_pattern_and_witness(
    store: Store, label: str, suite: Path
) -> None:
    """Compiled here, executed on the CPU: the same bytes as the GPU's, buffer by buffer."""
    measured = {(r.kernel.name, r.profile): r for r in rows(store, label)}
    # What came to the suite after that night is not in it.
    names = {name for name, _ in measured}
    loaded = load_suite(suite)
    loaded = replace(loaded, kernels=tuple(k for k in loaded.kernels if k.name in names))
    assert {k.name for k in loaded.kernels} == names
    executor = ModelExecutor(shared.store() / "model")
    compared = 0
    for artifact, kernel_name, profile in _artifacts(loaded):
        row = measured[kernel_name, profile]
        kernel = next(k for k in loaded.kernels if k.name == kernel_name)
        case = kernel.cases[0]
        samples = executor.execute(artifact, replace(kernel, cases=(case,)), case, 1)
        predicted = {o.buffer.name: sha256(o.patterns[0]) for o in samples.outputs}
        for output in row.outputs:
            if output.determinism.guaranteed:
                assert predicted[output.name] == output.sha256, (kernel_name, profile, output.name)
                compared += 1
    # The suite: total and partials of the tree, partials of two atomic kernels and of the atomic tree.
    assert compared == len(PREDICTED) * sum(
        (b.determinism or k.determinism).guaranteed for k in loaded.kernels for b in k.cases[0].recorded
    )


def _artifacts(suite: Suite) -> Iterator[tuple[Artifact, str, str]]:
    """Every kernel under the predicted profiles, with the names of kernel and profile."""
    profiles = load_profiles(bundled_profiles())
    found = catalog.find()
    wanted = []
    for kernel in suite.kernels:
        for name in PREDICTED:
            toolchain = catalog.match(profiles[name], found)
            assert toolchain is not None, f"{name} needs its NVRTC: pip install 'reprodb[cpu]'"
            wanted.append(request(suite, kernel, profiles[name], toolchain, "sm_90"))
    for asked, artifact in build_each(wanted, ArtifactStore(shared.store())):
        yield artifact, asked.kernel, asked.profile.name


# What the model must refuse in the conformance suite, by the words of which its reason holds one.
REFUSED = {
    "f32_plain_division": ("approx",),
    "polynomial": ("approx",),
    "recursion": ("recursive",),
    "remainders": ("approx", "which multiplications were fused into additions cannot be told"),
    "scaling": ("approx",),
}


@pytest.fixture(scope="module")
def conformance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A database with 1,080 rows that the H200 measured: three compilers by three sets of flags."""
    with open_store(str(tmp_path_factory.mktemp("conformance") / "evidence.db"), write=True) as opened:
        import_bundle(opened, [EVIDENCE / "h200-conformance.reprodb"])
        yield opened


def predict(store: Store, found: tuple[Result, ...]) -> tuple[int, int]:
    """Execute the bundle's own PTX and compare every output; (rows equal, rows refused)."""
    executor = ModelExecutor()
    equal = refused = 0
    for row in found:
        assert row.build is not None
        ptx, sass = store.code_texts(row.build.key)
        where = (row.kernel.name, row.case.name, row.profile)
        try:
            samples = executor.execute(Artifact(row.build, ptx=ptx, sass=sass), row.kernel, row.case, 1)
        except UnsupportedError as error:
            assert any(words in str(error) for words in REFUSED[row.kernel.name]), where
            refused += 1
            continue
        predicted = {o.buffer.name: sha256(o.patterns[0]) for o in samples.outputs}
        assert predicted == {o.name: o.sha256 for o in row.outputs}, where
        equal += 1
    return equal, refused


def test_unseen_kernels_are_predicted_bit_for_bit(conformance: Store) -> None:
    """Every 41st row, so that kernels, compilers and flags take turns; `make soak` takes all 1,080."""
    found = rows(conformance, "h200-conformance")
    equal, refused = predict(conformance, found[::41])
    assert (equal + refused, refused) == (27, 1)


@pytest.mark.soak
def test_all_unseen_kernels_are_predicted_bit_for_bit(conformance: Store) -> None:
    found = rows(conformance, "h200-conformance")
    assert {r.profile for r in found} == {
        f"{compiler}{flags}"
        for compiler in ("nvrtc12", "nvrtc13", "nvcc13")
        for flags in ("", "-no-fmad", "-fast-math")
    }
    assert predict(conformance, found) == (1044, 36)
