"""Floating-point instructions: modifiers around the exact functions, and conversions."""

from __future__ import annotations

from collections.abc import Callable

from tests.model.reference import exact
from tests.model.reference.bits import mask, signed
from tests.model.reference.errors import Refused
from tests.model.reference.exact import F32, F64, FORMATS, Format
from tests.model.reference.parse import BYTES

Mods = tuple[str, ...]

FLOAT_MODES = ("rn", "rz", "rm", "rp", "rna")
INTEGER_MODES = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
EXACT: dict[str, Callable[..., int]] = {
    "add": exact.add,
    "sub": exact.sub,
    "mul": exact.mul,
    "fma": exact.fma,
    "mad": exact.fma,
    "div": exact.div,
    "sqrt": exact.sqrt,
}


def is_float(type_: str) -> bool:
    return type_ in FORMATS or type_ in ("f16x2", "bf16x2")


def halves(type_: str) -> str:
    """The element type of a packed pair, "" for a scalar."""
    return type_.removesuffix("x2") if type_.endswith("x2") else ""


def mode_of(mods: Mods) -> str:
    return next((m for m in mods if m in FLOAT_MODES), "rn")


def each_half(function: Callable[..., int], args: tuple[int, ...]) -> int:
    low = function(*(a & 0xFFFF for a in args))
    return low | function(*(a >> 16 for a in args)) << 16


def arithmetic(op: str, mods: Mods, args: tuple[int, ...]) -> int:
    """add, sub, mul, fma, mad, div, sqrt, rcp with rounding, ftz, sat and relu."""
    if "approx" in mods or "full" in mods:
        raise Refused(f"{op}.{'.'.join(mods)}: PTX does not pin its bits")
    element = halves(mods[-1])
    if element:
        inner = (*mods[:-1], element)
        return each_half(lambda *a: arithmetic(op, inner, a), args)
    f = FORMATS[mods[-1]]
    if op == "rcp":
        op, args = "div", (f.one, *args)
    if op in ("div", "sqrt") and not any(m in FLOAT_MODES for m in mods):
        raise Refused(f"{op} without a rounding")
    ftz = "ftz" in mods
    if ftz:
        args = tuple(exact.flush(f, a) for a in args)
    mode = mode_of(mods)
    result = EXACT[op](f, *args, mode)
    if ftz and exact.is_tiny(f, EXACT[op], args, mode):
        result &= f.sign
    return finish(f, result, mods)


def finish(f: Format, result: int, mods: Mods) -> int:
    """What `.ftz`, `.sat` and `.relu` do to a rounded result."""
    if "ftz" in mods:
        result = exact.flush(f, result)
    if "sat" in mods:
        result = exact.saturate(f, result)
    if "relu" in mods:
        result = exact.relu(f, result)
    return result


def extremum(op: str, mods: Mods, args: tuple[int, ...]) -> int:
    """min and max; three operands fold from the left."""
    if "xorsign" in mods:
        raise Refused(f"{op}.{'.'.join(mods)}")
    element = halves(mods[-1])
    if element:
        inner = (*mods[:-1], element)
        return each_half(lambda *a: extremum(op, inner, a), args)
    f = FORMATS[mods[-1]]
    pick = exact.minimum if op == "min" else exact.maximum
    if "ftz" in mods:
        args = tuple(exact.flush(f, a) for a in args)
    result = args[0]
    for other in args[1:]:
        result = pick(f, result, other, "NaN" in mods)
    return result


def sign_only(op: str, mods: Mods, a: int) -> int:
    """neg and abs touch the sign alone. A NaN goes through them as through arithmetic, its sign kept."""
    element = halves(mods[-1])
    if element:
        inner = (*mods[:-1], element)
        return each_half(lambda v: sign_only(op, inner, v), (a,))
    f = FORMATS[mods[-1]]
    if "ftz" in mods:
        a = exact.flush(f, a)
    if exact.is_nan(f, a):
        return exact.nan_of(f, a)
    return a ^ f.sign if op == "neg" else a & ~f.sign


def compare(relation: str, mods: Mods, a: int, b: int) -> bool:
    f = FORMATS[mods[-1]]
    if "ftz" in mods:
        a, b = exact.flush(f, a), exact.flush(f, b)
    return exact.compare(f, relation, a, b)


def test_property(mods: Mods, a: int) -> bool:
    f = FORMATS[mods[-1]]
    nan, inf = exact.is_nan(f, a), exact.is_inf(f, a)
    return {
        "finite": not nan and not inf,
        "infinite": inf,
        "number": not nan,
        "notanumber": nan,
        "normal": not nan and not inf and not exact.is_subnormal(f, a),  # the zeros count as normal
        "subnormal": exact.is_subnormal(f, a),
    }[mods[0]]


def convert(mods: Mods, args: tuple[int, ...]) -> int:
    """cvt between all types; the last two words are the target's and the source's."""
    target, source = mods[-2], mods[-1]
    rest = mods[:-2]
    if halves(target):
        element = halves(target)
        high, low = (convert((*rest, element, source), (a,)) for a in args)
        return high << 16 | low
    if target not in BYTES or source not in BYTES:
        raise Refused(f"cvt.{'.'.join(mods)}")
    a = args[0]
    if target in FORMATS and source in FORMATS:
        return _float_to_float(rest, FORMATS[target], FORMATS[source], a)
    if source in FORMATS:
        f = FORMATS[source]
        if "ftz" in rest:
            a = exact.flush(f, a) if f is F32 else a
        modes = [INTEGER_MODES[m] for m in rest if m in INTEGER_MODES]
        if not modes:
            raise Refused("a float converted to an integer without a rounding")
        return exact.to_integer(f, a, 8 * BYTES[target], target[0] == "s", modes[0])
    value = signed(a, 8 * BYTES[source]) if source[0] == "s" else a & mask(8 * BYTES[source])
    if target in FORMATS:
        result = exact.from_integer(FORMATS[target], value, mode_of(rest))
        return finish(FORMATS[target], result, tuple(m for m in rest if m == "sat"))
    if "sat" in rest:
        width = 8 * BYTES[target]
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if target[0] == "s" else (0, mask(width))
        value = max(low, min(high, value))
    return value & mask(8 * BYTES[target])


def _float_to_float(rest: Mods, target: Format, source: Format, a: int) -> int:
    if "ftz" in rest and source is F32:
        a = exact.flush(source, a)
        if target is F64 and exact.is_nan(source, a):
            a = source.nan  # f32 arithmetic does the flushing
    whole = [INTEGER_MODES[m] for m in rest if m in INTEGER_MODES]
    if whole:
        result = exact.round_integral(source, a, whole[0])
        if target is not source:
            result = exact.convert(source, target, result, mode_of(rest))
    else:
        result = exact.convert(source, target, a, mode_of(rest))
        if "ftz" in rest and target is F32 and source is F64 and exact.is_tiny_number(a, mode_of(rest)):
            result &= target.sign
    return finish(target, result, tuple(m for m in rest if m != "ftz" or target is F32))


def atomic_sum(f: Format, old: int, b: int, *, in_global: bool) -> int:
    """atomicAdd: floats lose their subnormals in global memory, and a double's NaN passes as it is."""
    if f is F32 and in_global:
        return exact.flush(f, exact.add(f, exact.flush(f, old), exact.flush(f, b)))
    if f is F64 and in_global:
        for a in (b, old):
            if exact.is_nan(f, a):
                return a
    return exact.add(f, b, old)  # of two NaNs the old one stays


def one_if(condition: bool, type_: str) -> int:
    """`set`: 1.0 in a float, all ones in an integer."""
    if not condition:
        return 0
    return FORMATS[type_].one if type_ in FORMATS else mask(8 * BYTES[type_])
