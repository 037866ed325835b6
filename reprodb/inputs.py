"""Inputs by name: checked parameters → `Input` → arrays, chunks and digests of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from math import isfinite, isnan

import numpy as np

from reprodb.domain import DTYPE_BYTES, Input
from reprodb.errors import UsageError
from reprodb.patterns import INTEGERS, PATTERNS, Array, Number, Param, storage

__all__ = ["PATTERNS", "chunks", "digest", "generate", "label", "resolve"]

# Elements a chunk: 1 MiB of float32, which caches hold.
CHUNK = 1 << 18

# Binades of normal numbers below 2, of each float type.
_BINADES = {"float16": 15, "bfloat16": 127, "float32": 127, "float64": 1023}

BEYOND = 1 << 64  # whole numbers larger than this are no element of any type


def _nearest(name: str, known: Iterable[str]) -> str:
    """A remedy that names the closest known name, or nothing."""
    close = get_close_matches(name, list(known), 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def _shown(value: object) -> str:
    """A value as an error names it: short, and never the digits of an endless number."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def resolve(name: str, pattern: str, n: int, dtype: str, params: Mapping[str, object]) -> Input:
    """The `Input` of a manifest's words, checked, with every default filled in and parameters sorted.

    Raises UsageError naming the value, what is allowed and the nearest name.
    """
    if pattern not in PATTERNS:
        raise UsageError(
            f"unknown input pattern {pattern!r}",
            allowed=", ".join(PATTERNS),
            remedy=_nearest(pattern, PATTERNS),
        )
    spec = PATTERNS[pattern]
    if dtype not in spec.dtypes:
        raise UsageError(
            f"pattern {pattern!r} makes no {dtype!r}",
            allowed=", ".join(spec.dtypes),
            remedy=_nearest(dtype, spec.dtypes),
        )
    for key in params:
        if key not in spec.params:
            raise UsageError(
                f"pattern {pattern!r} has no parameter {key!r}",
                allowed=", ".join(spec.params) or "no parameters",
                remedy=_nearest(key, spec.params),
            )
    values: dict[str, Number] = {}
    for key, param in spec.params.items():
        given = params.get(key, param.default)
        if given is not None:
            values[key] = _checked(pattern, key, param, given)
    _check_together(pattern, dtype, values)
    return Input(name, pattern, n, dtype, tuple(sorted(values.items())))


def _checked(pattern: str, key: str, param: Param, given: object) -> Number:
    whole = isinstance(given, int) and not isinstance(given, bool)
    number = whole or isinstance(given, float)
    low = param.low if param.low is not None else -BEYOND if whole else None
    high = param.high if param.high is not None else BEYOND if whole else None
    in_range = number and (low is None or given >= low) and (high is None or given <= high)  # type: ignore[operator]
    if not in_range or (param.kind == "integer" and not whole):
        allowed = "an integer" if param.kind == "integer" else "a number"
        if param.low is not None:
            allowed += f" from {param.low} to {param.high}"
        raise UsageError(f"parameter {key} = {_shown(given)} of pattern {pattern!r}", allowed=allowed)
    assert isinstance(given, int | float)  # noqa: S101 -- what `number` says, for the type checker
    return given


def _integer_range(dtype: str) -> tuple[int, int]:
    info = np.iinfo(storage(dtype))
    return int(info.min), int(info.max)


def _check_together(pattern: str, dtype: str, values: Mapping[str, Number]) -> None:
    """What depends on more than one parameter, or on the element type."""
    if pattern == "wide" and values["binades"] > (most := _BINADES[dtype]):
        raise UsageError(f"binades = {int(values['binades'])} do not fit {dtype}", allowed=f"1 to {most}")
    if pattern == "integers":
        low, high = values["low"], values["high"]
        if low > high:
            raise UsageError(f"pattern 'integers' has low = {low} above high = {high}", allowed="low <= high")
        if dtype in INTEGERS:
            least, most = _integer_range(dtype)
            if low < least or high > most:
                raise UsageError(
                    f"pattern 'integers' from {low} to {high} does not fit {dtype}",
                    allowed=f"{least} to {most}",
                )
    if pattern == "values":
        if not values or list(values) != [f"v{i}" for i in range(len(values))]:
            raise UsageError(
                f"pattern 'values' has {', '.join(values) or 'no values'}",
                allowed="v0, v1, v2 and so on, none left out: {pattern = 'values', v0 = 1.5, v1 = -1.5}",
            )
        if any(isnan(value) for value in values.values()):
            raise UsageError(
                "value = nan of pattern 'values'", allowed="numbers; a NaN by its bits: pattern = 'constant'"
            )
    if pattern == "constant":
        if len(values) != 1:
            raise UsageError(
                "pattern 'constant' needs exactly one of value and bits",
                allowed="{pattern = 'constant', value = 1.5} or {pattern = 'constant', bits = 0x7fc00001}",
            )
        width = DTYPE_BYTES[dtype]
        if "bits" in values and values["bits"] >= 1 << (8 * width):
            raise UsageError(f"bits = {int(values['bits']):#x} do not fit {dtype}", allowed=f"{width} bytes")
        if isnan(values.get("value", 0)):
            raise UsageError(
                "value = nan of pattern 'constant'", allowed="a NaN by its bits: bits = 0x7fc00000"
            )
        if "value" in values and dtype in INTEGERS:
            value, (least, most) = values["value"], _integer_range(dtype)
            if not isfinite(value) or value != int(value) or not least <= value <= most:
                raise UsageError(
                    f"value = {value} is no {dtype}", allowed=f"an integer from {least} to {most}"
                )


def label(spec: Input) -> str:
    """What names a case after its input: the pattern, then what differs from its defaults."""
    defaults = {key: param.default for key, param in PATTERNS[spec.pattern].params.items()}
    parts = [spec.pattern]
    for key, value in spec.params:
        if value != defaults[key] or repr(value) != repr(defaults[key]):
            shown = f"{value:x}" if key == "bits" else repr(value).replace("+", "")
            parts.append(f"{key}{shown}")
    if spec.dtype != "float32":
        parts.append(spec.dtype)
    return "-".join(parts)


def _sizes(n: int, chunk: int) -> Iterator[int]:
    full, rest = divmod(n, chunk)
    for _ in range(full):
        yield chunk
    if rest:
        yield rest


def chunks(spec: Input, chunk: int = CHUNK) -> Iterator[Array]:
    """The elements in order, `chunk` (a multiple of 8) at a time, little endian."""
    params = {k: p.default for k, p in PATTERNS[spec.pattern].params.items() if p.default is not None}
    yield from PATTERNS[spec.pattern].make(spec.dtype, {**params, **dict(spec.params)}, _sizes(spec.n, chunk))


def generate(spec: Input) -> Array:
    """The whole array, shape (n,), of the dtype's storage type (bfloat16: its bits in uint16)."""
    array = np.empty(spec.n, storage(spec.dtype))
    start = 0
    for chunk in chunks(spec):
        array[start : start + len(chunk)] = chunk
        start += len(chunk)
    return array


@lru_cache(maxsize=1024)
def digest(inputs: tuple[Input, ...]) -> str:
    """Hex SHA-256 over each input's name, dtype, count and bytes, framed like `digest.content_key`.

    How the bytes came about (pattern, parameters) is not in it: equal bytes are an equal input.
    """
    total = hashlib.sha256()
    _frame(total, b"reprodb.input/1")
    for spec in inputs:
        for part in (spec.name, spec.dtype, str(spec.n)):
            _frame(total, part.encode())
        total.update((spec.n * DTYPE_BYTES[spec.dtype]).to_bytes(8, "little"))
        for chunk in chunks(spec):
            total.update(chunk.data)
    return total.hexdigest()


def _frame(total: hashlib._Hash, data: bytes) -> None:
    total.update(len(data).to_bytes(8, "little"))
    total.update(data)
