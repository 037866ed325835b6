"""The atlas that an H200 gave: what moves where, checked with other arithmetic and predicted by the model."""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from reprodb.atlas.exact import Exact
from reprodb.atlas.functions import functions
from reprodb.atlas.reading import read
from reprodb.atlas.source import kernel_of
from reprodb.atlas.table import atlas_of
from reprodb.digest import sha256
from reprodb.domain import Artifact, Lane, Result
from reprodb.errors import UnsupportedError
from reprodb.executors.arrays import Arrays
from reprodb.executors.model import ModelExecutor
from reprodb.inputs import digest, generate
from reprodb.store import open_store
from reprodb.store.bundles import import_bundle
from reprodb.store.store import Store

EVIDENCE = Path(__file__).parents[1] / "reports" / "evidence"
VERSIONS = (
    "12.0.140", "12.1.105", "12.2.140", "12.3.107", "12.4.127", "12.5.82", "12.6.85", "12.8.93", "12.9.86",
    "13.0.88", "13.1.115", "13.2.86", "13.3.33", "13.4.92", "13.5.37",
)  # fmt: skip

# Step, named by the version that it leads to → function → (moved of 65,536 inputs, greatest distance in ULP).
MOVES: dict[str, dict[str, tuple[int, int | None]]] = {
    "12.1.105": {
        "acosf": (12260, 2),
        "asinf": (14061, 3),
        "atanf": (16210, 2),
        "cospif": (8816, 2),
        "erff": (6762, 1),
        "powf": (12867, 2),
        "sinpif": (14001, 1),
        "tgammaf": (27143, 9),
    },
    "12.2.140": {"__ddiv_rn": (78, None), "divide-double": (78, None)},
    "12.3.107": {"sincospif-cos": (8816, 2), "sincospif-sin": (14001, 1)},
    "13.0.88": {
        "acoshf": (1445, 2),
        "asin": (7223, None),
        "asinh": (4821, 2),
        "asinhf": (6231, 2),
        "atan2": (79, 1),
        "atan2f": (12664, 2),
        "atanh": (7223, None),
        "cbrtf": (9945, 1),
        "erfcinvf": (5464, 4),
        "erfinvf": (387, 3),
        "normcdfinvf": (5228, 5),
    },
    "13.2.86": {
        "cyl_bessel_i0f": (900, 4),
        "cyl_bessel_i1f": (998, 4),
        "erff": (7915, 1),
        "expm1f": (1699, 2),
    },
}
# Functions whose code moved and whose bits did not, by step, of the default flags.
CODE_ONLY = (50, 346, 106, 30, 26, 37, 17, 23, 56, 2, 1, 0, 11, 1)


@cache
def atlas() -> Any:
    return json.loads(lzma.decompress((EVIDENCE / "atlas-h200.json.xz").read_bytes()))


def moves(flags: str) -> dict[str, dict[str, Any]]:
    """Step → function → its move."""
    found: dict[str, dict[str, Any]] = {}
    for entry in atlas()["functions"]:
        if entry["flags"] == flags:
            for move in entry["moves"]:
                found.setdefault(move["after"], {})[entry["function"]] = move
    return found


def test_every_function_has_an_answer_under_all_fifteen_releases() -> None:
    found = atlas()
    assert (found["lane"], found["device"], found["arch"]) == ("measured", "NVIDIA H200", "sm_90")
    assert (tuple(found["versions"]), set(found["flags"])) == (VERSIONS, {"default", "fast-math"})
    assert len(found["functions"]) == 2 * 348
    for entry in found["functions"]:
        assert [v for span in entry["spans"] for v in span["versions"]] == list(VERSIONS)
        assert not (entry["absences"] or entry["unstable"] or entry["code_unknown"]), entry["function"]


def test_the_functions_that_move_and_the_steps_at_which_they_do() -> None:
    told = {
        step: {name: (move["changed"], move["max_ulp"]) for name, move in here.items()}
        for step, here in moves("default").items()
    }
    assert told == MOVES
    # Fast-math takes another powf, which does not move, and from 12.8 on the hardware's tanh.
    fast = {step: set(here) for step, here in moves("fast-math").items()}
    expected = {step: set(here) for step, here in MOVES.items()} | {"12.8.93": {"tanhf"}}
    assert fast == expected | {"12.1.105": expected["12.1.105"] - {"powf"}}


def test_code_moves_far_oftener_than_bits() -> None:
    entries = [entry for entry in atlas()["functions"] if entry["flags"] == "default"]
    only = [sum(step in entry["code_only"] for entry in entries) for step in VERSIONS[1:]]
    assert tuple(only) == CODE_ONLY


def test_the_inputs_are_the_ones_that_this_version_makes() -> None:
    assert atlas()["inputs"] == {
        "count": 65_536,
        "digest": "789204b882ae8ae30220ccc1ebdfcda80074b66ae4586b3565123cccd63d647f",
    }
    made = {row.name: digest(kernel_of(row).cases[0].inputs) for row in functions()}
    assert {entry["function"]: entry["inputs"] for entry in atlas()["functions"]} == made


def inputs(function: str) -> list[Any]:
    row = next(row for row in functions() if row.name == function)
    return [generate(asked) for asked in kernel_of(row).cases[0].inputs]


def test_what_moves_only_in_nans_is_accounted_for_by_its_inputs() -> None:
    """No number moves in asin and atanh: above 1 they give a NaN, whose sign went away with 13.0."""
    for function in ("asin", "atanh"):
        (argument,) = inputs(function)
        move = moves("default")["13.0.88"][function]
        assert move["changed"] == move["nans"] == np.count_nonzero(argument > 1)
        assert move["example"]["before"]["bits"] == "0xfff8000000000000"
        assert move["example"]["after"]["bits"] == "0x7ff8000000000000"
    # A quotient of two NaNs took the second one's payload, and from 12.2 on takes the first one's.
    quiet = np.uint64(1 << 51)
    one, other = (argument.view(np.uint64) | quiet for argument in inputs("divide-double"))
    both = np.logical_and(*(np.isnan(argument) for argument in inputs("divide-double")))
    assert moves("default")["12.2.140"]["divide-double"]["changed"] == np.count_nonzero(both & (one != other))


# Written otherwise than reprodb's own, at twice its precision.
OTHERWISE: dict[str, Callable[..., Any]] = {
    "acosf": lambda m, x: m.atan2(m.sqrt(1 - x * x), x),
    "acoshf": lambda m, x: m.log(x + m.sqrt(x * x - 1)),
    "asinf": lambda m, x: m.atan(x / m.sqrt(1 - x * x)),
    "asinh": lambda m, x: m.log(x + m.sqrt(x * x + 1)),
    "asinhf": lambda m, x: m.log(x + m.sqrt(x * x + 1)),
    "atan2": lambda m, y, x: m.atan(y / x) + (m.pi * m.sign(y) if x < 0 else 0),
    "atan2f": lambda m, y, x: m.atan(y / x) + (m.pi * m.sign(y) if x < 0 else 0),
    "atanf": lambda m, x: m.asin(x / m.sqrt(1 + x * x)),
    "cbrtf": lambda m, x: m.sign(x) * m.exp(m.log(abs(x)) / 3),
    "cospif": lambda m, x: m.cos(m.pi * x),
    "cyl_bessel_i0f": lambda m, x: m.hyp0f1(1, x * x / 4),
    "cyl_bessel_i1f": lambda m, x: x / 2 * m.hyp0f1(2, x * x / 4),
    "erff": lambda m, x: m.gammainc(0.5, 0, x * x, regularized=True) * m.sign(x),
    "expm1f": lambda m, x: m.exp(x) - 1,
    "powf": lambda m, x, y: m.exp(y * m.log(x)),
    "sinpif": lambda m, x: m.sin(m.pi * x),
    "sincospif-cos": lambda m, x: m.cos(m.pi * x),
    "sincospif-sin": lambda m, x: m.sin(m.pi * x),
    "tanhf": lambda m, x: 1 - 2 / (m.exp(2 * x) + 1),
    "tgammaf": lambda m, x: m.exp(m.loggamma(x)),
}


def number(bits: str) -> float:
    form = ">f" if len(bits) == len("0x00000000") else ">d"
    return float(struct.unpack(form, bytes.fromhex(bits[2:]))[0])


@pytest.mark.parametrize("flags", ["default", "fast-math"])
def test_the_examples_and_their_nearer_sides_hold_in_other_arithmetic(flags: str) -> None:
    m = mpmath.mp.clone()
    m.prec = 400
    checked = 0
    for here in moves(flags).values():
        for function, move in here.items():
            example = move["example"]
            if function not in OTHERWISE:
                continue
            value = OTHERWISE[function](m, *(m.mpf(number(a["bits"])) for a in example["arguments"]))
            assert m.almosteq(value, m.mpf(example["exact"]), 1e-22), function
            off = {side: abs(m.mpf(number(example[side]["bits"])) - value) for side in ("before", "after")}
            assert example["nearer"] == min(off, key=off.__getitem__), function
            words = [int(example[side]["bits"], 16) for side in ("before", "after")]
            assert abs(words[0] - words[1]) == move["max_ulp"], function
            checked += 1
    # 27 moves by default; those of NaNs alone (4) and the inverse error functions (3) are not among these.
    assert checked == 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A database with the bundle of two functions."""
    with open_store(str(tmp_path_factory.mktemp("atlas") / "atlas.db"), write=True) as opened:
        import_bundle(opened, [EVIDENCE / "h200-atlas-few.reprodb"])
        yield opened


def few(store: Store) -> tuple[Result, ...]:
    found = store.run(store.resolve("h200-atlas-few").run_id or 0)
    assert found.lane is Lane.MEASURED
    return store.results(found.id or 0)


def test_another_run_of_two_functions_gave_the_same_outputs(store: Store) -> None:
    by_digest = {
        (entry["function"], f"{entry['flags']}-{version}"): span["sha256"]
        for entry in atlas()["functions"]
        for span in entry["spans"]
        for version in span["versions"]
    }
    found = few(store)
    assert {r.kernel.name for r in found} == {"atan2f", "cospif"}
    assert len(found) == 2 * 2 * len(VERSIONS)
    for result in found:
        assert result.outputs[0].sha256 == by_digest[result.kernel.name, result.profile]


def test_the_table_made_here_from_its_outputs_is_the_same(store: Store) -> None:
    """Counts, distances, examples, errors and nearer sides: made of the recorded bits on this machine."""
    number = store.resolve("h200-atlas-few").run_id or 0
    rows = tuple(row for row in functions() if row.name in ("atan2f", "cospif"))
    made = atlas_of(
        store.run(number), store.results(number), rows, store.pattern, Arrays().get, Exact()
    ).entries
    whole = read(EVIDENCE / "atlas-h200.json.xz").entries
    expected = [entry for entry in whole if entry.function in ("atan2f", "cospif")]
    assert [len(entry.moves) for entry in made] == [1, 1, 1, 1]
    assert {move.nan_to_nan for entry in made for move in entry.moves} == {0}
    assert made == tuple(expected)


def predict(store: Store, found: Iterable[Result]) -> tuple[int, int]:
    """Execute the PTX of each; (as the GPU gave it, refused)."""
    executor = ModelExecutor()
    equal = refused = 0
    for result in found:
        assert result.build is not None
        ptx, sass = store.code_texts(result.build.key)
        artifact = Artifact(result.build, ptx=ptx, sass=sass)
        try:
            samples = executor.execute(artifact, result.kernel, result.case, 1)
        except UnsupportedError as error:
            assert "div.full" in str(error), result.profile
            refused += 1
            continue
        assert sha256(samples.outputs[0].patterns[0]) == result.outputs[0].sha256, result.profile
        equal += 1
    return equal, refused


def test_the_model_predicts_both_sides_of_the_steps(store: Store) -> None:
    """65,536 outputs each: of atan2f before and after 13.0, of cospif before and after 12.1."""
    wanted = {("atan2f", "12.9.86"), ("atan2f", "13.0.88"), ("cospif", "12.0.140"), ("cospif", "12.1.105")}
    found = [r for r in few(store) if (r.kernel.name, r.profile.rpartition("-")[2]) in wanted]
    # Refused: atan2f under fast-math of 12.9, which divides approximately.
    assert predict(store, found) == (7, 1)


@pytest.mark.soak
def test_the_model_predicts_every_release(store: Store) -> None:
    assert predict(store, few(store)) == (51, 9)
