"""Outputs with more than one pattern: the churn of arrival-order kernels, and determinism lost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from reprodb import bits
from reprodb.deltas import SAME_MULTISET, Fetch, data_of
from reprodb.domain import Lane, Output, Pattern, Result, Run
from reprodb.findings import Churn, Loss, Support

# Up to this many patterns a side, and bytes each, are read to see whether only the order of elements differs.
ORDER_PATTERNS = 32
ORDER_BYTES = 1 << 20
_BYTES = frozenset({"uint8", "int8"})
BUNDLED_SUITE = "reprodb"
SUITE_FOLDER = "SUITE_FOLDER"  # where a suite lies is not recorded; who knows it sets it in: `review.located`


# --- Churn -------------------------------------------------------------------------------------


def _by_count(output: Output) -> list[Pattern]:
    return sorted(output.patterns, key=lambda p: (-p.count, p.first))


def _scalar_floats(output: Output) -> bool:
    return output.elements == 1 and not output.fields and bits.is_float(output.dtype)


def _places(outputs: Iterable[Output], fetch: Fetch) -> dict[str, int]:
    """Pattern → its place on the line of floats; empty unless every pattern is one number that is not NaN."""
    places: dict[str, int] = {}
    for output in outputs:
        for pattern in output.patterns:
            if pattern.sha256 in places:
                continue
            data = data_of(pattern, fetch)
            if data is None:
                return {}
            words = bits.to_bits(data, output.dtype)
            if bits.nan_mask(words, output.dtype)[0]:
                return {}
            places[pattern.sha256] = int(bits.ordinals(words, output.dtype)[0])
    return places


def _label(output: Output, pattern: Pattern, fetch: Fetch) -> str:
    """A pattern as people read it: hex bits of one element, else the start of its SHA-256."""
    if output.elements == 1 and not output.fields and (data := data_of(pattern, fetch)) is not None:
        return bits.hex_bits(data)
    return pattern.sha256[:16]


def _support(output: Output, places: dict[str, int], lowest: int, fetch: Fetch) -> Support:
    return Support(
        output.distinct,
        sum(p.count for p in output.patterns),
        tuple(
            (
                _label(output, p, fetch),
                p.count,
                places[p.sha256] - lowest if p.sha256 in places else None,
            )
            for p in _by_count(output)
        ),
    )


def _order_only(before: Output, after: Output, fetch: Fetch) -> str | None:
    """The note that every pattern on both sides holds the same elements in another order, where it is so."""
    if after.elements < 2 or before.shape != after.shape or before.dtype != after.dtype:
        return None
    patterns = {p.sha256: p for side in (before, after) for p in _by_count(side)[:ORDER_PATTERNS]}
    size = bits.element_bytes(after.dtype, after.fields)
    if len(patterns) < 2 or size * after.elements > ORDER_BYTES:
        return None
    first, *rest = (data_of(p, fetch) for p in patterns.values())
    if first is None or not all(d is not None and bits.same_multiset(first, d, size) for d in rest):
        return None
    known = {p.sha256 for side in (before, after) for p in side.patterns}
    if len(patterns) == len(known):
        return SAME_MULTISET
    return f"{SAME_MULTISET} ({len(patterns)} of {len(known)} patterns looked at)"


def churn_of(before: Output, after: Output, fetch: Fetch) -> Churn:
    """Two supports compared as sets, with where the baseline's most frequent pattern went."""
    old = {p.sha256: p for p in before.patterns}
    new = {p.sha256: p for p in after.patterns}
    common = old.keys() & new.keys()
    relation = "same" if old.keys() == new.keys() else "overlapping" if common else "new"
    scalar = _scalar_floats(before) and _scalar_floats(after) and before.dtype == after.dtype
    places = _places((before, after), fetch) if scalar else {}
    lowest = min(places.values(), default=0)
    top = _by_count(before)[0]
    then = f"{top.count} of {sum(p.count for p in before.patterns)}"
    now = new.get(top.sha256)
    there = f"{now.count} of {sum(p.count for p in after.patterns)}" if now else "not seen"
    return Churn(
        relation=relation,
        baseline=_support(before, places, lowest, fetch),
        candidate=_support(after, places, lowest, fetch),
        common=len(common),
        spread_ulp=max(places.values()) - lowest if places else None,
        mode=f"{_label(before, top, fetch)}: {then} → {there}",
        note=_order_only(before, after, fetch),
    )


# --- Determinism lost --------------------------------------------------------------------------


def where_odd(sequence: Sequence[int]) -> tuple[int, str]:
    """How many repetitions differ from the most frequent pattern, and where they lie.

    `repetition 0 only`, `first third`, `middle third`, `last third` or `scattered`.
    """
    counts = Counter(sequence)
    # The earliest of equally frequent patterns is the usual one.
    usual = max(counts, key=lambda index: (counts[index], -index))
    odd = [at for at, index in enumerate(sequence) if index != usual]
    if len(odd) == 1:
        return 1, f"repetition {odd[0]} only"
    n = len(sequence)
    for name, lo, hi in (("first", 0, n / 3), ("middle", n / 3, 2 * n / 3), ("last", 2 * n / 3, n)):
        if n >= 6 and all(lo <= at < hi for at in odd):
            return len(odd), f"{name} third"
    return len(odd), "scattered"


def _advice(run: Run | None, result: Result, odd_at_start: bool) -> tuple[str, ...]:
    """Commands that look for the cause; a race first, unless only the first repetition is odd.

    None for what runs on no GPU: the tools watch CUDA kernels alone.
    """
    if result.lane is Lane.HOST:
        return ()
    again = ["reprodb", "run"]
    if run is not None and run.suite != BUNDLED_SUITE:
        again += ["--suite", SUITE_FOLDER]
    again += [
        "--kernel",
        result.kernel.name,
        "--profile",
        result.profile,
        "--device",
        "gpu",
        "--repetitions",
        "3",
    ]
    tools = ("initcheck", "racecheck") if odd_at_start else ("racecheck", "initcheck")
    # Kernels run in worker processes: without --target-processes all the tool would watch the parent alone.
    return tuple(
        shlex.join(["compute-sanitizer", "--tool", tool, "--target-processes", "all", *again])
        for tool in (*tools, "synccheck")
    )


def _varying(output: Output, fetch: Fetch) -> str:
    """Which elements vary from pattern to pattern; of raw bytes also at which offsets, as padding would."""
    import numpy as np

    size = bits.element_bytes(output.dtype, output.fields)
    if output.elements < 2 or size * output.elements > ORDER_BYTES:
        return ""
    found = [data_of(p, fetch) for p in _by_count(output)[:ORDER_PATTERNS]]
    rows = [np.frombuffer(d, np.uint8).reshape(-1, size) for d in found if d is not None]
    if len(rows) < 2:
        return ""
    moved = np.flatnonzero(np.logical_or.reduce([(row != rows[0]).any(axis=1) for row in rows[1:]]))
    told = f"{len(moved):,} of {output.elements:,}, the first at {moved[0]:,}"
    offsets = _offsets(moved.tolist(), output.elements) if output.dtype in _BYTES else None
    if offsets is None:
        return told
    step, places = offsets
    return f"{told}: bytes {', '.join(map(str, places))} of every {step}, as padding does; declare the fields"


def _offsets(moved: list[int], elements: int) -> tuple[int, tuple[int, ...]] | None:
    """The step and the offsets in it, where just the elements at these offsets vary in every step."""
    for step in (2, 4, 8, 12, 16, 24, 32, 48, 64):
        places = sorted({at % step for at in moved})
        if elements % step == 0 and len(places) < step and len(moved) == len(places) * (elements // step):
            return step, tuple(places)
    return None


def loss_of(run: Run | None, result: Result, fetch: Fetch) -> Loss | None:
    """What a guaranteed output with several patterns lost; the worst one, results before witnesses.

    None where every guaranteed output has one pattern.
    """
    broken = [o for o in result.outputs if o.determinism.guaranteed and o.distinct > 1]
    if not broken:
        return None
    results = [o for o in broken if o in result.results]
    output = max(results or broken, key=lambda o: where_odd(o.sequence)[0])
    odd, where = where_odd(output.sequence)
    return Loss(
        output=output.name,
        distinct=output.distinct,
        odd=odd,
        of=len(output.sequence),
        where=where,
        advice=_advice(run, result, where == "repetition 0 only"),
        elements=_varying(output, fetch),
    )
