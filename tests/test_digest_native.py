"""FNV-1a 64 by compiled loops, and by NumPy where there are none, is as defined, of any buffer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb import digest, digest_native
from reprodb.digest import FNV_OFFSET, FNV_PRIME, fnv1a64, run_hash
from reprodb.digest_native import LANES, hashes

STATES = st.integers(0, 2**64 - 1)
DATA = np.random.default_rng(5).bytes(10_000)


def by_the_byte(data: bytes, state: int = FNV_OFFSET) -> int:
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return state


@pytest.fixture
def without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    digest_native._loops.cache_clear()
    yield
    digest_native._loops.cache_clear()


def test_every_length_beside_others() -> None:
    blocks = [DATA[:length] for length in range(300)]
    assert hashes(blocks, FNV_OFFSET, FNV_PRIME) == [by_the_byte(block) for block in blocks]


@given(st.lists(st.binary(max_size=40), max_size=3 * LANES), STATES)
def test_blocks_of_any_lengths_from_any_state(blocks: list[bytes], state: int) -> None:
    assert hashes(blocks, state, FNV_PRIME) == [by_the_byte(block, state) for block in blocks]


@given(st.integers(1, 3 * LANES), st.integers(0, 70), STATES)
def test_any_number_of_one_length(number: int, length: int, state: int) -> None:
    blocks = [DATA[place : place + length] for place in range(number)]
    assert hashes(blocks, state, FNV_PRIME) == [by_the_byte(block, state) for block in blocks]


def test_no_blocks() -> None:
    assert hashes([], FNV_OFFSET, FNV_PRIME) == []


# From so many bytes on: every buffer compiled, by NumPy, by the loop of the definition.
@pytest.mark.parametrize("native", [1, 1 << 40])
@pytest.mark.parametrize("long", [1, 1 << 40])
@given(
    start=st.integers(0, 70), length=st.integers(0, 9000), step=st.sampled_from([1, 2, 3, -1]), state=STATES
)
def test_any_view_is_hashed_as_its_bytes(
    native: int, long: int, start: int, length: int, step: int, state: int
) -> None:
    view = memoryview(DATA)[start : start + length][::step]
    assert view.readonly
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "_NATIVE", native)
        patch.setattr(digest, "_LONG", long)
        assert fnv1a64(view, state) == by_the_byte(view.tobytes(), state)


@pytest.mark.parametrize("native", [1, 1 << 40])
def test_arrays_are_hashed_by_their_bytes(native: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_NATIVE", native)
    table = np.frombuffer(DATA, np.float32).reshape(50, 50)
    for array in (table, table.T, table[::2, 1::3], table[:0]):
        assert fnv1a64(array.data) == by_the_byte(array.tobytes())
    assert fnv1a64(bytearray(DATA)) == by_the_byte(DATA)


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=9), st.data())
def test_run_hashes_are_the_same_either_way(patterns: list[bytes], data: st.DataObject) -> None:
    sequence = data.draw(st.lists(st.integers(0, len(patterns) - 1), max_size=8))
    by_loop = run_hash(patterns, sequence)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "_NATIVE", 0)
        assert run_hash(iter(patterns), sequence) == by_loop


@pytest.mark.usefixtures("without_llvmlite")
def test_without_llvmlite_numpy_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_NATIVE", 1)
    assert hashes([DATA], FNV_OFFSET, FNV_PRIME) is None
    assert fnv1a64(DATA) == by_the_byte(DATA)
    assert run_hash([DATA], [0]) == by_the_byte(by_the_byte(DATA).to_bytes(8, "little"))


@pytest.mark.parametrize(("size", "loaded"), [(1 << 20, False), (1 << 23, True)])
def test_llvmlite_is_imported_for_what_repays_it(size: int, loaded: bool) -> None:
    code = f"import sys; from reprodb.digest import fnv1a64; fnv1a64(bytes({size}))"
    code += "; print('llvmlite' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{loaded}\n"
