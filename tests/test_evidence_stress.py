"""What an H200 measured under stress, and of the order of summation of edits and libraries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reprodb.dependence import broken_under
from reprodb.domain import Fingerprint, Result
from reprodb.store import open_store
from reprodb.store.bundles import import_bundle
from reprodb.store.store import Store
from tests.test_evidence import EVIDENCE, rows
from tests.test_evidence_family import PROFILES

pytestmark = pytest.mark.xdist_group("evidence-stress")

CONDITIONS = {"plain", "poison-00", "poison-ff", "offset", "fresh", "contention"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    bundles = [EVIDENCE / f"h200-{name}.reprodb" for name in ("edits", "stress", "quick-stress", "libraries")]
    with open_store(str(tmp_path_factory.mktemp("stress") / "evidence.db"), write=True) as opened:
        import_bundle(opened, bundles)
        yield opened


def named(found: tuple[Result, ...]) -> set[tuple[str, str]]:
    return {(result.kernel.name, result.condition) for result, _ in broken_under(found)}


def test_each_fault_is_named_by_its_stress_under_every_build(store: Store) -> None:
    found = rows(store, "h200-stress")
    assert {r.condition for r in found} == CONDITIONS
    for profile in PROFILES:
        assert named(tuple(r for r in found if r.profile == profile)) == {
            ("by_address", "offset"),
            ("by_address", "fresh"),
            ("reads_unset", "poison-00"),
            ("reads_unset", "poison-ff"),
        }, profile


def test_no_bundled_kernel_depends_on_a_stress(store: Store) -> None:
    found = rows(store, "h200-quick-stress")
    assert {r.condition for r in found} == CONDITIONS
    assert sum(r.condition != "plain" for r in found) == 91
    assert named(found) == set()


def order(found: tuple[Result, ...], kernel: str, profile: str) -> Fingerprint:
    (result,) = (r for r in found if (r.kernel.name, r.profile, r.condition) == (kernel, profile, "plain"))
    assert result.fingerprint is not None
    return result.fingerprint


def test_the_edits_moved_the_order_and_a_flag_did_not(store: Store) -> None:
    """58 of 92 pairs meet elsewhere with 2,048 blocks, 8 in the reversed pass; nine builds agree."""
    found = rows(store, "h200-edits")
    published = order(found, "tree", "default")
    assert (published.digest or "")[:16] == "3a1d673ee16d007d"
    for kernel, moved in (("tree", 0), ("tree_2048_blocks", 58), ("tree_reversed", 8)):
        for profile in PROFILES:
            other = order(found, kernel, profile)
            assert len(other.pairs) == 92
            assert len(set(other.pairs) - set(published.pairs)) == moved, (kernel, profile)


def test_a_closed_librarys_order_is_measured(store: Store) -> None:
    """cuBLAS sums a row of W·x in one order with atomics allowed or not; symv is where they matter."""
    found = rows(store, "lib-h200-1")
    gemv = order(found, "lib_cublas_sgemv", "library")
    assert (gemv.digest or "")[:12] == "e066ff820610"
    assert order(found, "lib_cublas_sgemv_atomics", "library") == gemv
    with_atomics = order(found, "lib_cublas_ssymv_atomics", "library")
    apart = {(i, j) for i, j, _ in order(found, "lib_cublas_ssymv", "library").pairs}
    assert {(i, j) for i, j, _ in with_atomics.pairs} <= apart
