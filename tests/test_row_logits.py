"""The row kernels: their answers followed in NumPy, their near ties, and the one function that they share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reprodb import build
from reprodb.artifacts import ArtifactStore
from reprodb.codegen import normalise_ptx, normalise_sass, opcode_name
from reprodb.domain import Artifact, Kernel
from reprodb.inputs import digest as input_digest
from reprodb.inputs import generate
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.suite import bundled_suite, load_suite, source_files
from reprodb.toolchains import catalog

Floats = NDArray[np.float32]
THREADS, LANES = 256, 32
SHARED = "row_logits.cuh"
ENTRIES = {
    "row_logits_serial": "rowLogitsSerial",
    "row_logits_batched": "rowLogitsBatched",
}


def kernel(name: str) -> Kernel:
    return next(k for k in load_suite(bundled_suite()).kernels if k.name == name)


def arrays(name: str) -> tuple[Floats, Floats]:
    """Weights and requests, a row each."""
    found = {i.name: generate(i).reshape(-1, 1024) for i in kernel(name).cases[0].inputs}
    return found["weights"], found["requests"]


# --- The pinned order, step by step in float32 -------------------------------------------------


def fold(values: Floats) -> Floats:
    """The halving tree over the last axis: element i takes element i + half."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def logits_of(weights: Floats, requests: Floats) -> Floats:
    """y = W x, products and sums rounded apart: shape (requests, words)."""
    rows = []
    for request in requests:
        products = weights * request
        sums = np.zeros((len(weights), THREADS), np.float32)
        for start in range(0, products.shape[1], THREADS):
            piece = products[:, start : start + THREADS]
            sums[:, : piece.shape[1]] += piece
        rows.append(fold(fold(sums.reshape(len(weights), -1, LANES))))
    return np.array(rows)


def in_parts(weights: Floats, requests: Floats, parts: int) -> Floats:
    """The same with each row cut into equal parts, which are added up from the first to the last."""
    width = weights.shape[1] // parts
    total, *rest = (
        logits_of(weights[:, at : at + width], requests[:, at : at + width])
        for at in range(0, weights.shape[1], width)
    )
    for part in rest:
        total = total + part
    return total


def ranked_of(logits: Floats) -> NDArray[np.uint32]:
    """The words from the largest logit down, of equal ones the lower first."""
    return np.argsort(-logits, axis=1, kind="stable").astype(np.uint32)


def digest(array: NDArray[Any]) -> str:
    return "sha256:" + sha256(array.tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "probes"), [("row_logits_serial", 64), ("row_logits_batched", 64), ("row_logits_ranked", 484)]
)
def test_the_pinned_bits_are_those_of_numpy(name: str, probes: int) -> None:
    """Every run holds 484 of 484 ranked lists to this, or 64 of 64: the manifests pin the digests."""
    weights, requests = arrays(name)
    logits = logits_of(weights, requests[:probes])
    assert logits.shape == (probes, 16)
    assert dict(kernel(name).cases[0].expected) == {
        "logits": digest(logits),
        "ranked": digest(ranked_of(logits)),
    }


def test_all_row_kernels_are_served_the_same_pinned_input() -> None:
    names = ("row_logits_serial", "row_logits_batched", "row_logits_ranked", "row_logits_split_k")
    assert {input_digest(kernel(name).cases[0].inputs) for name in names} == {
        "a590f3931e928f411012d8ce97c86783bc3092072758e8368859864210dae80f"
    }


def test_every_probe_has_two_best_words_that_hang_on_rounding() -> None:
    weights, requests = arrays("row_logits_batched")
    best = np.sort(logits_of(weights, requests[:64]).view(np.int32), axis=1)[:, -2:]
    gaps = best[:, 1] - best[:, 0]  # all are positive floats: their bits are in their order
    assert gaps.max() <= 2
    assert np.count_nonzero(gaps) >= 20


@pytest.mark.parametrize(("parts", "flips"), [(4, 15), (2, 14)])
def test_another_split_is_another_best_word(parts: int, flips: int) -> None:
    weights, requests = arrays("row_logits_split_k")
    whole, split = logits_of(weights, requests[:64]), in_parts(weights, requests[:64], parts)
    moved = ranked_of(whole)[:, 0] != ranked_of(split)[:, 0]
    assert np.count_nonzero(moved) == flips


# --- One function, two entries -----------------------------------------------------------------


def made(names: Iterable[str], folder: Path) -> dict[str, dict[str, Artifact]]:
    """Artifacts of both row kernels by profile, as far as their compilers are here."""
    suite, found = load_suite(bundled_suite()), tuple(catalog.find())
    profiles = load_profiles(bundled_profiles())
    requests = [
        build.request(suite, kernel(each), profiles[name], toolchain, "sm_90")
        for name in names
        if (toolchain := catalog.match(profiles[name], found)) is not None
        for each in ENTRIES
    ]
    by_profile: dict[str, dict[str, Artifact]] = {}
    for request, artifact in build.build_each(requests, ArtifactStore(folder), 2):
        by_profile.setdefault(request.profile.name, {})[request.kernel] = artifact
    return by_profile


def ptx_function(artifact: Artifact) -> list[str]:
    """The statements of the device function `rowLogit`, under neutral names."""
    text = re.sub(r"\w*rowLogitE\w*", "rowLogit", normalise_ptx(artifact.ptx or ""))
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(".func") and "rowLogit" in line)
    return lines[start : lines.index("}", start)]


def sass_function(artifact: Artifact, entry: str) -> list[str]:
    """What `rowLogit` computes as the entry calls it: its floating-point operations, exchanges and barriers.

    How registers are chosen and addresses made differs from call to call; the constants of exchanges stay.
    """
    lines = normalise_sass(artifact.sass or "").splitlines()
    start = next(
        at
        for at, line in enumerate(lines)
        if line.startswith(f"${entry}$") and "rowLogit" in line and line.endswith(":")
    )
    rest = lines[start + 1 :]
    end = next((at for at, line in enumerate(rest) if line.startswith((".text ", "$"))), len(rest))
    body = ((opcode_name(line), line) for line in rest[:end] if not line.endswith(":"))
    told = re.compile("F|LDG|LD$|STS|LDS|SHFL|BAR")
    return [
        " ".join([opcode, *re.findall(r"0x\w+", line)][:3]) if opcode.startswith("SHFL") else opcode
        for opcode, line in body
        if told.match(opcode)
    ]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("default", "cuda12"), id="nvrtc"),
        pytest.param(("fast-math", "nvcc13", "nvcc12"), id="others", marks=pytest.mark.soak),
    ],
)
def test_both_entries_call_the_same_code(names: tuple[str, ...], tmp_path: Path) -> None:
    """They cannot drift: under each compiler the row function is one text in PTX, and computes one thing."""
    artifacts = made(names, tmp_path)
    assert names[0] in artifacts
    for profile, both in artifacts.items():
        serial, batched = (both[name] for name in ENTRIES)
        assert ptx_function(serial) == ptx_function(batched), profile
        texts = [sass_function(both[name], entry) for name, entry in ENTRIES.items()]
        assert texts[0] == texts[1], profile
        assert sum(told.startswith("SHFL.DOWN 0x") for told in texts[0]) == 8, profile  # 5 lanes, 3 warps
        assert "FFMA" not in texts[0], profile


def test_the_header_is_the_only_place_with_arithmetic() -> None:
    suite = load_suite(bundled_suite())
    for name in ENTRIES:
        own, *included = source_files(suite, kernel(name))
        assert not re.search(r"shfl|fadd|fmul|fma|[^+]\+=|__shared__", own.text), name
        assert [file.path for file in included] == ["_lib/rank.cuh", f"_lib/{SHARED}"]
    definitions = [
        path.name
        for path in bundled_suite().rglob("*.cu*")
        if re.search(r"float rowLogit\(", path.read_text(encoding="utf-8"))
    ]
    assert definitions == [SHARED]
