"""Laws: what is recorded reads back equal, bundles carry it unchanged, and merging has no order."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprodb import codec
from reprodb.digest import run_hash, sha256
from reprodb.domain import (
    DTYPE_BYTES,
    Accuracy,
    Artifact,
    CodeOrigin,
    Determinism,
    Field,
    Judgement,
    Output,
    Pattern,
    Result,
    Role,
    Run,
    Status,
)
from reprodb.store import open_store, sequences
from reprodb.store.bundles import Imported, export, import_bundle
from reprodb.store.store import Store
from tests.builders import STARTED, make_build, make_kernel, make_result
from tests.store.conftest import emptied
from tests.store.things import LATER, new_run, text, without_data

QUICK = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Texts of errors and notes are whatever a compiler prints; names are what a manifest may hold.
texts = st.text(st.characters(), max_size=30)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
floats = st.one_of(st.none(), st.floats(width=64), st.sampled_from([math.nan, -0.0, math.inf, 5e-324]))


@st.composite
def outputs(draw: st.DrawFn, name: str, repetitions: int) -> Output:
    """An output of any type, its patterns in the order in which a drawn sequence shows them first."""
    struct = draw(st.booleans())
    members = (Field("value", "float64", 0), Field("index", "int16", 8)) if struct else ()
    dtype = "struct" if struct else draw(st.sampled_from(sorted(DTYPE_BYTES)))
    size = sum(DTYPE_BYTES[f.dtype] for f in members) if struct else DTYPE_BYTES[dtype]
    shape = draw(st.sampled_from([(1,), (3,), (2, 2), (0,)]))
    pool = draw(st.lists(st.binary(min_size=size * math.prod(shape), max_size=size * math.prod(shape)),
                         min_size=1, max_size=5, unique=True))  # fmt: skip
    data = draw(st.lists(st.sampled_from(pool), min_size=repetitions, max_size=repetitions))
    distinct = list(dict.fromkeys(data))
    sequence = tuple(distinct.index(one) for one in data)
    scalar = math.prod(shape) == 1 and not struct
    return Output(
        name=name,
        role=draw(st.sampled_from([Role.RESULT, Role.WITNESS])),
        dtype=dtype,
        shape=shape,
        determinism=draw(st.sampled_from(Determinism)),
        patterns=tuple(Pattern(sha256(d), data.count(d), data.index(d), d) for d in distinct),
        sequence=sequence,
        run_hash=run_hash(distinct, sequence),
        fields=members,
        first_bits="0x" + data[0][::-1].hex() if scalar else None,
    )


@st.composite
def results(draw: st.DrawFn, profile: str) -> Result:
    """Results of every status, with up to three outputs, and floats that are no numbers."""
    repetitions = draw(st.sampled_from([1, 2, 7, 40]))
    status = draw(st.sampled_from(Status))
    named = draw(st.lists(names, max_size=3, unique=True)) if status is not Status.OK else ["a", "b"]
    kernel = make_kernel(draw(st.sampled_from(["k1", "k2"])))
    case = replace(kernel.cases[0], rel_tol=draw(st.sampled_from([None, 1e-5, 1, 1.0])))
    return Result(
        kernel=replace(kernel, cases=(case,)),
        case=case,
        profile=profile,
        arch="sm_90",
        lane=new_run().lane,
        status=status,
        repetitions=repetitions,
        outputs=tuple(draw(outputs(name, repetitions)) for name in named),
        accuracy=Judgement(draw(st.sampled_from(Accuracy)), draw(floats), draw(floats), draw(texts)),
        build=draw(st.one_of(st.none(), st.builds(lambda log: replace(make_build(), log=log), texts))),
        origin=draw(st.one_of(st.none(), st.sampled_from(CodeOrigin))),
        input_digest=draw(st.sampled_from(["", "11" * 32])),
        condition=draw(st.sampled_from(["plain", "clocks"])),
        error=draw(texts),
        seconds=draw(st.floats(0, 1e6)),
        notes=tuple(draw(st.lists(texts, max_size=2))),
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[Result, ...]:
    """The results of a run: one a profile."""
    return tuple(draw(results(f"p{number}")) for number in range(draw(st.integers(1, 4))))


@dataclass
class Numbers:
    """Fresh uids, so that examples share a database."""

    values: Iterator[int]

    def run(self) -> Run:
        return new_run(next(self.values))


@pytest.fixture(scope="module")
def numbers() -> Numbers:
    return Numbers(itertools.count(1))


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A database that the examples share."""
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("laws") / "a.db")
    else:
        url = emptied(request.getfixturevalue("postgresql_url"))
    with open_store(url, write=True) as opened:
        yield opened
        assert opened.check() == ()


def pairs(some: tuple[Result, ...], ptx: str | None) -> list[tuple[Result, Artifact | None]]:
    return [(r, None if r.build is None else Artifact(r.build, ptx=ptx, sass=None)) for r in some]


@QUICK
@given(some=runs(), ptx=st.one_of(st.none(), texts))
def test_what_is_recorded_reads_back_equal(
    store: Store, numbers: Numbers, some: tuple[Result, ...], ptx: str | None
) -> None:
    run_id = store.begin(numbers.run())
    store.record_many(run_id, pairs(some, ptx))
    found = store.results(run_id)
    assert [text(result) for result in found] == [text(result) for result in some]
    stored = {p.sha256: p.data for result in some for output in result.outputs for p in output.patterns}
    assert store.patterns(stored) == stored


@settings(QUICK, max_examples=8)
@given(nights=st.lists(runs(), min_size=1, max_size=4), order=st.randoms(use_true_random=False))
def test_bundles_carry_everything_and_merge_in_any_order(
    store: Store,
    numbers: Numbers,
    tmp_path_factory: pytest.TempPathFactory,
    nights: list[tuple[Result, ...]],
    order: random.Random,
) -> None:
    """Runs recorded here, one bundle each, merged in a drawn order into a new database, in two imports."""
    folder = tmp_path_factory.mktemp("bundles")
    ids, bundles = [], []
    for night in nights:
        run_id = store.begin(numbers.run())
        made = store.record_many(run_id, pairs(night, "// ptx"))
        store.accept(made[::2])
        if len(night) % 2:
            store.finish(run_id, 0, LATER + timedelta(days=1))
        ids.append(run_id)
        bundles.append(folder / f"{run_id}.reprodb")
        export(store, [run_id], bundles[-1])
    export(store, ids, folder / "all.reprodb")
    expected = (folder / "all.reprodb").read_bytes()
    order.shuffle(bundles)
    with open_store(str(folder / "merged.db"), write=True) as merged:
        import_bundle(merged, bundles[:1])
        import_bundle(merged, [*bundles, folder / "all.reprodb"])
        again = import_bundle(merged, bundles)
        assert again == Imported(0, len(nights), 0, sum(map(len, nights)))
        there = [run.id for run in merged.runs() if run.id is not None]
        export(merged, there, folder / "merged.reprodb")
        assert (folder / "merged.reprodb").read_bytes() == expected
        assert merged.check() == ()


@QUICK
@given(st.lists(st.integers(0, 400), min_size=1, max_size=500))
def test_sequences_pack_and_unpack(raw: list[int]) -> None:
    order = list(dict.fromkeys(raw))
    sequence = tuple(order.index(index) for index in raw)
    packed = sequences.pack(sequence, len(order))
    assert sequences.unpack(packed, len(sequence)) == sequence
    assert (packed is None) == (len(order) == 1)
    if packed is not None:
        assert len(packed) <= 1 + len(sequence) * (1 if len(order) <= 256 else 2)
    found = sequences.first_and_count(sequence, len(order))
    assert found == tuple((sequence.index(i), sequence.count(i)) for i in range(len(order)))


@QUICK
@given(stored=st.binary(max_size=40), repetitions=st.integers(-1, 50))
def test_a_damaged_sequence_is_refused_or_whole(stored: bytes, repetitions: int) -> None:
    try:
        found = sequences.unpack(stored, repetitions)
    except ValueError:
        return
    assert len(found) == repetitions


def test_wide_sequences(tmp_path: Path) -> None:
    """More patterns than two bytes can number; a sequence that repeats is small."""
    wide = tuple(range(70_000))
    packed = sequences.pack(wide, len(wide))
    assert packed is not None
    assert sequences.unpack(packed, len(wide)) == wide
    regular = sequences.pack((0, 1) * 50_000, 2)
    assert regular is not None
    assert len(regular) < 500


def test_no_field_is_forgotten() -> None:
    """A field that a noun gains must be stored: these are the ones that the tables and bundles know."""
    known = {
        Result: "kernel case profile arch lane status repetitions outputs accuracy build origin input_digest "
        "condition error seconds notes id fingerprint batches",
        Output: "name role dtype shape determinism patterns sequence run_hash fields first_bits",
        Pattern: "sha256 count first data",
        Judgement: "verdict max_rel_err reference note",
        Run: "uid suite lane environment started_at label finished_at skipped policy kind exit_code id seed "
        "canaries left_out not_stressed request",
    }
    for noun, expected in known.items():
        assert [field.name for field in fields(noun)] == expected.split(), noun
    assert codec.dumps(without_data(make_result())) == text(make_result())
    assert STARTED.tzinfo is not None
