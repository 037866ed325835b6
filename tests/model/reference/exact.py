"""Binary floating point by the book: decode to an exact number, compute exactly, round once.

A float is its bits as a Python int. Exact numbers are `fractions.Fraction`, which cannot overflow, underflow
or round; signs of zeros, infinities and NaNs are handled beside them, each rule where it applies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Format:
    """An IEEE-like format. `nan` is the result of arithmetic without a number, or of NaN operands.

    PTX fixes it for all formats but f64, where an operand's NaN passes through; what an H200 makes of that is
    in `nan_of`.
    """

    name: str
    width: int
    fraction_bits: int
    nan: int

    @property
    def exponent_bits(self) -> int:
        return self.width - 1 - self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number, and of every subnormal's quantum."""
        return 1 - self.bias

    @property
    def one(self) -> int:
        return self.bias << self.fraction_bits


F16 = Format("f16", 16, 10, 0x7FFF)
BF16 = Format("bf16", 16, 7, 0x7FFF)
F32 = Format("f32", 32, 23, 0x7FFFFFFF)
F64 = Format("f64", 64, 52, 0xFFF8000000000000)
QUIET = 1 << 51  # of f64

FORMATS = {f.name: f for f in (F16, BF16, F32, F64)}


def magnitude(f: Format, a: int) -> int:
    return a & ~f.sign


def negative(f: Format, a: int) -> bool:
    return bool(a & f.sign)


def is_nan(f: Format, a: int) -> bool:
    return magnitude(f, a) > f.infinity


def is_inf(f: Format, a: int) -> bool:
    return magnitude(f, a) == f.infinity


def is_zero(f: Format, a: int) -> bool:
    return magnitude(f, a) == 0


def is_subnormal(f: Format, a: int) -> bool:
    return 0 < magnitude(f, a) < 1 << f.fraction_bits


def flush(f: Format, a: int) -> int:
    """What `.ftz` does to an operand or a result: a subnormal becomes a zero of its sign."""
    return a & f.sign if is_subnormal(f, a) else a


def nan_of(f: Format, *operands: int) -> int:
    """The NaN that a result without a number is.

    In f64 an H200 gives the first NaN of the operands, made quiet, in the order given here: the last one
    before the first, but a dividend before its divisor.
    """
    if f is F64:
        for a in operands:
            if is_nan(f, a):
                return a | QUIET
    return f.nan


def unbounded(f: Format) -> Format:
    """The same precision with exponents that no result of one operation leaves."""
    return Format(f"{f.name} without end", f.width + 4, f.fraction_bits, 0)


def is_tiny(f: Format, operation: Callable[..., int], operands: tuple[int, ...], mode: str) -> bool:
    """What `.ftz` asks: whether a result, rounded as if exponents had no end, is below the normal range.

    So an H200 decides, also where rounding among subnormals would reach the smallest normal number.
    """
    wide = unbounded(f)
    if any(is_nan(f, a) or is_inf(f, a) for a in operands):
        return False
    result = operation(wide, *(convert(f, wide, a) for a in operands), mode)
    return not is_zero(wide, result) and below_normal(f, number(wide, result))


def is_tiny_number(a: int, mode: str) -> bool:
    """The same of a double that becomes a float."""
    if is_nan(F64, a) or is_inf(F64, a) or is_zero(F64, a):
        return False
    wide = Format("f32 without end", 36, 23, 0)
    return below_normal(F32, number(wide, round_to(wide, number(F64, a), mode)))


def below_normal(f: Format, value: Fraction) -> bool:
    return abs(value) < power_of_two(f.least_exponent)


def power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def number(f: Format, a: int) -> Fraction:
    """The exact value of a finite float."""
    field, fraction = magnitude(f, a) >> f.fraction_bits, a & ((1 << f.fraction_bits) - 1)
    if field == 0:
        value = fraction * power_of_two(f.least_exponent - f.fraction_bits)
    else:
        value = (fraction + (1 << f.fraction_bits)) * power_of_two(field - f.bias - f.fraction_bits)
    return -value if negative(f, a) else value


def floor_log2(value: Fraction) -> int:
    """The largest e with 2^e <= value, for value > 0."""
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if power_of_two(e) <= value else e - 1


def round_to_integer(value: Fraction, mode: str) -> int:
    """A number to a whole one: rn to nearest, ties to even; rz, rm, rp; rna ties away from zero."""
    below = value.numerator // value.denominator
    rest = value - below
    if rest == 0 or mode == "rm":
        return below
    if mode == "rp":
        return below + 1
    if mode == "rz":
        return below + 1 if value < 0 else below
    if rest != Fraction(1, 2):
        return below + 1 if rest > Fraction(1, 2) else below
    if mode == "rna":
        return below if value < 0 else below + 1
    return below + below % 2


def round_to(f: Format, value: Fraction, mode: str = "rn") -> int:
    """The float that a non-zero number rounds to; overflow is infinity or the largest, as the mode says."""
    sign = f.sign if value < 0 else 0
    size = abs(value)
    exponent = max(floor_log2(size), f.least_exponent)
    quantum = power_of_two(exponent - f.fraction_bits)
    # Rounding the signed multiple of the quantum makes rm and rp mean what they say.
    steps = abs(round_to_integer(value / quantum, mode))
    # A normal number's leading 1 adds 1 to the exponent field, a subnormal has none; carries are right too.
    bits = ((exponent - f.least_exponent) << f.fraction_bits) + steps
    if bits >= f.infinity:
        away = mode in ("rn", "rna") or (mode == "rp" and value > 0) or (mode == "rm" and value < 0)
        bits = f.infinity if away else f.infinity - 1
    return sign | bits


def _sum(f: Format, a: Fraction, b: Fraction, *, a_negative: bool, b_negative: bool, mode: str) -> int:
    """a + b rounded; the signs are given because zeros have them."""
    total = a + b
    if total != 0:
        return round_to(f, total, mode)
    # An exact zero: of the operands' sign where they agree, else +0, but -0 when rounding down.
    minus = a_negative if a_negative == b_negative else mode == "rm"
    return f.sign if minus else 0


def add(f: Format, a: int, b: int, mode: str = "rn") -> int:
    return fma(f, a, f.one, b, mode)


def sub(f: Format, a: int, b: int, mode: str = "rn") -> int:
    if is_nan(f, b):
        return nan_of(f, b)
    return add(f, a, b ^ f.sign, mode)


def mul(f: Format, a: int, b: int, mode: str = "rn") -> int:
    if is_nan(f, a) or is_nan(f, b):
        return nan_of(f, b, a)
    sign = (a ^ b) & f.sign
    if is_inf(f, a) or is_inf(f, b):
        return f.nan if is_zero(f, a) or is_zero(f, b) else sign | f.infinity
    product = number(f, a) * number(f, b)
    return round_to(f, product, mode) if product else sign


def fma(f: Format, a: int, b: int, c: int, mode: str = "rn") -> int:
    """a * b + c, rounded once."""
    if is_nan(f, a) or is_nan(f, b) or is_nan(f, c):
        return nan_of(f, b, c, a)
    product_negative = negative(f, a) != negative(f, b)
    if is_inf(f, a) or is_inf(f, b):
        invalid = is_zero(f, a) or is_zero(f, b) or (is_inf(f, c) and negative(f, c) != product_negative)
        return f.nan if invalid else f.infinity | (f.sign if product_negative else 0)
    if is_inf(f, c):
        return c
    exact = number(f, a) * number(f, b)
    return _sum(f, exact, number(f, c), a_negative=product_negative, b_negative=negative(f, c), mode=mode)


def div(f: Format, a: int, b: int, mode: str = "rn") -> int:
    if is_nan(f, a) or is_nan(f, b) or (is_inf(f, a) and is_inf(f, b)) or (is_zero(f, a) and is_zero(f, b)):
        return nan_of(f, a, b)
    sign = (a ^ b) & f.sign
    if is_inf(f, a) or is_zero(f, b):
        return sign | f.infinity
    if is_zero(f, a) or is_inf(f, b):
        return sign
    return round_to(f, number(f, a) / number(f, b), mode)


def sqrt(f: Format, a: int, mode: str = "rn") -> int:
    if is_nan(f, a) or (negative(f, a) and not is_zero(f, a)):
        return nan_of(f, a)
    if is_zero(f, a) or is_inf(f, a):
        return a
    value = number(f, a)
    # Many more digits than any format has, and where the root is not exact half a digit more: on the same
    # side of every float, and of every middle between two floats, as the root itself.
    scale = 1 << 1200
    scaled = value.numerator * scale * scale // value.denominator
    root = isqrt(scaled)
    exact = Fraction(root, scale) ** 2 == value
    return round_to(f, Fraction(root, scale) if exact else Fraction(2 * root + 1, 2 * scale), mode)


def less(f: Format, a: int, b: int) -> bool:
    """a < b for operands that are no NaN; -0 equals +0."""
    return key(f, a) < key(f, b)


def key(f: Format, a: int) -> int:
    """Ordered like the numbers, for operands that are no NaN; both zeros are 0."""
    return -magnitude(f, a) if negative(f, a) else magnitude(f, a)


def _pick(f: Format, a: int, b: int, propagate: bool, first: Callable[[int, int], bool]) -> int:
    if is_nan(f, a) or is_nan(f, b):
        both = is_nan(f, a) and is_nan(f, b)
        return nan_of(f, b, a) if propagate or both else (b if is_nan(f, a) else a)
    if is_zero(f, a) and is_zero(f, b):
        return a if first(-negative(f, a), -negative(f, b)) else b  # -0 is below +0
    return a if first(key(f, a), key(f, b)) else b


def minimum(f: Format, a: int, b: int, propagate: bool = False) -> int:
    """The smaller operand; the number where one is NaN, unless NaNs propagate."""
    return _pick(f, a, b, propagate, lambda x, y: x < y)


def maximum(f: Format, a: int, b: int, propagate: bool = False) -> int:
    return _pick(f, a, b, propagate, lambda x, y: x > y)


def saturate(f: Format, a: int) -> int:
    """`.sat`: into [0, 1]; NaN and everything of negative sign is +0."""
    if is_nan(f, a) or negative(f, a):
        return 0
    return min(a, f.one)


def relu(f: Format, a: int) -> int:
    """`.relu`: negative results are +0, a NaN is the one NaN."""
    if is_nan(f, a):
        return f.nan
    return 0 if negative(f, a) else a


def compare(f: Format, relation: str, a: int, b: int) -> bool:
    """The relations of `setp`: ordered ones are false on NaN, those that end in `u` are true on it."""
    unordered = is_nan(f, a) or is_nan(f, b)
    if relation in ("num", "nan"):
        return unordered == (relation == "nan")
    if unordered:
        return relation.endswith("u")
    x, y = key(f, a), key(f, b)
    return {
        "eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y,
    }[relation.removesuffix("u")]  # fmt: skip


def round_integral(f: Format, a: int, mode: str) -> int:
    """A float rounded to a whole number of the same format; a zero keeps the operand's sign."""
    if is_nan(f, a):
        return nan_of(f, a)
    if is_inf(f, a) or is_zero(f, a):
        return a
    whole = round_to_integer(number(f, a), mode)
    return round_to(f, Fraction(whole)) if whole else a & f.sign


def convert(source: Format, target: Format, a: int, mode: str = "rn") -> int:
    """A float of one format to another. A NaN is the target's, but from and to f64 sign and payload pass."""
    sign = target.sign if negative(source, a) else 0
    if is_nan(source, a):
        if F64 not in (source, target):
            return target.nan
        payload = (a & ((1 << source.fraction_bits) - 1)) << 52 >> source.fraction_bits
        return sign | target.infinity | (payload | QUIET) >> 52 - target.fraction_bits
    if is_inf(source, a):
        return sign | target.infinity
    if is_zero(source, a):
        return sign
    return round_to(target, number(source, a), mode)


def from_integer(f: Format, value: int, mode: str = "rn") -> int:
    return round_to(f, Fraction(value), mode) if value else 0


def to_integer(f: Format, a: int, width: int, signed: bool, mode: str) -> int:
    """A float to an integer of `width` bits, clamped to its range; NaN as the conversion's widths say."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if is_nan(f, a):
        return 1 << (width - 1) if f is F64 or width == 64 else 0
    if is_inf(f, a):
        return (low if negative(f, a) else high) & ((1 << width) - 1)
    return max(low, min(high, round_to_integer(number(f, a), mode))) & ((1 << width) - 1)
