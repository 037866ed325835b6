"""Valid texts, spoilt: bytes, numbers, words and stretches changed, repeated, dropped or mixed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_NUMBER = re.compile(rb"\d+")
_WORD = re.compile(rb"[A-Za-z_%$.@][\w.$]*")
_NUMBERS = (
    b"0", b"1", b"-1", b"255", b"256", b"65536", b"2147483648", b"4294967295", b"9223372036854775807",
    b"18446744073709551616", b"9" * 40, b"1e308", b"1e999", b"nan", b"inf", b"-0", b"0x", b"0f7fc00000",
)  # fmt: skip
_SPICE = (
    b"\x00", b"\n", b"\xff", b"\xe2\x80\xae", b'"', b"'''", b"\\", b"{", b"}", b"[", b"]", b"(", b")", b";",
    b",", b"../", b"//", b"/*", b"*/", b"#", b"$", b"%s", b"<", b">", b"=", b".", b"@", b"@!", b"|", b":",
)  # fmt: skip
LONGEST = 1 << 16

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
Mutator = Callable[[random.Random, Sequence[bytes]], bytes]  # a case from the valid texts


def _span(rng: random.Random, text: bytes, most: int = 64) -> tuple[int, int]:
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + rng.randrange(most))


def _byte(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    if not text:
        return rng.choice(_SPICE)
    at = rng.randrange(len(text))
    return text[:at] + bytes((rng.randrange(256),)) + text[at + 1 :]


def _bit(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    if not text:
        return text
    at = rng.randrange(len(text))
    return text[:at] + bytes((text[at] ^ 1 << rng.randrange(8),)) + text[at + 1 :]


def _drop(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(rng, text)
    return text[:start] + text[end:]


def _repeat(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(rng, text)
    # Long ones are rare: what is slow with them shows all the same, and small cases are many more.
    times = rng.choice((2, 2, 3, 3, 4, 4, 50, 2000 if end - start <= 8 and rng.random() < 0.3 else 50))
    return text[:start] + text[start:end] * times + text[end:]


def _cut(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def _spice(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_SPICE) * rng.choice((1, 1, 1, 2, 300)) + text[at:]


def _number(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    return _replaced(rng, text, _NUMBER, rng.choice(_NUMBERS))


def _word(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    """A word in another one's place."""
    near = rng.randrange(len(text) + 1)
    found = _WORD.search(text, near)
    return _replaced(rng, text, _WORD, found[0]) if found else text


def _replaced(rng: random.Random, text: bytes, form: re.Pattern[bytes], new: bytes) -> bytes:
    """The first thing of a form behind a random place, replaced: no search of the whole text."""
    found = form.search(text, rng.randrange(len(text) + 1))
    return text[: found.start()] + new + text[found.end() :] if found else text


def _line(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    """Two lines swapped, or one of another text put in."""
    lines = text.split(b"\n")
    other = rng.choice(others).split(b"\n") if rng.random() < 0.5 else lines
    lines[rng.randrange(len(lines))] = rng.choice(other)
    return b"\n".join(lines)


def _splice(rng: random.Random, text: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


MUTATIONS: tuple[Mutation, ...] = (
    _byte, _bit, _drop, _repeat, _cut, _spice, _number, _number, _word, _word, _line, _splice,
)  # fmt: skip


def one_of(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A seed, one near the front more often than one near the end: they come with the shortest first."""
    return seeds[int(len(seeds) * rng.random() ** 2)]


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after one to four mutations, at most LONGEST bytes."""
    text = one_of(rng, seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        text = rng.choice(MUTATIONS)(rng, text, seeds)[:LONGEST]
    return text
