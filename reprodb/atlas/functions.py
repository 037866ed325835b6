"""The table of the CUDA math API: one row a function, with its arguments' ranges of interest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import pi
from types import MappingProxyType

from reprodb.errors import UsageError

# What a C type is in a buffer. Half-precision numbers travel as their bits.
DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "int": "int32",
        "unsigned": "uint32",
        "long long": "int64",
        "unsigned long long": "uint64",
    }
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its C type and the range of values that is looked at closely."""

    type: str
    low: float = -4.0
    high: float = 4.0

    @property
    def dtype(self) -> str:
        return DTYPES[self.type]


@dataclass(frozen=True, slots=True)
class Function:
    """One row of the atlas. `code` computes the result from a, b, c, d.

    `exact` names the mathematical function in `exact.EXACT`, empty where the value is not one (bit
    operations). Rows of one `source` are compiled together.
    """

    name: str
    code: str
    arguments: tuple[Argument, ...]
    result: str
    source: str
    exact: str = ""

    @property
    def entry(self) -> str:
        """The `__global__` function's name."""
        return "atlas_" + self.name.replace("-", "_")

    @property
    def dtype(self) -> str:
        return DTYPES[self.result]


Range = tuple[float, float]
_ALL: Range = (-4.0, 4.0)
_WIDE: Range = (-1000.0, 1000.0)
_ROUNDINGS = ("rn", "rz", "ru", "rd")
_WHOLE: Range = (-(2.0**33), 2.0**33)
_ANGLE: Range = (-8 * pi, 8 * pi)

# Name without the float's `f` → the range where it does something.
UNARY: Mapping[str, Range] = MappingProxyType(
    {
        "acos": (-1.0, 1.0),
        "acosh": (1.0, 100.0),
        "asin": (-1.0, 1.0),
        "asinh": (-20.0, 20.0),
        "atan": (-10.0, 10.0),
        "atanh": (-1.0, 1.0),
        "cbrt": (-100.0, 100.0),
        "ceil": _WIDE,
        "cos": _ANGLE,
        "cosh": (-20.0, 20.0),
        "cospi": (-4.0, 4.0),
        "cyl_bessel_i0": (-20.0, 20.0),
        "cyl_bessel_i1": (-20.0, 20.0),
        "erf": _ALL,
        "erfc": (-6.0, 10.0),
        "erfcinv": (0.0, 2.0),
        "erfcx": (-9.0, 50.0),
        "erfinv": (-1.0, 1.0),
        "exp": (-90.0, 90.0),
        "exp10": (-38.0, 38.0),
        "exp2": (-126.0, 128.0),
        "expm1": (-10.0, 10.0),
        "fabs": _ALL,
        "floor": _WIDE,
        "j0": (-50.0, 50.0),
        "j1": (-50.0, 50.0),
        "lgamma": (-20.0, 40.0),
        "log": (0.0, 10.0),
        "log10": (0.0, 10.0),
        "log1p": (-1.0, 4.0),
        "log2": (0.0, 10.0),
        "logb": (0.0, 1000.0),
        "nearbyint": _WIDE,
        "normcdf": (-9.0, 5.0),
        "normcdfinv": (0.0, 1.0),
        "rcbrt": (-100.0, 100.0),
        "rint": _WIDE,
        "round": _WIDE,
        "rsqrt": (0.0, 100.0),
        "sin": _ANGLE,
        "sinh": (-20.0, 20.0),
        "sinpi": (-4.0, 4.0),
        "sqrt": (0.0, 100.0),
        "tan": _ANGLE,
        "tanh": (-10.0, 10.0),
        "tgamma": (-10.0, 36.0),
        "trunc": _WIDE,
        "y0": (0.0, 50.0),
        "y1": (0.0, 50.0),
    }
)
# Functions whose interesting ranges in double are wider than in float.
UNARY_DOUBLE: Mapping[str, Range] = MappingProxyType(
    {
        "cosh": (-700.0, 700.0),
        "erfc": (-6.0, 27.0),
        "erfcx": (-26.0, 50.0),
        "exp": (-745.0, 710.0),
        "exp10": (-323.0, 308.0),
        "exp2": (-1074.0, 1024.0),
        "normcdf": (-38.0, 8.0),
        "sinh": (-700.0, 700.0),
        "tanh": (-20.0, 20.0),
        "tgamma": (-30.0, 170.0),
    }
)

BINARY: Mapping[str, tuple[Range, Range]] = MappingProxyType(
    {
        "atan2": (_ALL, _ALL),
        "copysign": (_ALL, _ALL),
        "fdim": (_ALL, _ALL),
        "fmax": (_ALL, _ALL),
        "fmin": (_ALL, _ALL),
        "fmod": (_WIDE, (-10.0, 10.0)),
        "hypot": (_ALL, _ALL),
        "nextafter": (_ALL, _ALL),
        "pow": ((0.0, 10.0), (-30.0, 30.0)),
        "remainder": (_WIDE, (-10.0, 10.0)),
        "rhypot": (_ALL, _ALL),
    }
)

# Results that are whole numbers: name → (range, type of the result).
TO_INTEGER: Mapping[str, tuple[Range, str]] = MappingProxyType(
    {
        "ilogb": (_WIDE, "int"),
        "llrint": (_WHOLE, "long long"),
        "llround": (_WHOLE, "long long"),
        "lrint": (_WHOLE, "long long"),
        "lround": (_WHOLE, "long long"),
    }
)

# The functions that give two results, each a row: suffix → code with a result variable of its own.
PARTS: Mapping[str, tuple[Range, str, str, str]] = MappingProxyType(
    {
        # name: (range, code where R is the real type and F its suffix, type of the result, exact)
        "sincos-sin": (_ANGLE, "R s, c; sincosF(a, &s, &c); r = s", "R", "sin"),
        "sincos-cos": (_ANGLE, "R s, c; sincosF(a, &s, &c); r = c", "R", "cos"),
        "sincospi-sin": (_ALL, "R s, c; sincospiF(a, &s, &c); r = s", "R", "sinpi"),
        "sincospi-cos": (_ALL, "R s, c; sincospiF(a, &s, &c); r = c", "R", "cospi"),
        "frexp-fraction": (_WIDE, "int e; r = frexpF(a, &e)", "R", ""),
        "frexp-exponent": (_WIDE, "int e; frexpF(a, &e); r = e", "int", ""),
        "modf-fraction": (_WIDE, "R w; r = modfF(a, &w)", "R", ""),
        "modf-whole": (_WIDE, "R w; modfF(a, &w); r = w", "R", "trunc"),
    }
)


def _call(name: str, arity: int) -> str:
    return f"r = {name}({', '.join('abcd'[:arity])})"


def _real(real: str) -> Iterator[Function]:
    """The math API of float or double."""
    f = "f" if real == "float" else ""
    short = "f32" if real == "float" else "f64"
    for base, interest in UNARY.items():
        low, high = interest if f else UNARY_DOUBLE.get(base, interest)
        source = f"{short}-special" if base in _SPECIAL else f"{short}-unary"
        yield Function(f"{base}{f}", _call(base + f, 1), (Argument(real, low, high),), real, source, base)
    for base, ranges in BINARY.items():
        arguments = tuple(Argument(real, *interest) for interest in ranges)
        yield Function(f"{base}{f}", _call(base + f, 2), arguments, real, f"{short}-more", base)
    for base, (interest, result) in TO_INTEGER.items():
        argument = Argument(real, *interest)
        yield Function(f"{base}{f}", _call(base + f, 1), (argument,), result, f"{short}-more", base)
    for name, (interest, pattern, result, exact) in PARTS.items():
        base, part = name.split("-")
        code = pattern.replace("R ", f"{real} ").replace("F(", f"{f}(")
        kind = real if result == "R" else result
        argument = Argument(real, *interest)
        yield Function(f"{base}{f}-{part}", code, (argument,), kind, f"{short}-more", exact)
    two, more = Argument(real), f"{short}-more"
    whole = Argument("int", -40.0, 40.0)
    wide = (Argument(real, *_WIDE), Argument(real, -10.0, 10.0))
    yield Function(f"remquo{f}-remainder", f"int q; r = remquo{f}(a, b, &q)", wide, real, more, "remainder")
    yield Function(f"remquo{f}-quotient", f"int q; remquo{f}(a, b, &q); r = q", wide, "int", more)
    yield Function(f"fma{f}", _call(f"fma{f}", 3), (two,) * 3, real, more, "fma")
    yield Function(f"norm3d{f}", _call(f"norm3d{f}", 3), (two,) * 3, real, more, "norm")
    yield Function(f"rnorm3d{f}", _call(f"rnorm3d{f}", 3), (two,) * 3, real, more, "rnorm")
    yield Function(f"norm4d{f}", _call(f"norm4d{f}", 4), (two,) * 4, real, more, "norm")
    yield Function(f"rnorm4d{f}", _call(f"rnorm4d{f}", 4), (two,) * 4, real, more, "rnorm")
    order = "r = {}(b < 0 ? 0 : b > 12 ? 12 : b, a)"
    for base, interest in (("jn", (-50.0, 50.0)), ("yn", (0.0, 50.0))):
        arguments = (Argument(real, *interest), whole)
        yield Function(f"{base}{f}", order.format(base + f), arguments, real, f"{short}-special", base)
    for base in ("ldexp", "scalbn", "scalbln"):
        b = "(long)b" if base == "scalbln" else "b"
        yield Function(f"{base}{f}", f"r = {base}{f}(a, {b})", (two, whole), real, more, "ldexp")
    yield Function(f"divide-{real}", "r = a / b", (two, two), real, more, "divide")
    yield Function(f"reciprocal-{real}", f"r = ({real})1 / a", (two,), real, more, "reciprocal")
    yield Function(f"multiply-add-{real}", "r = a * b + c", (two,) * 3, real, more, "multiply-add")


# Compiled apart: long code, so that no source takes much longer than another.
_SPECIAL = frozenset(
    ("cyl_bessel_i0", "cyl_bessel_i1", "erfcinv", "erfcx", "erfinv", "j0", "j1", "y0", "y1",
     "lgamma", "tgamma", "normcdf", "normcdfinv")
)  # fmt: skip

# The fast intrinsics of float: name → (ranges, exact).
FAST: Mapping[str, tuple[tuple[Range, ...], str]] = MappingProxyType(
    {
        "__cosf": ((_ANGLE,), "cos"),
        "__exp10f": (((-38.0, 38.0),), "exp10"),
        "__expf": (((-90.0, 90.0),), "exp"),
        "__fdividef": ((_ALL, _ALL), "divide"),
        "fdividef": ((_ALL, _ALL), "divide"),
        "__log10f": (((0.0, 10.0),), "log10"),
        "__log2f": (((0.0, 10.0),), "log2"),
        "__logf": (((0.0, 10.0),), "log"),
        "__powf": (((0.0, 10.0), (-30.0, 30.0)), "pow"),
        "__saturatef": ((_ALL,), ""),
        "__sinf": ((_ANGLE,), "sin"),
        "__tanf": ((_ANGLE,), "tan"),
        "__frsqrt_rn": (((0.0, 100.0),), "rsqrt"),
    }
)
# Arithmetic in its rounding variants: name with {} for the rounding → (arity, exact).
_ROUNDED_FLOAT: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "__fadd_{}": (2, "add"),
        "__fsub_{}": (2, "subtract"),
        "__fmul_{}": (2, "multiply"),
        "__fdiv_{}": (2, "divide"),
        "__fmaf_{}": (3, "fma"),
        "__fmaf_ieee_{}": (3, "fma"),
        "__frcp_{}": (1, "reciprocal"),
        "__fsqrt_{}": (1, "sqrt"),
    }
)
_ROUNDED_DOUBLE: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "__dadd_{}": (2, "add"),
        "__dsub_{}": (2, "subtract"),
        "__dmul_{}": (2, "multiply"),
        "__ddiv_{}": (2, "divide"),
        "__fma_{}": (3, "fma"),
        "__drcp_{}": (1, "reciprocal"),
        "__dsqrt_{}": (1, "sqrt"),
    }
)


def _intrinsics() -> Iterator[Function]:
    for name, (ranges, exact) in FAST.items():
        arguments = tuple(Argument("float", *interest) for interest in ranges)
        yield Function(name, _call(name, len(ranges)), arguments, "float", "f32-intrinsics", exact)
    angle = (Argument("float", *_ANGLE),)
    for part, variable in (("sin", "s"), ("cos", "c")):
        code = f"float s, c; __sincosf(a, &s, &c); r = {variable}"
        yield Function(f"__sincosf-{part}", code, angle, "float", "f32-intrinsics", part)
    for real, table in (("float", _ROUNDED_FLOAT), ("double", _ROUNDED_DOUBLE)):
        source = "f32-intrinsics" if real == "float" else "f64-intrinsics"
        for pattern, (arity, exact) in table.items():
            interest = (0.0, 100.0) if exact == "sqrt" else _ALL
            for rounding in _ROUNDINGS:
                name = pattern.format(rounding)
                yield Function(
                    name, _call(name, arity), (Argument(real, *interest),) * arity, real, source, exact
                )


# Conversions: from → (to, name of the type in the intrinsic, its roundings).
_NAMES: Mapping[str, str] = MappingProxyType(
    {"float": "float", "double": "double", "int": "int", "unsigned": "uint", "long long": "ll",
     "unsigned long long": "ull"}
)  # fmt: skip
_WHOLES = ("int", "unsigned", "long long", "unsigned long long")


def _conversions() -> Iterator[Function]:
    pairs: list[tuple[str, str, tuple[str, ...]]] = [("double", "float", _ROUNDINGS)]
    pairs += [(real, whole, _ROUNDINGS) for real in ("float", "double") for whole in _WHOLES]
    pairs += [(whole, "float", _ROUNDINGS) for whole in _WHOLES]
    pairs += [(whole, "double", _ROUNDINGS) for whole in _WHOLES[2:]]
    pairs += [(whole, "double", ("rn",)) for whole in _WHOLES[:2]]
    for source, target, roundings in pairs:
        interest = _WHOLE if target in _WHOLES else _WIDE
        for rounding in roundings:
            name = f"__{_NAMES[source]}2{_NAMES[target]}_{rounding}"
            yield Function(
                name, _call(name, 1), (Argument(source, *interest),), target, "conversions", "same"
            )


# Half precision: name → (arity, exact). One-argument rows see every half there is.
HALF: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "hceil": (1, "ceil"),
        "hcos": (1, "cos"),
        "hexp": (1, "exp"),
        "hexp10": (1, "exp10"),
        "hexp2": (1, "exp2"),
        "hfloor": (1, "floor"),
        "hlog": (1, "log"),
        "hlog10": (1, "log10"),
        "hlog2": (1, "log2"),
        "hrcp": (1, "reciprocal"),
        "hrint": (1, "rint"),
        "hrsqrt": (1, "rsqrt"),
        "hsin": (1, "sin"),
        "hsqrt": (1, "sqrt"),
        "htrunc": (1, "trunc"),
        "__habs": (1, "fabs"),
        "__hneg": (1, ""),
        "__hadd": (2, "add"),
        "__hadd_rn": (2, "add"),
        "__hadd_sat": (2, ""),
        "__hsub": (2, "subtract"),
        "__hmul": (2, "multiply"),
        "__hmul_rn": (2, "multiply"),
        "__hdiv": (2, "divide"),
        "__hmax": (2, "fmax"),
        "__hmin": (2, "fmin"),
        "__hfma": (3, "fma"),
        "__hfma_relu": (3, ""),
        "__hfma_sat": (3, ""),
    }
)


def _halves() -> Iterator[Function]:
    for name, (arity, exact) in HALF.items():
        yield Function(name, _call(name, arity), (Argument("half"),) * arity, "half", "f16", exact)
    yield Function("__half2float", "r = __half2float(a)", (Argument("half"),), "float", "f16", "same")
    for rounding in _ROUNDINGS:
        name = f"__float2half_{rounding}"
        yield Function(name, _call(name, 1), (Argument("float", *_WIDE),), "half", "f16", "same")
    yield Function(
        "__double2half", "r = __double2half(a)", (Argument("double", *_WIDE),), "half", "f16", "same"
    )


def functions() -> tuple[Function, ...]:
    """The whole atlas, sorted by name; names are unique."""
    rows = (*_real("float"), *_real("double"), *_intrinsics(), *_conversions(), *_halves())
    return tuple(sorted(rows, key=lambda row: (row.name.lstrip("_"), row.name)))


def select(globs: Iterable[str]) -> tuple[Function, ...]:
    """The functions whose names match any glob, all without one. UsageError for a glob that matches none."""
    every = functions()
    wanted = tuple(globs)
    for glob in wanted:
        if not any(fnmatchcase(row.name, glob) for row in every):
            from reprodb.suite.tables import suggest

            names = [row.name for row in every]
            raise UsageError(
                f"the atlas has no function {glob!r}",
                allowed="reprodb atlas --list shows all of them",
                remedy=suggest(glob, names),
            )
    return tuple(row for row in every if not wanted or any(fnmatchcase(row.name, glob) for glob in wanted))
