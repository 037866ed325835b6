"""Values that trip arithmetic: specials, neighbours, middles between two floats, and any bits at all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_FRACTIONS = (
    0,
    1,
    2,
    3,
    0x7FFFFF,
    0x7FFFFE,
    0x400000,
    0x400001,
    0x3FFFFF,
    0x555555,
    0x001000,
    0x000FFF,
    0x600000,
)
_HALVES = (
    *(0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7C01, 0x7E00),  # as f16
    *(0x7F, 0x80, 0x3F80, 0x7F7F, 0x7F80, 0x7F81),  # as bf16
)
_EXPONENTS = (
    0,
    0,
    1,
    2,
    12,
    24,
    25,
    63,
    64,
    103,
    104,
    113,
    126,
    127,
    127,
    128,
    142,
    150,
    151,
    158,
    190,
    253,
    254,
    255,
)


def float_word(rng: Random) -> int:
    """The bits of a float: special, near the middle of two others, or any."""
    if rng.random() < 0.25:
        return rng.getrandbits(32)
    fraction = rng.choice(_FRACTIONS) if rng.random() < 0.7 else rng.getrandbits(23)
    return rng.getrandbits(1) << 31 | rng.choice(_EXPONENTS) << 23 | fraction


def double_word(rng: Random) -> int:
    if rng.random() < 0.25:
        return rng.getrandbits(64)
    exponent = rng.choice(
        (0, 0, 1, 2, 52, 53, 511, 868, 896, 897, 970, 1022, 1023, 1023, 1024, 1075, 1150, 1151, 2046, 2047)
    )
    fraction = rng.choice(
        (0, 1, 2, (1 << 52) - 1, 1 << 51, (1 << 51) + 1, 1 << 28, (1 << 28) + 1, 1 << 29, 3 << 28)
    )
    if rng.random() < 0.3:
        fraction = rng.getrandbits(52)
    return rng.getrandbits(1) << 63 | exponent << 52 | fraction


def half_word(rng: Random) -> int:
    return rng.getrandbits(1) << 15 | rng.choice(_HALVES) if rng.random() < 0.5 else rng.getrandbits(16)


def integer_word(rng: Random, width: int) -> int:
    top = 1 << (width - 1)
    special = (
        0,
        1,
        2,
        5,
        31,
        32,
        33,
        top,
        top - 1,
        top + 1,
        2 * top - 1,
        2 * top - 2,
        0xFFFF,
        0x10000 % (2 * top),
    )
    return rng.choice(special) if rng.random() < 0.5 else rng.getrandbits(width)


def input_bytes(rng: Random, name: str, size: int) -> bytes:
    """The contents of a buffer of a program: words of the type that its name ends in, or integers."""
    makers: dict[str, tuple[int, Callable[[], int]]] = {
        "in_f": (4, lambda: float_word(rng)),
        "in_d": (8, lambda: double_word(rng)),
        "in_h": (2, lambda: half_word(rng)),
        "in_l": (8, lambda: integer_word(rng, 64)),
    }
    width, word = makers.get(name, (4, lambda: integer_word(rng, 32)))
    return b"".join(word().to_bytes(width, "little") for _ in range(size // width))
