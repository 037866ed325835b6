"""Input patterns: their bits, that chunking never shows, and what is refused."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.bits import values_of
from reprodb.digest import sha256
from reprodb.domain import DTYPE_BYTES, Input
from reprodb.errors import UsageError
from reprodb.inputs import chunks, digest, generate, label, resolve
from reprodb.patterns import PATTERNS, special_bits, storage, to_bfloat16


def _spec(pattern: str, n: int, dtype: str = "float32", **params: int | float) -> Input:
    return resolve("x", pattern, n, dtype, params)


def _words(spec: Input) -> list[int]:
    width = DTYPE_BYTES[spec.dtype]
    return [int(w) for w in np.frombuffer(generate(spec).tobytes(), f"<u{width}")]


# --- Bits --------------------------------------------------------------------------------------


def test_ramp1000_rounds_the_product_and_then_the_sum() -> None:
    values = generate(_spec("ramp1000", 2500))
    step = Fraction(float(np.float32(0.001)))
    for i in (0, 1, 7, 123, 999, 1000, 1999, 2499):
        product = np.float32(float(step * (i % 1000)))  # exact in double: 24 + 10 bits
        assert values[i] == np.float32(1 + float(product))


def test_ramp1000_is_not_what_a_fused_ramp_would_be() -> None:
    """A fused multiply-add would change 683,763 of the 4,194,915 inputs of the published experiment."""
    values = generate(_spec("ramp1000", 4_194_915))
    fused = (1 + (np.arange(1000) * np.float64(np.float32(0.001)))).astype(np.float32)
    assert int(np.count_nonzero(values != np.resize(fused, 4_194_915))) == 683_763


# First four words, computed once with NumPy 2.4 and kept: a changed stream must not pass unseen.
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (_spec("normal", 4, seed=68), [0x3F84F48A, 0xBEE3E200, 0x3F185F93, 0xBF3DA64C]),
        (_spec("uniform", 4, seed=68), [0x3EF92804, 0x3EF7FEEA, 0x3F0B0364, 0x3F592BE9]),
        (
            _spec("integers", 8, seed=68),
            [0x3F800000, 0x3F800000, 0x40000000, 0x40400000, 0x3F800000, 0x40000000, 0x40400000, 0x40000000],
        ),
        (_spec("cancelling", 4, seed=68), [0x49BE4A01, 0x3EF7FEEA, 0xC9BE4A01, 0x3F0B0364]),
        (_spec("wide", 4, seed=68), [0x3B1402CB, 0x3C7F752A, 0xBA836440, 0xBAABE925]),
        (_spec("bits", 4, seed=68), [0x7C9402CB, 0x7BFF752A, 0x8B036440, 0xD92BE925]),
        (_spec("ones", 2), [0x3F800000] * 2),
        (_spec("ones", 2, "bfloat16"), [0x3F80] * 2),
        (_spec("ones", 2, "float16"), [0x3C00] * 2),
        (_spec("ones", 2, "int8"), [1, 1]),
        (_spec("index", 4, "uint8"), [0, 1, 2, 3]),
        (_spec("index", 3), [0, 0x3F800000, 0x40000000]),
        (_spec("constant", 2, value=-0.0), [0x80000000] * 2),
        (_spec("constant", 1, bits=0x7FC00001), [0x7FC00001]),
        (_spec("constant", 1, "int16", value=-2), [0xFFFE]),
        (_spec("constant", 1, "bfloat16", value=1.00390625), [0x3F80]),  # halfway: to even
        (_spec("constant", 1, "float64", value=0.1), [0x3FB999999999999A]),
    ],
    ids=lambda value: f"{value.pattern}-{value.dtype}" if isinstance(value, Input) else None,
)
def test_first_words(spec: Input, words: list[int]) -> None:
    assert _words(spec) == words


def test_normal_is_numpys_own_stream() -> None:
    expected = np.random.default_rng(68).standard_normal(300_000, dtype=np.float32)
    assert generate(_spec("normal", 300_000, seed=68)).tobytes() == expected.tobytes()


def test_uniform_is_numpys_own_stream() -> None:
    expected = np.random.default_rng(5).random(300_000, dtype=np.float32)
    assert generate(_spec("uniform", 300_000, seed=5)).tobytes() == expected.tobytes()


def test_integers_sum_exactly_in_any_order() -> None:
    values = generate(_spec("integers", 4_194_304, seed=3))
    forward = np.cumsum(values, dtype=np.float32)[-1]
    backward = np.cumsum(values[::-1], dtype=np.float32)[-1]
    assert forward == backward == np.sum(values, dtype=np.float64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_wide_values_lie_in_their_binades_and_use_each(dtype: str) -> None:
    values = values_of(generate(_spec("wide", 8192, dtype, seed=1, binades=9)), dtype).astype(np.float64)
    exponents = np.frexp(np.abs(values))[1] - 1  # 2^e <= |x| < 2^(e + 1)
    assert set(exponents.tolist()) == set(range(-8, 1))
    assert 0.45 < float(np.mean(values < 0)) < 0.55


def test_cancelling_pairs_are_exact_opposites() -> None:
    values = generate(_spec("cancelling", 4096, seed=1)).reshape(-1, 4)
    assert np.array_equal(values[:, 0], -values[:, 2])
    assert values[:, 0].min() >= 2**20
    assert values[:, (1, 3)].min() >= 0
    assert values[:, (1, 3)].max() < 1


def test_index_wraps_in_narrow_integers() -> None:
    assert generate(_spec("index", 300, "uint8"))[256:259].tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", list(DTYPE_BYTES))
def test_special_meets_every_pair(dtype: str) -> None:
    count = len(special_bits(dtype))
    inner = _words(_spec("special", count * count + 9, dtype, seed=4))
    outer = _words(_spec("special", count * count + 9, dtype, seed=4, outer=1))
    pairs = set(zip(inner[: count * count], outer[: count * count], strict=True))
    assert len(pairs) == count * count
    assert inner[count * count :] == outer[count * count :]  # the random rest, of the same seed


def test_special_floats_hold_what_trips_arithmetic() -> None:
    values = np.array(special_bits("float32"), np.uint32).view(np.float32)
    assert np.isnan(values).sum() == 8
    assert np.isinf(values).sum() == 2
    assert (values == 0).sum() == 2
    tiny = np.finfo(np.float32).tiny
    assert ((np.abs(values) < tiny) & (values != 0)).sum() == 8
    assert np.finfo(np.float32).max in values
    assert len(set(special_bits("float32"))) == len(values)


# --- Laws --------------------------------------------------------------------------------------

NEEDED: dict[str, dict[str, int | float]] = {
    "constant": {"value": 3},
    "values": {"v0": 3, "v1": -0.5, "v2": 7},
}
VARIED = [
    (pattern, dtype, NEEDED.get(pattern, {})) for pattern, spec in PATTERNS.items() for dtype in spec.dtypes
]


@pytest.mark.parametrize(("pattern", "dtype", "params"), VARIED)
def test_chunks_never_show(pattern: str, dtype: str, params: dict[str, int | float]) -> None:
    spec = _spec(pattern, 6011, dtype, **params)
    whole = generate(spec)
    assert whole.shape == (6011,)
    assert whole.dtype == storage(dtype)
    for chunk in (8, 1000, 4096):
        pieces = list(chunks(spec, chunk))
        assert [len(p) for p in pieces[:-1]] == [chunk] * (len(pieces) - 1)
        assert b"".join(p.tobytes() for p in pieces) == whole.tobytes()


@pytest.mark.parametrize(("pattern", "dtype", "params"), VARIED)
@pytest.mark.parametrize("n", [0, 1])
def test_none_and_one(pattern: str, dtype: str, params: dict[str, int | float], n: int) -> None:
    array = generate(_spec(pattern, n, dtype, **params))
    assert array.shape == (n,)
    assert array.tobytes() == generate(_spec(pattern, 9, dtype, **params))[:n].tobytes()


@pytest.mark.parametrize("pattern", [p for p, s in PATTERNS.items() if "seed" in s.params])
def test_seeds_matter(pattern: str) -> None:
    # `special` turns random after its cycle of pairs.
    n = 3000
    assert generate(_spec(pattern, n, seed=1)).tobytes() != generate(_spec(pattern, n, seed=2)).tobytes()


def test_values_come_in_a_cycle() -> None:
    array = generate(_spec("values", 5, v0=16777216.0, v1=1.0, v2=-16777216.0))
    assert array.tolist() == [16777216.0, 1.0, -16777216.0, 16777216.0, 1.0]


def test_arrays_are_little_endian() -> None:
    for dtype in DTYPE_BYTES:
        assert generate(_spec("ones", 1, dtype)).dtype.str[0] in "<|"


@given(st.integers(0, 2**32 - 1))
def test_bfloat16_rounds_to_the_nearest_and_even(word: int) -> None:
    value = np.array([word], np.uint32).view(np.float32)
    got = int(to_bfloat16(value)[0])
    if np.isnan(value[0]):
        assert got & 0x7F80 == 0x7F80
        assert got & 0x7F
        assert got >> 15 == word >> 31
        return
    sign, magnitude = word >> 31, word & 0x7FFFFFFF
    low, high = magnitude >> 16, (magnitude >> 16) + 1
    gap_low, gap_high = magnitude - (low << 16), (high << 16) - magnitude
    nearest = low if (gap_low, low & 1) < (gap_high, high & 1) else high
    assert got == (sign << 15 | nearest)


# --- Digests -----------------------------------------------------------------------------------


def test_digest_frames_name_type_count_and_bytes() -> None:
    spec = _spec("normal", 300_000, seed=1)
    parts = [b"reprodb.input/1", b"x", b"float32", b"300000", generate(spec).tobytes()]
    assert digest((spec,)) == sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts))


def test_equal_bytes_are_an_equal_input_however_they_came_about() -> None:
    assert digest((_spec("ones", 5),)) == digest((_spec("constant", 5, value=1.0),))


def test_digest_tells_inputs_apart() -> None:
    base = _spec("ones", 8)
    others = [
        (_spec("ones", 9),),
        (_spec("ones", 8, "float64"),),
        (_spec("constant", 8, value=2),),
        (resolve("y", "ones", 8, "float32", {}),),
        (base, base),
        (),
    ]
    digests = [digest(one) for one in ((base,), *others)]
    assert len(set(digests)) == len(digests)


def test_digest_of_bytes_that_differ_in_type_only() -> None:
    """1.0f and its bits as an integer are the same bytes and another input."""
    assert digest((_spec("ones", 4),)) != digest((_spec("constant", 4, "uint32", value=0x3F800000),))


def test_ramp_digest_is_pinned() -> None:
    assert (
        digest((_spec("ramp1000", 4_194_915),))
        == "027156e9acf3cf2ed05541d1f6d0009e88384673d38211d703775befef730120"
    )


# --- Names and refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (_spec("ramp1000", 1), "ramp1000"),
        (_spec("normal", 1), "normal"),
        (_spec("normal", 1, seed=68), "normal-seed68"),
        (_spec("normal", 1, "float64", seed=68), "normal-seed68-float64"),
        (_spec("constant", 1, value=-0.0), "constant-value-0.0"),
        (_spec("constant", 1, bits=0x7FC00001), "constant-bits7fc00001"),
        (_spec("cancelling", 1, scale=1e30), "cancelling-scale1e30"),
    ],
)
def test_labels(spec: Input, name: str) -> None:
    assert label(spec) == name


def test_labels_of_different_parameters_differ() -> None:
    specs = [_spec("integers", 1, seed=s, low=lo, high=h) for s in (0, 1) for lo in (0, -1) for h in (3, 4)]
    for a, b in pairwise(sorted(label(s) for s in specs)):
        assert a != b


@pytest.mark.parametrize(
    ("pattern", "dtype", "params", "said"),
    [
        ("ramp100", "float32", {}, ["'ramp100'", "did you mean 'ramp1000'?", "normal"]),
        ("normal", "int32", {}, ["'int32'", "float32"]),
        ("normal", "float32", {"sed": 1}, ["'sed'", "did you mean 'seed'?"]),
        ("ramp1000", "float32", {"seed": 1}, ["'seed'", "no parameters"]),
        ("normal", "float32", {"seed": -1}, ["seed = -1", "an integer from 0"]),
        ("normal", "float32", {"seed": 1.0}, ["seed = 1.0", "an integer"]),
        ("normal", "float32", {"seed": True}, ["seed = True"]),
        ("normal", "float32", {"seed": "1"}, ["seed = '1'"]),
        ("cancelling", "float32", {"scale": -1.0}, ["scale = -1.0", "a number from 0"]),
        ("cancelling", "float32", {"scale": float("nan")}, ["scale = nan"]),
        ("wide", "float16", {"binades": 16}, ["binades = 16 do not fit float16", "1 to 15"]),
        ("wide", "float32", {"binades": 0}, ["binades = 0", "an integer from 1"]),
        ("integers", "float32", {"low": 5, "high": 3}, ["low = 5", "low <= high"]),
        ("integers", "int8", {"high": 128}, ["int8", "-128 to 127"]),
        ("values", "float32", {}, ["no values", "v0, v1, v2"]),
        ("values", "float32", {"v0": 1, "v2": 1}, ["v0, v2", "none left out"]),
        ("values", "float32", {"v0": float("nan")}, ["value = nan", "by its bits"]),
        ("constant", "float32", {}, ["exactly one of value and bits"]),
        ("constant", "float32", {"value": 1, "bits": 1}, ["exactly one of value and bits"]),
        ("constant", "float16", {"bits": 0x10000}, ["0x10000", "2 bytes"]),
        ("constant", "uint8", {"value": 256}, ["256", "0 to 255"]),
        ("constant", "float32", {"value": float("nan")}, ["value = nan", "by its bits"]),
        ("constant", "float64", {"value": 1 << 40_000}, ["a number of 40001 bits"]),
        ("constant", "int32", {"value": 0.5}, ["0.5", "integer"]),
        ("constant", "int32", {"value": float("inf")}, ["inf", "integer"]),
    ],
)
def test_refusals_name_value_and_alternatives(
    pattern: str, dtype: str, params: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("x", pattern, 1, dtype, params)
    for words in said:
        assert words in str(caught.value)
