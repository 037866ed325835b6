"""The exact value of a function at given arguments, by mpmath, and how far a result is from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from math import isfinite
from sys import float_info
from types import MappingProxyType
from typing import Any

# Bits of precision: three times a double's, so that an error of a result is known to many digits.
_BITS = 180
# Fraction bits and the exponent of the smallest subnormal.
_FORMATS = {"float16": (10, -24), "bfloat16": (7, -133), "float32": (23, -149), "float64": (52, -1074)}

Real = Any  # an mpf
Maker = Callable[..., Real]


def available() -> bool:
    """Whether mpmath is installed."""
    return find_spec("mpmath") is not None


def _odd(root: Callable[[Any, Real], Real]) -> Maker:
    """A function of the magnitude, with the argument's sign."""
    return lambda m, x: -root(m, -x) if x < 0 else root(m, x)


def _within(low: float, high: float, compute: Maker) -> Maker:
    """None outside an open range: there the result is infinite, or none."""
    return lambda m, x: compute(m, x) if low < x < high else None


_INF = float("inf")


def _lgamma(m: Any, x: Real) -> Real:
    if x > 0:
        return m.loggamma(x)
    return None if x == m.floor(x) else m.log(abs(m.gamma(x)))


def _pow(m: Any, x: Real, y: Real) -> Real:
    if x > 0:
        return m.power(x, y)
    if x == 0 or y != m.floor(y):
        return None
    return m.power(-x, y) * (-1 if m.fmod(y, 2) else 1)


def _erfcinv(m: Any, x: Real) -> Real:
    """Newton's iteration on the logarithm of erfc, which is smooth down to the smallest arguments."""
    if x > 1:
        return -_erfcinv(m, 2 - x)
    if x > m.mpf("0.1"):
        return m.erfinv(1 - x)
    log = m.log(x)
    t = m.sqrt(-log - m.log(m.sqrt(m.pi * -log)))
    for _ in range(30):
        value = m.erfc(t)
        step = (m.log(value) - log) * value * m.sqrt(m.pi) / 2 * m.exp(t * t)
        t += step
        if abs(step) < abs(t) * m.mpf(2) ** (5 - m.prec):
            break
    return t


def _norm(m: Any, *arguments: Real) -> Real:
    return m.sqrt(m.fsum(x * x for x in arguments))


def _reciprocal(compute: Maker) -> Maker:
    def of(m: Any, *arguments: Real) -> Real:
        value = compute(m, *arguments)
        return None if value is None or value == 0 else 1 / value

    return of


def _remainder(rounded: str) -> Maker:
    """What is left of x after a whole number of times y, the quotient rounded by the context's function."""

    def of(m: Any, x: Real, y: Real) -> Real:
        if y == 0:
            return None
        with m.workprec(2200):  # enough for the quotient of any two doubles
            quotient = abs(x / y)
            times = getattr(m, rounded)(quotient)
            return (abs(x) - times * abs(y)) * (-1 if x < 0 else 1)

    return of


def _divide(m: Any, x: Real, y: Real) -> Real:
    return None if y == 0 else x / y


# By the names that the table of functions uses. Each takes the context and finite arguments; None where the
# mathematical value is not a finite real number.
EXACT: Mapping[str, Maker] = MappingProxyType(
    {
        "acos": lambda m, x: m.acos(x) if abs(x) <= 1 else None,
        "acosh": lambda m, x: m.acosh(x) if x >= 1 else None,
        "asin": lambda m, x: m.asin(x) if abs(x) <= 1 else None,
        "asinh": lambda m, x: m.asinh(x),
        "atan": lambda m, x: m.atan(x),
        "atanh": _within(-1, 1, lambda m, x: m.atanh(x)),
        "cbrt": _odd(lambda m, x: m.cbrt(x)),
        "cos": lambda m, x: m.cos(x),
        "cosh": lambda m, x: m.cosh(x),
        "cospi": lambda m, x: m.cospi(x),
        "cyl_bessel_i0": lambda m, x: m.besseli(0, x),
        "cyl_bessel_i1": lambda m, x: m.besseli(1, x),
        "erf": lambda m, x: m.erf(x),
        "erfc": lambda m, x: m.erfc(x),
        "erfcinv": _within(0, 2, _erfcinv),
        "erfcx": lambda m, x: m.exp(x * x) * m.erfc(x),
        "erfinv": _within(-1, 1, lambda m, x: m.erfinv(x)),
        "exp": lambda m, x: m.exp(x),
        "exp10": lambda m, x: m.power(10, x),
        "exp2": lambda m, x: m.power(2, x),
        "expm1": lambda m, x: m.expm1(x),
        "j0": lambda m, x: m.besselj(0, x),
        "j1": lambda m, x: m.besselj(1, x),
        "jn": lambda m, x, n: m.besselj(min(max(n, 0), 12), x),
        "lgamma": _lgamma,
        "log": _within(0, _INF, lambda m, x: m.log(x)),
        "log10": _within(0, _INF, lambda m, x: m.log10(x)),
        "log1p": _within(-1, _INF, lambda m, x: m.log1p(x)),
        "log2": _within(0, _INF, lambda m, x: m.log(x, 2)),
        "normcdf": lambda m, x: m.erfc(-x / m.sqrt(2)) / 2,
        "normcdfinv": _within(0, 1, lambda m, x: -m.sqrt(2) * _erfcinv(m, 2 * x)),
        "rcbrt": _odd(lambda m, x: 1 / m.cbrt(x) if x else None),
        "rsqrt": _within(0, _INF, lambda m, x: 1 / m.sqrt(x)),
        "sin": lambda m, x: m.sin(x),
        "sinh": lambda m, x: m.sinh(x),
        "sinpi": lambda m, x: m.sinpi(x),
        "sqrt": lambda m, x: m.sqrt(x) if x >= 0 else None,
        "tan": lambda m, x: m.tan(x),
        "tanh": lambda m, x: m.tanh(x),
        "tgamma": lambda m, x: None if x <= 0 and x == m.floor(x) else m.gamma(x),
        "y0": _within(0, _INF, lambda m, x: m.bessely(0, x)),
        "y1": _within(0, _INF, lambda m, x: m.bessely(1, x)),
        "yn": lambda m, x, n: m.bessely(min(max(n, 0), 12), x) if x > 0 else None,
        "atan2": lambda m, y, x: m.atan2(y, x) if x or y else None,
        "hypot": _norm,
        "norm": _norm,
        "pow": _pow,
        "fmod": _remainder("floor"),
        "remainder": _remainder("nint"),
        "rhypot": _reciprocal(_norm),
        "rnorm": _reciprocal(_norm),
        "add": lambda m, x, y: x + y,
        "subtract": lambda m, x, y: x - y,
        "multiply": lambda m, x, y: x * y,
        "divide": _divide,
        "reciprocal": lambda m, x: 1 / x if x else None,
        "fma": lambda m, x, y, z: x * y + z,
        "multiply-add": lambda m, x, y, z: x * y + z,
        "same": lambda m, x: x,
    }
)


class Exact:
    """Exact values at a precision of its own; mpmath's global one is left alone. Needs mpmath."""

    def __init__(self) -> None:
        import mpmath

        self._context = mpmath.mp.clone()
        self._context.prec = _BITS

    def value(self, name: str, arguments: Sequence[float | int]) -> Real | None:
        """The value of a function of EXACT; None where there is none, or no finite one."""
        compute = EXACT.get(name)
        if compute is None or not all(isfinite(argument) for argument in arguments):
            return None
        m = self._context
        try:
            found = compute(m, *(m.mpf(argument) for argument in arguments))
        except (ValueError, ZeroDivisionError, OverflowError, m.NoConvergence):
            return None
        return found if found is not None and m.isfinite(found) and m.im(found) == 0 else None

    def error(self, value: Real, result: float, dtype: str) -> float | None:
        """How far a finite result is from the value, in units in the last place at the value.

        Never infinite, which a double far from an exact zero would be: JSON has no such number.
        """
        if not isfinite(result):
            return None
        m = self._context
        fraction, least = _FORMATS[dtype]
        exponent = least if value == 0 else max(int(m.floor(m.log(abs(value), 2))) - fraction, least)
        return min(float(m.ldexp(abs(m.mpf(result) - value), -exponent)), float_info.max)

    def shown(self, value: Real) -> str:
        """The value in decimal, more digits than any format holds."""
        return str(self._context.nstr(value, 24))
