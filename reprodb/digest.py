"""Digests: FNV-1a 64 for the run hash that people read, framed SHA-256 for content keys."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from reprodb.digest_native import hashes

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
_MASK = 0xFFFFFFFFFFFFFFFF

# A pattern of up to this many bytes feeds its own bytes to the run hash.
WORD_BYTES = 8


# From so many bytes on, NumPy is faster than a loop, its import included; and machine code than NumPy, with
# the import of llvmlite and the compilation of a loop.
_LONG = 1 << 13
_NATIVE = 1 << 23
_MANY = 32  # so many patterns of one length are faster side by side than one by one
_CHUNK = 1 << 16
_REMEMBERED = 1 << 20  # bytes of a pattern whose hash is kept, with the pattern, for a while


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    """FNV-1a 64 of `data`, continued from `state` (Fowler, Noll, Vo; offset and prime as published)."""
    octets = _octets(data)
    if len(octets) >= _NATIVE and (found := hashes([octets], state, FNV_PRIME)):
        return found[0]
    if len(octets) >= _LONG:
        return _fnv1a64_long(octets, state)
    for byte in octets:
        state = ((state ^ byte) * FNV_PRIME) & _MASK
    return state


def _octets(data: bytes | bytearray | memoryview) -> bytes | memoryview:
    """The bytes of a buffer in the order of its elements, copied only where they do not lie so."""
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes()


def _fnv1a64_long(data: bytes | memoryview, state: int) -> int:
    """The same by whole arrays, many times as fast.

    A step is h' = (h ^ b) * P. The exclusive or touches the low byte alone, so h' = (h + d) * P with
    d = (low ^ b) - low, and after n steps h is h * P^n + the sum of d[i] * P^(n-i): a product of arrays once
    the low bytes are known. Those follow bit by bit: P is odd, so bit k of a product is bit k of the factor,
    flipped by what the bits below carry, and a running exclusive or gives bit k of every step.
    """
    import numpy as np

    powers = np.multiply.accumulate(np.full(min(len(data), _CHUNK), FNV_PRIME, np.uint64))
    for start in range(0, len(data), _CHUNK):
        block = np.frombuffer(data, np.uint8, min(_CHUNK, len(data) - start), start)
        mixed = np.zeros_like(block)  # low ^ b of each step, known below bit k
        low = np.full_like(block, state & 0xFF)
        for k in range(8):
            np.multiply(mixed[:-1], FNV_PRIME & 0xFF, out=low[1:])
            mixed |= _running_xor((block ^ low) >> k & 1) << k
        np.multiply(mixed[:-1], FNV_PRIME & 0xFF, out=low[1:])
        change = np.subtract(mixed, low, dtype=np.int64).view(np.uint64)
        total = int((change * powers[len(block) - 1 :: -1]).sum(dtype=np.uint64))
        state = (state * int(powers[len(block) - 1]) + total) & _MASK
    return state


def _running_xor(bits: Any) -> Any:
    """The exclusive or of each of the bits (0 or 1 a byte) with all before it, 64 at a time."""
    import numpy as np

    words = np.packbits(np.pad(bits, (0, -len(bits) % 64))).view(">u8").astype(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        words ^= words >> np.uint64(shift)
    odd = np.bitwise_xor.accumulate(words & np.uint64(1))
    words[1:] ^= np.uint64(0) - odd[:-1]  # all bits of a word are flipped where the ones before it are odd
    return np.unpackbits(words.astype(">u8").view(np.uint8), count=len(bits))


def _words_of(patterns: Sequence[bytes]) -> list[bytes]:
    """What longer patterns feed to the run hash."""
    size = sum(map(len, patterns))
    found = hashes(patterns, FNV_OFFSET, FNV_PRIME) if size >= _NATIVE else None
    alike = len(patterns) >= _MANY and size >= _LONG and len({*map(len, patterns)}) == 1
    if not found and alike and len(patterns[0]) <= 2 * _LONG:
        found = _side_by_side(patterns)
    if found:
        return [value.to_bytes(8, "little") for value in found]
    return [
        _remembered_word(p) if len(p) <= _REMEMBERED else fnv1a64(p).to_bytes(8, "little") for p in patterns
    ]


def _side_by_side(patterns: Sequence[bytes]) -> list[int]:
    """FNV-1a 64 of many patterns of one length: a step of NumPy takes all of them a byte further."""
    import numpy as np

    rows = np.frombuffer(b"".join(patterns), np.uint8).reshape(len(patterns), -1)
    states = np.full(len(patterns), FNV_OFFSET, np.uint64)
    prime = np.uint64(FNV_PRIME)
    for column in np.ascontiguousarray(rows.T):
        states ^= column
        states *= prime
    return [int(state) for state in states]


@lru_cache(maxsize=8)
def _remembered_word(pattern: bytes) -> bytes:
    """The same kept for a while: results in a row, of one kernel under many builds, are mostly equal."""
    return fnv1a64(pattern).to_bytes(8, "little")


def run_hash(patterns: Iterable[bytes], sequence: Iterable[int]) -> int:
    """FNV-1a 64 over the repetitions' patterns in order.

    `patterns` are the distinct patterns, `sequence` the index of the pattern of each repetition.
    A pattern of up to 8 bytes feeds its bytes, a longer one the 8 bytes (little endian) of its own
    FNV-1a 64, so that each distinct pattern is hashed once.
    """
    distinct = list(patterns)
    longer = iter(_words_of([p for p in distinct if len(p) > WORD_BYTES]))
    words = [p if len(p) <= WORD_BYTES else next(longer) for p in distinct]
    state = FNV_OFFSET
    for index in sequence:
        state = fnv1a64(words[index], state)
    return state


def content_key(label: str, *parts: str | bytes) -> str:
    """Hex SHA-256 over a label and parts, each framed by its length so that no two lists collide."""
    digest = hashlib.sha256()
    for part in (label, *parts):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def sha256(data: bytes) -> str:
    """Plain hex SHA-256 of bytes: what `sha256sum` prints for the same file."""
    return hashlib.sha256(data).hexdigest()


def hex64(value: int) -> str:
    """A 64-bit hash as people read it: `0x8189389fe1bc0a65`."""
    return f"0x{value:016x}"
