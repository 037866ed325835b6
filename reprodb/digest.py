"""Digests: FNV-1a 64 for the run hash that people read, framed SHA-256 for content keys."""

import hashlib
from collections.abc import Iterable

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
_MASK = 0xFFFFFFFFFFFFFFFF

# A pattern of up to this many bytes feeds its own bytes to the run hash.
WORD_BYTES = 8


def fnv1a64(data: bytes, state: int = FNV_OFFSET) -> int:
    """FNV-1a 64 of `data`, continued from `state` (Fowler, Noll, Vo; offset and prime as published)."""
    for byte in data:
        state = ((state ^ byte) * FNV_PRIME) & _MASK
    return state


def run_hash(patterns: Iterable[bytes], sequence: Iterable[int]) -> int:
    """FNV-1a 64 over the repetitions' patterns in order.

    `patterns` are the distinct patterns, `sequence` the index of the pattern of each repetition.
    A pattern of up to 8 bytes feeds its bytes, a longer one the 8 bytes (little endian) of its own
    FNV-1a 64, so that each distinct pattern is hashed once.
    """
    words = [p if len(p) <= WORD_BYTES else fnv1a64(p).to_bytes(8, "little") for p in patterns]
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
