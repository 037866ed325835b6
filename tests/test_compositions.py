"""Compositions: which requests are served when, in a manifest and by the model, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb import compositions
from reprodb.compositions import compose, most_served, served
from reprodb.domain import Composition, Kernel
from reprodb.errors import UsageError
from reprodb.suite import bundled_suite, load_suite

SIZES = (1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 127, 256)
# Made once by this code and written down.
PINNED_SIZES = [4, 1, 113, 3]
PINNED_ORDERS = [
    [2, 39, 20, 8, 41, 13],
    [11, 292, 158, 37, 411, 448],
    [350, 244, 45, 6, 17, 38],
    [42, 36, 427, 439, 250, 440],
]
BATCHED = Composition(484, 64, 32, SIZES, 484, ("requests", "logits", "ranked"), "row_logits_serial")

COMPOSITIONS = st.builds(
    lambda probes, others, strangers, batches, seed: Composition(
        probes + others, probes, strangers, tuple(batches), seed, ("x", "y")
    ),
    st.integers(1, 40),
    st.integers(0, 60),
    st.integers(0, 60),
    st.lists(st.integers(1, 50), min_size=1, max_size=6, unique=True),
    st.integers(0, 2**63 - 1),
)


# --- Laws --------------------------------------------------------------------------------------


@given(COMPOSITIONS, st.integers(0, 3000))
def test_every_probe_is_served_once_and_every_launch_is_full(composition: Composition, number: int) -> None:
    made = compose(composition, number)
    assert len(made.order) == made.launches * made.batch == served(composition, made.batch)
    assert len(made.order) <= most_served(composition)
    assert made.order[made.places].tolist() == list(range(composition.probes))
    strangers = np.delete(made.order, made.places)
    assert len(strangers) >= composition.strangers
    assert ((strangers >= 0) & (strangers < composition.requests)).all()
    if len(strangers) <= composition.requests - composition.probes:
        assert (strangers >= composition.probes).all()
        assert max(Counter(strangers.tolist()).values(), default=1) == 1


@given(COMPOSITIONS, st.integers(0, 3000))
def test_a_composition_follows_from_its_number_alone(composition: Composition, number: int) -> None:
    first, again = compose(composition, number), compose(composition, number)
    assert (first.batch, first.order.tolist()) == (again.batch, again.order.tolist())


@given(COMPOSITIONS)
def test_the_first_sizes_are_those_of_the_manifest(composition: Composition) -> None:
    sizes = [compose(composition, number).batch for number in range(len(composition.batches))]
    assert sizes == list(composition.batches)
    assert compose(composition, len(composition.batches)).batch <= max(composition.batches)


def test_random_words_are_those_of_splitmix64() -> None:
    """Seed 0: the first three outputs of the generator's reference code."""
    steps = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [f"{int(w):016x}" for w in compositions.mix(steps)] == [
        "e220a8397b1dcdaf",
        "6e789e6aa1b965f4",
        "06c45d188009454f",
    ]


def test_the_bundled_compositions_are_pinned() -> None:
    """Another composition is another experiment: these numbers may not move with a library or a machine."""
    made = [compose(BATCHED, number) for number in (3, 12, 13, 2356)]
    assert [c.batch for c in made] == PINNED_SIZES
    assert [c.order[:6].tolist() for c in made] == PINNED_ORDERS


def test_2357_compositions_meet_every_size_up_to_129_and_ever_other_company() -> None:
    made = [compose(BATCHED, number) for number in range(2357)]
    sizes = Counter(c.batch for c in made[12:])
    assert set(range(1, 130)) <= sizes.keys()
    assert max(sizes) == 256
    assert len({c.order.tobytes() for c in made}) == 2357
    places = {int(c.places[0]) % c.batch for c in made}
    assert len(places) > 100  # where in its launch probe 0 stands
    company = {int(r) for c in made for r in c.order}
    assert company == set(range(484))


def test_the_bundled_kernel_has_this_composition() -> None:
    found = {kernel.name: kernel.composition for kernel in load_suite(bundled_suite()).kernels}
    assert found["row_logits_batched"] == BATCHED


# --- Manifests ---------------------------------------------------------------------------------

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
probes = 2
batches = [1, 4]
serial = "alone"

[[buffer]]
name = "y"
dtype = "float32"
shape = ["PROBES", 3]
role = "result"

[[stage]]
entry = "rows"
grid = [2, "BATCH"]
block = 32
args = ["x", "y", "BATCH"]

[[case]]
input = "ones"
n = 32
"""


def suite_with(folder: Path, edit: Callable[[str], str] = lambda text: text) -> Kernel:
    alone = MANIFEST.replace('"rows"', '"alone"', 1).replace("batches = [1, 4]", "batches = [1]")
    for name, text in {"alone": alone.replace('serial = "alone"\n', ""), "rows": edit(MANIFEST)}.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "kernel.toml").write_text(text, encoding="utf-8")
        (folder / name / "rows.cu").write_text('extern "C" __global__ void rows() {}', encoding="utf-8")
    return next(k for k in load_suite(folder).kernels if k.manifest == "rows/kernel.toml")


def test_a_manifest_declares_a_composition(tmp_path: Path) -> None:
    kernel = suite_with(tmp_path)
    assert kernel.composition == Composition(8, 2, 2, (1, 4), 0, ("x", "y"), "alone")
    (stage,) = kernel.stages
    assert (stage.grid, stage.per_batch) == ((2, 1, 1), (False, True, False))
    assert (stage.at(4).grid, stage.dims) == ((2, 4, 1), ("2", "BATCH"))
    assert [arg.kind.value for arg in stage.args] == ["input", "buffer", "batch"]
    assert kernel.cases[0].buffers[0].shape == (2, 3)


def test_without_a_promise_a_pattern_has_a_part_for_every_size(tmp_path: Path) -> None:
    kernel = suite_with(tmp_path, lambda text: text.replace("batch_invariant = true\n", ""))
    assert kernel.cases[0].buffers[0].shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("requests = 8", "requests = 0", ["requests = 0", "1 to"]),
        ("probes = 2", "probes = 9", ["probes = 9", "1 to 8"]),
        ("probes = 2", "probes = 2\nstrangers = -1", ["strangers = -1"]),
        ("probes = 2", "probes = 2\nbatch = 3", ["unknown key 'batch'", "batches"]),
        ("batches = [1, 4]", "batches = []", ["batches = []", "sizes from 1"]),
        ("batches = [1, 4]", "batches = [1, 1]", ["batches = [1, 1]", "different"]),
        ("batches = [1, 4]", "batches = [70000]", ["70000", "65535"]),
        ("batches = [1, 4]", "batches = [true]", ["batches = [True]"]),
        ('input = "x"', 'input = "z"', ["input = 'z'", "x"]),
        ('serial = "alone"', 'serial = "alon"', ["'alon'", "did you mean 'alone'?"]),
        ('serial = "alone"', 'serial = "rows"', ["'rows'", "one request a launch"]),
        ("n = 32", "n = 31", ["31 elements", "each of the 8 requests"]),
        ('["PROBES", 3]', "[2, 3]", ["no buffer has a row a request", "'PROBES'"]),
        ('[2, "BATCH"]', '[2, "BATCH + 1"]', ["a constant multiplied by it"]),
        ('[2, "BATCH"]', '[2, "BATCH * BATCH"]', ["a constant multiplied by it"]),
        ("block = 32", 'block = "BATCH"', ["block = 'BATCH'", "no define is called 'BATCH'"]),
        ('grid = [2, "BATCH"]', "grid = 2", []),
        ('"y", "BATCH"]', '"y"]', []),
        ('role = "result"', 'role = "result"\ninit = "copy:x"', ["'copy:x'", "poison or zero"]),
        ("n = 32", 'n = 48\nreference = "sum"\nrel_tol = 1e-5', ["'sum' beside a [composition]", "sha256"]),
        ("batch_invariant = true", "fingerprint = true", ["fingerprint", "beside a [composition]"]),
        ("batch_invariant = true", "defines = { BATCH = 4 }", ["define 'BATCH'", "its own"]),
    ],
)
def test_what_a_composition_may_not_say(tmp_path: Path, old: str, new: str, said: list[str]) -> None:
    assert old in MANIFEST
    if not said:  # one of the two ways to hear of BATCH is enough
        assert suite_with(tmp_path, lambda text: text.replace(old, new)).composition is not None
        return
    with pytest.raises(UsageError) as caught:
        suite_with(tmp_path, lambda text: text.replace(old, new))
    for words in said:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("probes = 2", "probes = 9"),
        ("batches = [1, 4]", "batches = [0]"),
        ("requests = 8\n", ""),
        ("batch_invariant = true", "defines = { BATCH = 4 }"),
    ],
)
def test_one_mistake_in_a_composition_is_one_complaint(tmp_path: Path, old: str, new: str) -> None:
    """PROBES and BATCH stay known, so that neither buffers nor stages complain of them."""
    assert old in MANIFEST
    with pytest.raises(UsageError) as caught:
        suite_with(tmp_path, lambda text: text.replace(old, new))
    assert "[composition]" in str(caught.value)
    assert "[[buffer]]" not in str(caught.value)
    assert "[[stage]]" not in str(caught.value)


def test_some_stage_must_follow_the_batch(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        suite_with(
            tmp_path, lambda t: t.replace('grid = [2, "BATCH"]', "grid = 2").replace(', "BATCH"]', "]")
        )
    assert "no stage follows BATCH" in str(caught.value)


def test_without_a_composition_there_is_no_batch(tmp_path: Path) -> None:
    start, end = MANIFEST.index("[composition]"), MANIFEST.index("[[buffer]]")
    with pytest.raises(UsageError) as caught:
        suite_with(tmp_path, lambda text: text.replace(MANIFEST[start:end], ""))
    assert "BATCH in a manifest with a [composition]" in str(caught.value)
