"""References of scopes, blessings and their history, run references as people write them, histories."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reprodb.domain import Lane, Result, Run, Scope, scope_of
from reprodb.errors import StoreError, UsageError
from reprodb.store import RunRef, open_store
from reprodb.store.refs import check_label, parse
from reprodb.store.store import Store
from tests.builders import H200, STARTED, T4, make_environment, make_result
from tests.store.things import LATER, new_run


def night(store: Store, number: int, *results: Result, accept: bool = True, **changes: object) -> int:
    """A finished run whose results are accepted."""
    run_id = store.begin(new_run(number, **changes))
    ids = store.record_many(run_id, [(result, None) for result in results])
    if accept:
        store.accept(ids)
    store.finish(run_id, 0, LATER)
    return run_id


def scope(store: Store, run_id: int) -> Scope:
    return scope_of(store.run(run_id), store.results(run_id)[0])


def test_the_reference_is_the_last_accepted_result_of_the_scope(database: str) -> None:
    """A changed result is not accepted, so the nightly goes on comparing with what was before it."""
    with open_store(database, write=True) as store:
        first = night(store, 1, make_result())
        second = night(store, 2, make_result())
        changed = night(store, 3, make_result(["0x4b25426e"] * 100), accept=False)
        wanted = scope(store, changed)
        reference = store.references([wanted])[wanted]
        assert (reference.run_id, reference.kind) == (second, "accepted")
        assert reference.result == store.results(second)[0]
        assert store.references([wanted], before=second)[wanted].run_id == first
        assert store.references([wanted], before=first) == {}


def test_scopes_keep_gpus_lanes_and_conditions_apart(database: str) -> None:
    with open_store(database, write=True) as store:
        modelled = night(store, 1, make_result())
        h200, t4 = (
            night(
                store, number, make_result(lane=Lane.MEASURED),
                lane=Lane.MEASURED, environment=make_environment(device),
            )
            for number, device in ((2, H200), (3, T4))
        )  # fmt: skip
        stressed = night(store, 4, make_result(condition="clocks"))
        scopes = {scope(store, run_id): run_id for run_id in (modelled, h200, t4, stressed)}
        found = store.references(scopes)
        assert {s: reference.run_id for s, reference in found.items()} == scopes
        unknown = replace(next(iter(scopes)), profile="absent")
        assert store.references([unknown]) == {}


def test_many_references_at_once(database: str) -> None:
    with open_store(database, write=True) as store:
        results = [make_result(profile=f"p{number}") for number in range(1500)]
        run_id = night(store, 1, *results)
        run = store.run(run_id)
        found = store.references(scope_of(run, result) for result in results)
        assert {reference.result.profile for reference in found.values()} == {r.profile for r in results}


def test_a_blessing_stands_above_what_was_accepted(database: str) -> None:
    with open_store(database, write=True) as store:
        old, new = (
            night(store, 1, make_result()),
            night(store, 2, make_result(["0x4b25426e"] * 100), accept=False),
        )
        wanted = scope(store, old)
        (result,) = store.results(new)
        assert result.id is not None
        day = STARTED + timedelta(days=10)
        (blessing,) = store.bless(
            [result.id],
            who="ada",
            why="new toolkit",
            when=day,
            expires=day + timedelta(days=90),
            changed="build",
        )
        assert (blessing.scope, blessing.run_id, blessing.result_id) == (wanted, new, result.id)
        assert (blessing.who, blessing.why, blessing.changed, blessing.when) == (
            "ada",
            "new toolkit",
            "build",
            day,
        )

        def reference(days: int, *, blessed: bool = True) -> tuple[int, str]:
            found = store.references([wanted], now=day + timedelta(days=days), blessed=blessed)[wanted]
            return found.run_id, found.kind

        assert reference(-1) == (old, "accepted")  # not yet blessed
        assert reference(0) == (new, "blessed")
        assert reference(0, blessed=False) == (old, "accepted")
        assert reference(90) == (old, "accepted")  # expired
        (before,) = store.results(old)
        assert before.id is not None
        (second,) = store.bless([before.id], who="bob", why="back again", when=day + timedelta(days=1))
        assert reference(2) == (old, "blessed")
        store.withdraw(second.id, who="ada", why="it was right", when=day + timedelta(days=3))
        assert reference(2) == (old, "blessed")  # history as it was then
        assert reference(4) == (new, "blessed")
        history = store.blessings(wanted)
        assert [b.who for b in history] == ["ada", "bob"]
        assert (history[1].withdrawn_by, history[1].withdrawn_why) == ("ada", "it was right")
        assert store.blessings(active_at=day + timedelta(days=4)) == (history[0],)
        with pytest.raises(UsageError, match="was withdrawn"):
            store.withdraw(second.id, who="ada", why="again", when=day)
        assert store.blessings(replace(wanted, profile="absent")) == ()
        assert store.check() == ()


def test_what_cannot_be_blessed_or_accepted(database: str) -> None:
    with open_store(database, write=True) as store:
        run_id = night(store, 1, make_result())
        (result,) = store.results(run_id)
        assert result.id is not None
        with pytest.raises(UsageError, match="who and why"):
            store.bless([result.id], who="ada", why=" ", when=LATER)
        with pytest.raises(StoreError, match="no result 999"):
            store.bless([result.id, 999], who="ada", why="x", when=LATER)
        assert store.blessings() == ()
        with pytest.raises(StoreError, match="no result 999"):
            store.accept([result.id, 999])
        with pytest.raises(UsageError, match="no blessing 5"):
            store.withdraw(5, who="ada", why="x", when=LATER)


# --- Run references ----------------------------------------------------------------------------


def test_run_references(database: str) -> None:
    with open_store(database, write=True) as store:
        results = (make_result(profile="cuda12"), make_result(profile="default", kernel="sum_tree"))
        first = night(store, 1, *results, uid="aaaa-1111", label="before")
        second = night(store, 2, *results, uid="aaaa-2222")
        third = night(store, 3, *results, uid="bbbb-3333", label="before", suite="other")
        running = store.begin(new_run(4, uid="cccc-4444", label="running"))
        expected = {
            str(first): first,
            "latest": third,
            "latest~0": third,
            "latest~1": second,
            "latest~2": first,
            "before": third,
            "aaaa-1111": first,
            "aaaa-2": second,
            "bbbb": third,
            "running": running,
            str(running): running,
        }
        assert {ref: store.resolve(ref).run_id for ref in expected} == expected
        assert store.resolve("latest", suite="reprodb").run_id == second
        assert store.resolve("latest:cuda12") == RunRef(third, "cuda12", None)
        assert store.resolve("1:default:sum_tree") == RunRef(first, "default", "sum_tree")
        assert store.resolve("baseline:default") == RunRef(None, "default", None)


NOTHING = {
    "latest~9": "has 1 complete run\n",
    "77": "no run '77'",
    "befor": "did you mean 'before'",
    "aaa": "no run 'aaa'",
    "": "not a run reference",
    "1:": "not a run reference",
    "1:a:b:c": "not a run reference",
    "latest:cuda": "did you mean 'cuda12'",
    "latest:cuda12:sum_sqares_tree": "did you mean 'sum_squares_tree'",
    "latest; DROP TABLE runs": "no run",
    "%": "no run",
    "9" * 40: "no run",
}


def test_a_reference_to_nothing_says_what_there_is(database: str) -> None:
    with open_store(database, write=True) as store:
        night(store, 1, make_result(profile="cuda12"), uid="aaaa-1111", label="before")
        for ref, words in NOTHING.items():
            with pytest.raises(UsageError) as caught:
                store.resolve(ref)
            assert words in str(caught.value), ref


def test_an_ambiguous_uid_names_the_runs(database: str) -> None:
    with open_store(database, write=True) as store:
        for number in (1, 2):
            night(store, number, make_result(), uid=f"aaaa-{number}")
        with pytest.raises(UsageError, match="several runs: 1, 2"):
            store.resolve("aaaa")


@pytest.mark.parametrize(
    "label", ["", " ", "a:b", "latest", "latest~1", "baseline", "12", "a\n", " a", "x" * 201]
)
def test_a_label_is_never_mistaken_for_another_reference(tmp_path: Path, label: str) -> None:
    with pytest.raises(UsageError, match="label"):
        check_label(label)
    with open_store(str(tmp_path / "a.db"), write=True) as store, pytest.raises(UsageError, match="label"):
        store.begin(new_run(label=label))


def test_parsing_is_pure() -> None:
    assert parse("latest~3:a:b").back == 3
    assert parse("latest~x").back is None
    assert parse("12").number == 12
    assert parse("٣").number is None  # a digit, but not of ours


# --- Lists -------------------------------------------------------------------------------------


def test_runs_and_histories_come_newest_first(database: str) -> None:
    with open_store(database, write=True) as store:
        for number in (1, 2, 3):
            night(store, number, make_result(), make_result(profile="b"), make_result(kernel="other"))
        night(store, 4, make_result(), suite="elsewhere")
        assert [run.id for run in store.runs()] == [4, 3, 2, 1]
        assert [run.id for run in store.runs(limit=2)] == [4, 3]
        assert [run.id for run in store.runs(suite="reprodb")] == [3, 2, 1]

        def rows(**narrow: str) -> list[tuple[int | None, str]]:
            return [(run.id, result.profile) for run, result in store.history("sum_squares_tree", **narrow)]  # type: ignore[arg-type]

        assert rows(suite="reprodb") == [
            (3, "default"), (3, "b"), (2, "default"), (2, "b"), (1, "default"), (1, "b"),
        ]  # fmt: skip
        assert rows(profile="b") == [(3, "b"), (2, "b"), (1, "b")]
        assert rows(case="absent") == []
        assert len(store.history("sum_squares_tree", limit=3)) == 3
        assert [r.kernel.name for r in store.results(1, kernel="other")] == ["other"]
        assert [r.profile for r in store.results(1, profile="b")] == ["b"]
        assert store.results(1, profile="absent") == ()
        with pytest.raises(UsageError, match="no run 9"):
            store.results(9)


def test_a_clock_that_jumps_back_does_not_reorder_runs(database: str) -> None:
    """The second run was recorded after the first, whatever its clock said; its time is kept as it was."""

    def begin(run: Run) -> int:
        run_id = store.begin(run)
        store.finish(run_id, 0, LATER)
        return run_id

    with open_store(database, write=True) as store:
        first = begin(new_run(1, started_at=STARTED + timedelta(days=365)))
        second = begin(new_run(2, started_at=STARTED))
        third = begin(new_run(3, started_at=STARTED))
        assert [run.id for run in store.runs()] == [third, second, first]
        assert store.resolve("latest").run_id == third
        assert store.run(second).started_at == STARTED
