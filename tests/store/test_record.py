"""What is recorded reads back as it was; what contradicts itself is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection

from reprodb.domain import (
    Artifact,
    CanaryOutcome,
    Case,
    Determinism,
    Input,
    Lane,
    Output,
    Pattern,
    SkippedProfile,
    Status,
)
from reprodb.errors import StoreError, UsageError
from reprodb.store import open_store
from tests.builders import (
    H200,
    make_build,
    make_environment,
    make_kernel,
    make_output,
    make_result,
)
from tests.store.conftest import emptied
from tests.store.things import LATER, new_run, rich_result, text, without_data


def test_a_result_reads_back_as_it_was(database: str) -> None:
    rich = rich_result()
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        number = store.record(run_id, rich)
        (found,) = store.results(run_id)
        assert text(found) == text(rich)
        assert found.id == number
        for output in rich.outputs:
            for pattern in output.patterns:
                assert store.pattern(pattern.sha256) == pattern.data
        assert store.check() == ()


def test_repetitions_read_back_in_order(database: str) -> None:
    """6 patterns of 100 in the order in which they arrived, from indexes and distinct patterns."""
    words = [f"0x4b25426{digit}" for digit in "edcbaf"]
    order = [words[(i * i) % 6] for i in range(100)]
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        store.record(run_id, make_result(order, determinism=Determinism.NOT_GUARANTEED))
        (output,) = store.results(run_id)[0].outputs
        data = store.patterns(p.sha256 for p in output.patterns)
    bits = [data[output.patterns[index].sha256][::-1].hex() for index in output.sequence]
    assert ["0x" + b for b in bits] == order


def test_a_run_reads_back_as_it_was(database: str) -> None:
    run = new_run(
        lane=Lane.MEASURED,
        environment=make_environment(H200, variables=(("NVIDIA_TF32_OVERRIDE", "0"),)),
        label="before-upgrade",
        skipped=(SkippedProfile("nvcc12", "no nvcc 12", "reprodb toolchains install nvcc 12.4"),),
        policy='[gate]\nlatent = "report"\n',
        kind="nightly",
        seed=2**63 + 7,
        started_at=datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC),
    )
    with open_store(database, write=True) as store:
        run_id = store.begin(run)
        assert store.run(run_id) == replace(run, id=run_id)
        assert not store.run(run_id).complete
        canaries = (CanaryOutcome("integer_sum", False, "the integer sum moved"),)
        store.finish(run_id, 3, LATER, canaries=canaries)
        done = replace(run, id=run_id, finished_at=LATER, exit_code=3, canaries=canaries)
        assert store.run(run_id) == done


def test_failed_results_are_kept_with_their_error(database: str) -> None:
    failed = make_result(status=Status.BUILD_FAILED, error="a.cu(3): error: expected a ';'")
    absent = replace(make_result(status=Status.BUILD_FAILED, profile="nvcc12"), build=None, origin=None)
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        store.record_many(run_id, [(failed, None), (absent, None)])
        assert [text(r) for r in store.results(run_id)] == [text(failed), text(absent)]


def test_code_texts_come_from_the_database_alone(database: str) -> None:
    build = replace(make_build(), key="ab" * 32)
    artifact = Artifact(build, ptx=".version 9.0\n", cubin=b"\x7fELF", sass="FADD R0, R1, R2 ;\n")
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        store.record(run_id, make_result(build=build, profile="a"))
        assert store.code_texts(build.key) == (None, None)
        store.record(run_id, make_result(build=build, profile="b"), artifact)
        assert store.code_texts(build.key) == (artifact.ptx, artifact.sass)
        assert store.code_texts("00" * 32) == (None, None)
        assert [r.build for r in store.results(run_id)] == [build, build]


def test_a_pattern_is_stored_once_and_may_then_come_without_data(database: str) -> None:
    with open_store(database, write=True) as store:
        first, second = store.begin(new_run(1)), store.begin(new_run(2))
        store.record(first, make_result())
        store.record(second, without_data(make_result()))
        assert store.results(first)[0].outputs == store.results(second)[0].outputs
        unknown = make_output(["0x00000001"] * 100, keep=False)
        with pytest.raises(StoreError, match="no data here"):
            store.record(second, make_result(outputs=(unknown,), profile="other"))
        assert len(store.results(second)) == 1


def _output(**changes: object) -> Output:
    return replace(make_output(["0x00000001", "0x00000002"] * 50), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (_output(sequence=(0, 1)), "2 indexes for 100 repetitions"),
        (_output(sequence=(1, 0) * 50), "order of first appearance"),
        (_output(sequence=(0,) * 100), "order of first appearance"),
        (_output(patterns=(), sequence=(0,) * 100), "one at least"),
        (_output(patterns=(Pattern("0" * 64, 99, 0, b""),), sequence=(0,) * 100), "is first at 0, 100 times"),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(database: str, output: Output, words: str) -> None:
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        with pytest.raises(StoreError, match=words):
            store.record(run_id, replace(make_result(), outputs=(output,)))
        assert store.results(run_id) == ()


def test_data_that_is_not_its_digests_is_refused(database: str) -> None:
    good = make_output(["0x00000001"] * 100)
    bad = replace(good, patterns=(replace(good.patterns[0], data=b"\2\0\0\0"),))
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        with pytest.raises(StoreError, match="other data than its SHA-256"):
            store.record(run_id, make_result(outputs=(bad,)))


def test_a_batch_is_recorded_whole_or_not_at_all(database: str) -> None:
    good, again = make_result(profile="a"), make_result(profile="b")
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        with pytest.raises(StoreError, match="already"):
            store.record_many(run_id, [(good, None), (again, None), (again, None)])
        assert store.results(run_id) == ()
        assert store.record_many(run_id, []) == ()
        store.record_many(run_id, [(good, None), (again, None)])
        with pytest.raises(StoreError, match="already"):
            store.record(run_id, good)
        assert [r.profile for r in store.results(run_id)] == ["a", "b"]
        assert store.check() == ()


def test_lanes_are_never_mixed_in_a_run(database: str) -> None:
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        with pytest.raises(StoreError, match="never mixed"):
            store.record(run_id, make_result(lane=Lane.MEASURED))


def test_a_run_that_another_process_finished_takes_no_more(database: str) -> None:
    with open_store(database, write=True) as store, open_store(database, write=True) as other:
        run_id = store.begin(new_run())
        store.record(run_id, make_result(profile="a"))
        other.finish(run_id, 0, LATER)
        with pytest.raises(StoreError, match="is finished: nothing is added"):
            store.record(run_id, make_result(profile="b"))
        assert [r.profile for r in store.results(run_id)] == ["a"]


def test_a_finished_run_stays_as_it_is(database: str) -> None:
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        store.finish(run_id, None, LATER)
        with pytest.raises(StoreError, match="finished"):
            store.record(run_id, make_result())
        with pytest.raises(StoreError, match="finished"):
            store.record_many(run_id, [(make_result(profile=f"p{n}"), None) for n in range(101)])
        store.finish(run_id, 1, LATER + timedelta(hours=1))  # the exit code is known later, once
        assert (store.run(run_id).finished_at, store.run(run_id).exit_code) == (LATER, 1)
        with pytest.raises(StoreError, match="finished already"):
            store.finish(run_id, 0, LATER)
        with pytest.raises(StoreError, match="already"):
            store.begin(new_run())
        with pytest.raises(UsageError, match="no run 77"):
            store.finish(77, 0, LATER)


def test_a_resumed_run_knows_what_it_has(database: str) -> None:
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        store.record_many(run_id, [(make_result(profile=p), None) for p in "abc"])
    with open_store(database, write=True) as store:
        assert store.completed_rows(run_id) == {make_result(profile=p).row for p in "abc"}
        store.record(run_id, make_result(profile="d"))
        assert len(store.completed_rows(run_id)) == 4


def test_one_element_and_int_parameters_keep_their_types(database: str) -> None:
    """1 and 1.0 hash alike in Python and are different parameters."""
    kernels = []
    for value in (1, 1.0):
        kernel = make_kernel()
        case = replace(kernel.cases[0], inputs=(Input("x", "normal", 10, params=(("seed", value),)),))
        kernels.append((replace(kernel, cases=(case,)), case))
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        for number, (kernel, case) in enumerate(kernels):
            store.record(run_id, replace(make_result(profile=f"p{number}"), kernel=kernel, case=case))
        params = [r.case.inputs[0].params[0][1] for r in store.results(run_id)]
    assert [type(value) for value in params] == [int, float]


def test_a_case_beside_others_is_recorded_alone(database: str) -> None:
    kernel = make_kernel()
    other = replace(kernel.cases[0], name="other")
    assert isinstance(other, Case)
    both = replace(kernel, cases=(kernel.cases[0], other))
    with open_store(database, write=True) as store:
        run_id = store.begin(new_run())
        store.record(run_id, replace(make_result(), kernel=both, case=other))
        assert store.results(run_id)[0].kernel.cases == (other,)


@pytest.mark.postgres
def test_a_server_may_answer_for_results_before_its_disk_has_them(postgresql_url: str) -> None:
    """Not for what ends a run or decides: that is on its disk, and all before it, once it is said."""

    def waits(connection: Connection, _: object) -> object:
        return connection.exec_driver_sql("SHOW synchronous_commit").scalar()

    with open_store(emptied(postgresql_url), write=True) as store:
        assert [store.write(waits, durable=durable) for durable in (False, True)] == ["off", "on"]
        assert store.read(waits) == "on"


@pytest.mark.parametrize("runs", [2, 9])
def test_results_among_those_of_other_runs_are_read_as_their_own(database: str, runs: int) -> None:
    """Recorded in turn: close together they are read as one range, further apart number by number."""
    with open_store(database, write=True) as store:
        begun = [store.begin(new_run(number)) for number in range(runs)]
        for place in range(5):
            for number, run_id in enumerate(begun):
                bits = f"0x{100 * number + place:08x}"
                store.record(run_id, make_result([bits] * 100, kernel="k", profile=f"p{place}"))
        for number, run_id in enumerate(begun):
            found = [(r.profile, r.outputs[0].first_bits) for r in store.results(run_id)]
            assert found == [(f"p{place}", f"0x{100 * number + place:08x}") for place in range(5)]
        past = [(r.outputs[0].first_bits, run.id) for run, r in store.history("k", profile="p3")]
        assert past == [(f"0x{100 * n + 3:08x}", begun[n]) for n in reversed(range(runs))]
