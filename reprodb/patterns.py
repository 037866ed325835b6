"""Named input patterns: one table from a pattern's name to the code that makes its elements.

Every pattern yields its elements in order, chunk by chunk, from a state that does not depend on where the
chunks end; so a digest needs no whole array, and arrays of 2^31 elements need no second copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import DTYPE_BYTES
from reprodb.near_ties import make_requests, make_weights
from reprodb.sweep import in_chunks, sweep

Array = NDArray[Any]
Number = int | float
Params = Mapping[str, Number]
# (dtype, parameters, sizes of consecutive chunks) → the chunks, each of the storage type of the dtype.
# All sizes but the last are a multiple of 8, the longest period of draws: 4 elements, or 8 bytes.
Maker = Callable[[str, Params, Iterable[int]], Iterator[Array]]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ALL = tuple(DTYPE_BYTES)


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a pattern. `default` is None where it must be given or may be left out."""

    default: Number | None
    kind: str  # "integer" or "number"
    low: Number | None = None
    high: Number | None = None


@dataclass(frozen=True, slots=True)
class PatternSpec:
    """One row of the table: what it makes, for which element types, from which parameters."""

    summary: str
    dtypes: tuple[str, ...]
    make: Maker
    params: Mapping[str, Param]


def storage(dtype: str) -> np.dtype[Any]:
    """The little-endian NumPy type that holds a dtype; bfloat16 is kept as its bits in uint16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")


def to_bfloat16(values: Array) -> Array:
    """Bits of float32 values rounded to bfloat16, nearest even; NaNs keep their sign and upper payload."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _cast(values: Array, dtype: str) -> Array:
    """Values rounded once to `dtype`, to nearest even; integers keep their low bits."""
    if dtype == "bfloat16":
        return to_bfloat16(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(storage(dtype), copy=False)


def _rng(params: Params) -> np.random.Generator:
    return np.random.default_rng(int(params["seed"]))


def _float_base(dtype: str) -> Any:
    """Random and computed floats are made in float32, or in float64 for float64, and then rounded."""
    return np.float64 if dtype == "float64" else np.float32


# --- The patterns ------------------------------------------------------------------------------


def _ramp1000(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    base = _float_base(dtype)
    # The product is rounded and then the sum: NumPy never fuses the two.
    period = _cast(base(1) + np.arange(1000).astype(base) * base(0.001), dtype)
    start = 0
    for size in sizes:
        yield np.resize(np.roll(period, -(start % 1000)), size)
        start += size


def _normal(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    rng = _rng(params)
    for size in sizes:
        yield _cast(rng.standard_normal(size, dtype=_float_base(dtype)), dtype)


def _uniform(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    rng = _rng(params)
    for size in sizes:
        yield _cast(rng.random(size, dtype=_float_base(dtype)), dtype)


def _ones(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    for size in sizes:
        yield _cast(np.ones(size, np.float32), dtype)


def _probe(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    start, power = 0, int(params["power"])
    for size in sizes:
        values = np.ones(size, _float_base(dtype))
        for at, sign in ((int(params["i"]), 1), (int(params["j"]), -1)):
            if start <= at < start + size:
                values[at - start] = sign * 2.0**power
        yield _cast(values, dtype)
        start += size


def _integers(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    rng = _rng(params)
    for size in sizes:
        draws = rng.integers(int(params["low"]), int(params["high"]), size=size, endpoint=True)
        yield _cast(draws.astype(_float_base(dtype)) if dtype in FLOATS else draws, dtype)


def _cancelling(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    base, rng = _float_base(dtype), _rng(params)
    for size in sizes:
        draws = rng.random((-(-size // 4), 3), dtype=base)
        big = (1 + draws[:, 0]) * base(params["scale"])
        groups = np.stack([big, draws[:, 1], -big, draws[:, 2]], axis=1)
        yield _cast(groups.reshape(-1)[:size], dtype)


def _wide(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    exponent_bits, fraction_bits = _LAYOUT[dtype]
    words = np.dtype(f"<u{DTYPE_BYTES[dtype]}")
    bias, mask = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    binades = int(params["binades"])
    for chunk in _random_bits(dtype, int(params["seed"]), sizes):
        bits = chunk.view(words)
        drawn = (bits >> words.type(fraction_bits)) & words.type(mask)
        exponent = words.type(bias) - drawn % words.type(binades)
        kept = bits & words.type(~(mask << fraction_bits) & ((1 << 8 * words.itemsize) - 1))
        yield (kept | (exponent << words.type(fraction_bits))).view(storage(dtype))


def _index(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    start = 0
    for size in sizes:
        numbers = np.arange(start, start + size, dtype=np.uint64)
        yield _cast(numbers.astype(np.float32) if dtype == "bfloat16" else numbers, dtype)
        start += size


def _constant(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    if "bits" in params:
        element = np.frombuffer(int(params["bits"]).to_bytes(DTYPE_BYTES[dtype], "little"), storage(dtype))
    elif dtype in INTEGERS:
        element = np.array([int(params["value"])], storage(dtype))
    else:
        element = _cast(np.array([params["value"]], _float_base(dtype)), dtype)
    for size in sizes:
        yield np.repeat(element, size)


def _values(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    given = [params[key] for key in sorted(params, key=lambda key: int(key[1:]))]
    cycle = _cast(np.array(given, np.float64), dtype)
    start = 0
    for size in sizes:
        yield np.resize(np.roll(cycle, -(start % len(cycle))), size)
        start += size


def _random_bits(dtype: str, seed: int, sizes: Iterable[int]) -> Iterator[Array]:
    """Raw PCG64 words cut into elements; the bit stream is what NumPy promises to keep between versions."""
    source, width = np.random.PCG64(seed), DTYPE_BYTES[dtype]
    for size in sizes:
        words = np.asarray(source.random_raw(-(-size * width // 8)), dtype="<u8")
        yield words.view(storage(dtype))[:size]


def _bits(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    yield from _random_bits(dtype, int(params["seed"]), sizes)


# Exponent and fraction bits of each float type.
_LAYOUT = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}


def special_bits(dtype: str) -> tuple[int, ...]:
    """Bits of the values that trip arithmetic, positive then negative.

    Floats: zero, subnormals, the normal boundary, one and its neighbours, powers of two about the width of
    the fraction (where adding one is a halfway case), the largest, infinity, quiet and signalling NaNs with
    payloads. Integers: zero, one, the extremes and alternating bits.
    """
    width = 8 * DTYPE_BYTES[dtype]
    if dtype in INTEGERS:
        top, full = 1 << (width - 1), (1 << width) - 1
        stripes = int("5" * (width // 4), 16)
        return (0, 1, 2, full, full - 1, top, top - 1, top + 1, stripes, full - stripes)
    exponent_bits, fraction_bits = _LAYOUT[dtype]
    one = ((1 << (exponent_bits - 1)) - 1) << fraction_bits
    unit = 1 << fraction_bits
    inf = ((1 << exponent_bits) - 1) << fraction_bits
    half = unit >> 1
    positive = (
        *(0, 1, 2, half, unit - 1),  # zero and subnormals
        *(unit, unit + 1, 2 * unit),  # the smallest normals
        *(one - 1, one, one + 1, one + half, one + half + 1, one + unit),  # about one, 1.5, 2
        *(one + (half >> 1) + 1, one + unit - 1),
        *(one + fraction_bits * unit, one + (fraction_bits + 1) * unit),  # 2^p: where the unit of 1 is lost
        *(inf - unit, inf - 1, inf),  # large, largest, infinity
        *(inf + half, inf + half + 1, inf + 1, inf + unit - 1),  # quiet, quiet payload, signalling, all ones
    )
    sign = 1 << (width - 1)
    return (*positive, *(sign | bits for bits in positive))


def _special(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    width = DTYPE_BYTES[dtype]
    values = np.array(special_bits(dtype), dtype=f"<u{width}").view(storage(dtype))
    # The first k*k elements cycle through the k values; with `outer` each stays for k elements, so that an
    # input with and an input without it meet in every pair.
    pairs = np.repeat(values, len(values)) if params["outer"] else np.tile(values, len(values))
    start = 0
    for chunk in _random_bits(dtype, int(params["seed"]), sizes):
        head = pairs[start : start + len(chunk)]
        chunk[: len(head)] = head
        yield chunk
        start += len(chunk)


def _sweep(dtype: str, params: Params, sizes: Iterable[int]) -> Iterator[Array]:
    # How many there are decides nothing about an element, but all of them are made at once.
    parts = list(sizes)
    yield from in_chunks(sweep(dtype, params, special_bits(dtype), sum(parts)), parts)


_SEED = Param(0, "integer", 0, 2**63 - 1)
_WIDTH = Param(1024, "integer", 4, 2**24)
MOST_VALUES = 16


def _params(**params: Param) -> Mapping[str, Param]:
    return MappingProxyType(params)


PATTERNS: Mapping[str, PatternSpec] = MappingProxyType(
    {
        "ramp1000": PatternSpec(
            "1 + (i mod 1000) * 0.001, product and sum rounded apart", FLOATS, _ramp1000, _params()
        ),
        "normal": PatternSpec("standard normal draws", FLOATS, _normal, _params(seed=_SEED)),
        "uniform": PatternSpec("uniform draws from [0, 1)", FLOATS, _uniform, _params(seed=_SEED)),
        "ones": PatternSpec("1 everywhere", ALL, _ones, _params()),
        "probe": PatternSpec(
            "1 everywhere but 2^power at i and -2^power at j: asks where the two meet in a sum",
            ("bfloat16", "float32", "float64"),
            _probe,
            _params(
                i=Param(0, "integer", 0, 2**53),
                j=Param(1, "integer", 0, 2**53),
                power=Param(60, "integer", 0, 120),
            ),
        ),
        "integers": PatternSpec(
            "whole numbers from low to high: sums are exact while n * max(|low|, |high|) fits the fraction",
            ALL,
            _integers,
            _params(
                seed=_SEED,
                low=Param(0, "integer", -(2**31), 2**31),
                high=Param(3, "integer", -(2**31), 2**31),
            ),
        ),
        "cancelling": PatternSpec(
            "groups of four: large, small, the same large negated, small",
            FLOATS,
            _cancelling,
            _params(seed=_SEED, scale=Param(1048576.0, "number", 0.0, 1e300)),
        ),
        "wide": PatternSpec(
            "random signs and fractions, sizes spread over the binades below 2: nearly every addition rounds",
            FLOATS,
            _wide,
            _params(seed=_SEED, binades=Param(12, "integer", 1, 1023)),
        ),
        "special": PatternSpec(
            "special values in a cycle, then random bits",
            ALL,
            _special,
            _params(seed=_SEED, outer=Param(0, "integer", 0, 1)),
        ),
        "sweep": PatternSpec(
            "arguments of a function: its range from low to high, every exponent, landmarks, special values",
            tuple(dtype for dtype in ALL if dtype != "bfloat16"),
            _sweep,
            _params(
                seed=_SEED,
                axis=Param(0, "integer", 0, 3),
                low=Param(-4.0, "number"),
                high=Param(4.0, "number"),
            ),
        ),
        "bits": PatternSpec("random bits", ALL, _bits, _params(seed=_SEED)),
        "index": PatternSpec("0, 1, 2, …; integers wrap", ALL, _index, _params()),
        "values": PatternSpec(
            "the values given, v0, v1, v2 and so on, in a cycle",
            FLOATS,
            _values,
            _params(**{f"v{i}": Param(None, "number") for i in range(MOST_VALUES)}),
        ),
        "tied_weights": PatternSpec(
            "rows of weights in pairs that are a hair apart",
            ("float32",),
            make_weights,
            _params(seed=_SEED, width=_WIDTH),
        ),
        "tied_requests": PatternSpec(
            "requests: the first ones lean towards a pair of tied_weights of the same seed and width",
            ("float32",),
            make_requests,
            _params(
                seed=_SEED,
                width=_WIDTH,
                words=Param(32, "integer", 1, 2**20),
                probes=Param(64, "integer", 0, 2**20),
            ),
        ),
        "constant": PatternSpec(
            "one value, given as value or as bits",
            ALL,
            _constant,
            _params(value=Param(None, "number"), bits=Param(None, "integer", 0, 2**64 - 1)),
        ),
    }
)
