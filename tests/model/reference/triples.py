"""Operands that make rounding hard: results at and about the middle of two floats, at every size."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

from tests.model.reference import exact
from tests.model.reference.exact import Format

Triple = tuple[int, int, int]


def triples(rng: Random, f: Format, count: int) -> list[Triple]:
    """Operands (a, b, c) of a format, an equal share of each kind."""
    kinds: tuple[Callable[[Random, Format], Triple], ...] = (
        _any,
        _sparse,
        _product_middle,
        _fused_middle,
        _middle_and_little,
        _nearly_half,
        _tiny,
    )
    return [kinds[i % len(kinds)](rng, f) for i in range(count)]


def special(rng: Random, f: Format) -> int:
    unit = 1 << f.fraction_bits
    small, large = (0, 1, 2, unit - 1, unit, unit + 1), (f.infinity - 1, f.infinity, f.infinity + 1)
    bits = rng.choice((*small, f.one - 1, f.one, f.one + 1, *large, f.infinity + unit // 2, f.nan & ~f.sign))
    return bits | rng.choice((0, f.sign))


def _any(rng: Random, f: Format) -> Triple:
    """Any bits, with specials among them."""
    a, b, c = (special(rng, f) if rng.random() < 0.5 else rng.getrandbits(f.width) for _ in range(3))
    return a, b, c


def near_one(rng: Random, f: Format, spread: int = 30) -> int:
    """A number of a few low and high bits, or of random ones, not far from 1."""
    fraction = rng.choice(
        (0, 1, 3, (1 << f.fraction_bits) - 1, 1 << f.fraction_bits - 1, rng.getrandbits(f.fraction_bits))
    )
    span = min(spread, f.bias - 2)
    return rng.choice((0, f.sign)) | (f.bias + rng.randint(-span, span)) << f.fraction_bits | fraction


def _sparse(rng: Random, f: Format) -> Triple:
    """Sums whose lost bits are few: exact middles are common."""
    return near_one(rng, f), near_one(rng, f), near_one(rng, f)


def middle(rng: Random, f: Format, size: Fraction) -> Fraction:
    """The middle of two neighbouring floats of about a size."""
    low = exact.round_to(f, size, "rz") & ~f.sign
    low = min(low, f.infinity - 2)
    return (exact.number(f, low) + exact.number(f, low + 1)) / 2


def closest(f: Format, value: Fraction) -> int:
    return exact.round_to(f, value) if value else 0


def _product_middle(rng: Random, f: Format) -> Triple:
    """a * b as close to a middle as the format lets b be; below the normal range now and then."""
    a = near_one(rng, f)
    size = Fraction(rng.getrandbits(20) + 1, 1 << 20)
    if rng.random() < 0.5:
        size *= exact.power_of_two(f.least_exponent + rng.randint(-3, 3))
    b = closest(f, middle(rng, f, size) / exact.number(f, a))
    return a, b + rng.choice((0, 0, 1)), special(rng, f)


def _fused_middle(rng: Random, f: Format) -> Triple:
    """a * b + c as close to a middle as the format lets c be."""
    a, b = near_one(rng, f), near_one(rng, f)
    product = exact.number(f, a) * exact.number(f, b)
    size = (
        abs(product)
        * exact.power_of_two(rng.randint(-4, f.fraction_bits + 4))
        * Fraction(rng.randint(1, 999), 500)
    )
    target = middle(rng, f, size) * rng.choice((1, -1))
    return a, b, closest(f, target - product)


def scaled(rng: Random, f: Format, whole: int, exponent: int) -> int:
    """The float ± whole * 2^exponent, which must be exact."""
    return closest(f, rng.choice((1, -1)) * whole * exact.power_of_two(exponent))


def _middle_and_little(rng: Random, f: Format) -> Triple:
    """A product that is a middle exactly, and a sum that moves it by next to nothing: rounded to any wider
    format first, it would be taken for the middle."""
    bits = f.fraction_bits + 2  # of a middle as a whole number
    short = rng.randint(2, bits - 2)
    while True:
        a = rng.getrandbits(short) | 1 | 1 << short - 1
        b = rng.getrandbits(bits - short) | 1 | 1 << bits - short - 1
        if (a * b).bit_length() == bits:
            break
    size = rng.randint(-4, min(f.bias - 4, 20))
    little = size - rng.randint(f.fraction_bits, 3 * f.fraction_bits + 8)
    c = scaled(rng, f, 1 + rng.getrandbits(3), max(little, f.least_exponent - f.fraction_bits))
    return scaled(rng, f, a, size - bits), scaled(rng, f, b, 0), c


def _nearly_half(rng: Random, f: Format) -> Triple:
    """A number and a product of nearly half its last place: 2^e (1 - 2^-2k)."""
    k = rng.randint(2, f.fraction_bits)
    one = 1 << k
    size = rng.randint(-3, 3)
    a, b = scaled(rng, f, one - 1, -k), scaled(rng, f, one + 1, -k + size - f.fraction_bits - 1)
    c = scaled(rng, f, 1 << f.fraction_bits | rng.getrandbits(f.fraction_bits), size - f.fraction_bits)
    return (a, b, c) if rng.random() < 0.5 else (b, a, c)


def _tiny(rng: Random, f: Format) -> Triple:
    """Products and sums about the smallest normal number and below it, and quotients that land there."""

    def tiny() -> int:
        return rng.choice((0, f.sign)) | rng.randrange(4 << f.fraction_bits)

    a = tiny() if rng.random() < 0.7 else near_one(rng, f, f.bias // 2)
    return a, near_one(rng, f, 8), tiny()


def narrowing(rng: Random, source: Format, target: Format, count: int) -> list[int]:
    """Numbers of a wide format at, just above and just below the middles of a narrow one, and specials."""

    def one() -> int:
        if rng.random() < 0.3:
            return _any(rng, source)[0]
        exponent = rng.randint(target.least_exponent - target.fraction_bits - 1, target.bias)
        size = Fraction(rng.getrandbits(20) + (1 << 20), 1 << 20) * exact.power_of_two(exponent)
        bits = closest(source, middle(rng, target, size))
        return max(bits + rng.choice((-1, 0, 0, 1)), 0) | rng.choice((0, source.sign))

    return [one() for _ in range(count)]
