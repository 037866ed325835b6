"""FNV-1a 64, the run hash that people read, and framed content keys."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.digest import FNV_OFFSET, content_key, fnv1a64, hex64, run_hash, sha256

TREE_BITS = bytes.fromhex("6d42254b")  # 0x4b25426d, low byte first


# Vectors published with the algorithm (Fowler, Noll and Vo's test suite, FNV-1a 64).
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"b", 0xAF63DF4C8601F1A5),
        (b"foobar", 0x85944171F73967E8),
    ],
)
def test_fnv_vectors(data: bytes, expected: int) -> None:
    assert fnv1a64(data) == expected


def test_run_hash_of_the_published_tree() -> None:
    """100 repetitions of 0x4b25426d hash to the published value."""
    assert hex64(run_hash([TREE_BITS], [0] * 100)) == "0x8189389fe1bc0a65"


def test_run_hash_of_short_patterns_is_fnv_of_their_bytes_in_order() -> None:
    patterns = [b"\x01\x02\x03\x04", b"\x05\x06\x07\x08"]
    assert run_hash(patterns, [0, 1, 1]) == fnv1a64(patterns[0] + patterns[1] * 2)


def test_a_long_pattern_feeds_the_eight_bytes_of_its_own_hash() -> None:
    long = bytes(range(9))
    assert run_hash([long], [0, 0]) == fnv1a64(fnv1a64(long).to_bytes(8, "little") * 2)


def test_eight_bytes_still_feed_themselves() -> None:
    assert run_hash([bytes(8)], [0]) == fnv1a64(bytes(8))


def test_run_hash_of_no_repetitions_is_the_offset() -> None:
    assert run_hash([], []) == FNV_OFFSET


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_fnv_continues_from_a_state(head: bytes, tail: bytes) -> None:
    assert fnv1a64(tail, fnv1a64(head)) == fnv1a64(head + tail)


@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_content_keys_of_different_lists_differ(left: list[bytes], right: list[bytes]) -> None:
    """Framing keeps ("ab", "c") and ("a", "bc") apart."""
    assert (content_key("test/1", *left) == content_key("test/1", *right)) == (left == right)


def test_content_key_depends_on_its_label() -> None:
    assert content_key("one", b"x") != content_key("two", b"x")


def test_content_key_takes_text_as_utf8() -> None:
    assert content_key("test/1", "é") == content_key("test/1", "é".encode())


def test_content_key_frame_is_the_documented_one() -> None:
    framed = b"".join(len(p).to_bytes(8, "little") + p for p in (b"test/1", b"abc", b""))
    assert content_key("test/1", b"abc", b"") == hashlib.sha256(framed).hexdigest()


def test_sha256_is_the_plain_one() -> None:
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_hex64_has_sixteen_digits() -> None:
    assert hex64(1) == "0x0000000000000001"


def by_the_byte(data: bytes, state: int) -> int:
    """The definition, a step a byte: what long data must give too."""
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return state


# One chunk and a part of one; lengths about the 64 steps that are taken at once.
@pytest.mark.parametrize("length", [8192, 8193, 8255, 8256, 65535, 65536, 65537, 150_000])
def test_long_data_hash_as_by_the_definition(length: int) -> None:
    data = hashlib.shake_256(str(length).encode()).digest(length)
    assert fnv1a64(data) == by_the_byte(data, FNV_OFFSET)
    assert fnv1a64(data, 17) == by_the_byte(data, 17)


@given(st.integers(0, 255), st.integers(0, 2**64 - 1), st.integers(8192, 8400))
def test_long_runs_of_one_byte_hash_as_by_the_definition(byte: int, state: int, length: int) -> None:
    data = bytes([byte]) * length
    assert fnv1a64(data, state) == by_the_byte(data, state)


@given(
    st.integers(32, 40),
    st.integers(256, 300),
    st.integers(0, 2**32),
    st.lists(st.integers(0, 31), max_size=5),
)
def test_many_patterns_of_one_length_hash_as_by_the_definition(
    number: int, length: int, seed: int, sequence: list[int]
) -> None:
    data = hashlib.shake_256(str(seed).encode()).digest(number * length)
    patterns = [data[start : start + length] for start in range(0, len(data), length)]
    words = [by_the_byte(pattern, FNV_OFFSET).to_bytes(8, "little") for pattern in patterns]
    assert run_hash(patterns, sequence) == by_the_byte(b"".join(words[i] for i in sequence), FNV_OFFSET)
