"""Stress: conditions by name, what depends on them, and how runs, nights and diffs say so."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprodb import stress
from reprodb.cli.app import _with_values
from reprodb.cli.run import verdict
from reprodb.compare import Side, compare_references
from reprodb.dependence import broken_under
from reprodb.domain import Lane, Result, Status
from reprodb.errors import Exit, UsageError
from reprodb.executors import cuda
from reprodb.executors.arrays import Arrays
from reprodb.executors.cuda import CudaExecutor
from reprodb.executors.slots import fill_of
from reprodb.executors.task import Task, perform
from reprodb.findings import Comparison, Verdict
from reprodb.suite import load_suite
from tests import shared
from tests.builders import TREE_TOTAL, make_result, make_run, store_of
from tests.command import Said, reprodb, valid
from tests.executors.fake_cupy import FakeCupy
from tests.executors.things import a_kernel, an_artifact

SUITE = Path(__file__).parent / "suites" / "stress"


# --- Names ----------------------------------------------------------------------------------------


def test_sets_and_names() -> None:
    assert stress.chosen(None) == ()
    assert stress.chosen("quick") == ("poison-00", "poison-ff", "offset")
    assert stress.chosen("fresh,offset,fresh") == ("offset", "fresh")
    assert stress.chosen("all") == tuple(stress.STRESSES)
    with pytest.raises(UsageError, match="no stress 'ofset'") as refused:
        stress.chosen("ofset")
    assert "did you mean offset?" in str(refused.value)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["run", "--stress"], ["run", "--stress=quick"]),
        (["run", "--stress", "--json"], ["run", "--stress=quick", "--json"]),
        (["run", "--stress", "fresh"], ["run", "--stress", "fresh"]),
        (["run", "--stress=all"], ["run", "--stress=all"]),
        ([], []),
    ],
)
def test_stress_alone_is_the_quick_set(words: list[str], meant: list[str]) -> None:
    assert _with_values(words) == meant


def test_the_model_leaves_out_what_takes_a_gpu() -> None:
    every = stress.chosen("all")
    assert stress.left_out(every, Lane.MODELLED) == dict.fromkeys(
        ("contention", "other-device"), "it takes a GPU"
    )
    assert stress.left_out(every, Lane.MEASURED) == {}
    assert list(stress.left_out(every, Lane.MEASURED, alone=True)) == ["other-device"]


def test_fills_are_for_kernels_with_a_poisoned_buffer() -> None:
    kernel = next(k for k in load_suite(SUITE).kernels if k.name == "steady")
    case = kernel.cases[0]
    zeros = replace(case, buffers=tuple(replace(b, init="zero") for b in case.buffers))
    assert stress.conditions(kernel, ("poison-ff", "offset")) == ("poison-ff", "offset")
    assert stress.conditions(replace(kernel, cases=(zeros,)), ("poison-ff", "offset")) == ("offset",)
    assert [b.init for b in stress.stressed(case, "poison-ff").buffers] == ["poison:ff"]
    assert stress.stressed(case, "offset") == case
    assert [fill_of(init) for init in ("zero", "poison", "poison:ff", "poison:00")] == [0, 0xA5, 0xFF, 0]


# --- What depends on one --------------------------------------------------------------------------

OTHER = "0x4b25426e"


def night(*results: Result) -> tuple[Comparison, ...]:
    return compare_references({}, Side(make_run(2), results), store_of(*results).__getitem__)


def test_bits_that_only_a_stress_shows_are_determinism_lost_by_its_name() -> None:
    plain = make_result([TREE_TOTAL] * 10)
    under = make_result([OTHER] * 10, condition="poison-ff")
    first, second = night(plain, under)
    assert (first.verdict, second.verdict) == (Verdict.NO_BASELINE, Verdict.DETERMINISM_LOST)
    assert second.loss is not None
    assert (second.loss.odd, second.loss.of) == (10, 10)
    assert second.loss.where == "under poison-ff, from the plain ones"
    assert second.note == "total depends on buffers that start as ones (NaN in floats) (poison-ff)"
    assert second.loss.advice == ("compute-sanitizer --tool initcheck: it reads memory that nothing wrote",)
    assert [(r.condition, o.name) for r, o in broken_under((plain, under))] == [("poison-ff", "total")]
    assert verdict((plain, under), ()) == (
        Exit.UNTRUSTWORTHY,
        "1 lost determinism, sum_squares_tree depends on poison-ff",
    )


def test_the_same_bits_and_kernels_that_guarantee_nothing_are_no_finding() -> None:
    from reprodb.domain import Determinism

    plain, same = make_result([TREE_TOTAL] * 3), make_result([TREE_TOTAL] * 3, condition="offset")
    assert [c.verdict for c in night(plain, same)] == [Verdict.NO_BASELINE] * 2
    free = Determinism.NOT_GUARANTEED
    churning = (
        make_result([TREE_TOTAL] * 3, determinism=free),
        make_result([OTHER] * 3, determinism=free, condition="offset"),
    )
    assert broken_under(churning) == ()
    assert verdict(churning, ())[0] is Exit.CLEAN
    alone = make_result([OTHER] * 3, condition="offset")
    assert broken_under((alone,)) == ()


# --- On a device, with a stand-in for CuPy --------------------------------------------------------


def test_under_an_offset_every_address_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def kernel(x: int, n: int, total: int) -> None:
        seen.append((x, total))
        (ctypes.c_float * 1).from_address(total)[0] = 1.0

    fake = FakeCupy({"sum": (3, kernel)})
    executor = CudaExecutor(fake, 0, Arrays())
    task = Task(an_artifact(), a_kernel(), 2)
    for condition in ("plain", "offset", "plain"):
        outcome = perform(executor, replace(task, condition=condition), Arrays())
        assert outcome.status is Status.OK, outcome.error
    (plain, _), (moved, _), (again, _) = seen[0:2], seen[2:4], seen[4:6]
    assert plain[0] == again[0]
    assert [address - stress.OFFSET_BYTES in fake.blocks for address in moved] == [True, True]
    assert executor.pressure == stress.NO_PRESSURE


def test_under_contention_a_second_stream_is_kept_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "RIVAL_BYTES", 1024)

    def kernel(x: int, n: int, total: int) -> None:
        (ctypes.c_float * 1).from_address(total)[0] = 1.0

    fake = FakeCupy({"sum": (3, kernel)})
    executor = CudaExecutor(fake, 0, Arrays())
    filled: list[int] = []
    memset = fake.memsetAsync

    def memset_of(address: int, value: int, size: int, stream: int) -> None:
        if size == 512:
            filled.append(value)
        memset(address, value, size, stream)

    monkeypatch.setattr(fake, "memsetAsync", memset_of)
    outcome = perform(executor, Task(an_artifact(), a_kernel(), 2, condition="contention"), Arrays())
    assert (outcome.status, outcome.outputs[0].distinct) == (Status.OK, 1), outcome.error
    assert filled[:8] == list(range(8))
    assert len(fake.destroyed) == 1


# --- On the model ---------------------------------------------------------------------------------


@pytest.fixture(name="lab", scope="module", params=["model", pytest.param("gpu", marks=pytest.mark.gpu)])
def one_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, Said]:
    folder = tmp_path_factory.mktemp("stress")
    said = reprodb(
        *("run", "--suite", SUITE, "--profile", "default", "--device", request.param, "-n", 3, "--json"),
        *("--db", folder / "db", "--store", shared.store(), "--stress=poison-00,poison-ff,offset,fresh"),
    )
    return folder, request.param, said


def bits(said: Said, kernel: str) -> dict[str, str]:
    rows: list[dict[str, Any]] = valid(said.json, "show")["results"]
    return {row["condition"]: row["first_bits"] for row in rows if row["kernel"] == kernel}


def test_what_was_not_made_is_told_with_the_run(tmp_path: Path) -> None:
    """In the terminal, in JSON and on the page, as what is left out is."""
    where = ("--device", "model", "--db", tmp_path / "db", "--store", tmp_path / "store", "--out", tmp_path)
    asked = ("--kernel", "sum24_left", "--profile", "default", "-n", 2, "--stress=offset,contention")
    words = "stress contention left out: it takes a GPU"
    assert f"? {words}." in reprodb("nightly", *asked, *where).out.replace("Stress", "stress")
    shown = valid(reprodb("show", 1, "--db", tmp_path / "db", "--json").json, "show")
    assert shown["run"]["not_stressed"] == [{"condition": "contention", "reason": "it takes a GPU"}]
    assert {row["condition"] for row in shown["results"]} == {"plain", "offset"}
    assert f"? {words}\n" in reprodb("show", 1, "--db", tmp_path / "db").out
    assert words in (tmp_path / "run-1.html").read_text().replace("Stress", "stress")


def test_a_word_that_nothing_wrote_shows_under_the_fills(lab: tuple[Path, str, Said]) -> None:
    """0 + 1 + … + 62 = 1953, and the poison: 0xa5a5a5a5, 0 or 0xffffffff."""
    assert bits(lab[2], "reads_unset") == {
        "plain": f"0x{(1953 + 0xA5A5A5A5) & 0xFFFFFFFF:08x}",
        "poison-00": f"0x{1953:08x}",
        "poison-ff": f"0x{1952:08x}",
        "offset": f"0x{(1953 + 0xA5A5A5A5) & 0xFFFFFFFF:08x}",
        "fresh": f"0x{(1953 + 0xA5A5A5A5) & 0xFFFFFFFF:08x}",
    }


def test_an_address_in_the_result_shows_at_an_offset(lab: tuple[Path, str, Said]) -> None:
    found = bits(lab[2], "by_address")
    assert found["offset"] != found["plain"] == found["poison-00"] == found["poison-ff"]


def test_what_depends_on_its_input_alone_shows_nothing(lab: tuple[Path, str, Said]) -> None:
    assert set(bits(lab[2], "steady").values()) == {f"0x{63:08x}"}
    assert len(bits(lab[2], "steady")) == 5


def test_the_run_and_a_diff_name_the_stress(lab: tuple[Path, str, Said]) -> None:
    folder, device, said = lab
    assert said.code == Exit.UNTRUSTWORTHY
    diff = reprodb("diff", 1, 1, "--json", "--db", folder / "db")
    assert diff.code == Exit.UNTRUSTWORTHY
    lost = {
        (row["kernel"], row["condition"]): row["note"]
        for row in diff.json["comparisons"]
        if row["verdict"] == "determinism_lost"
    }
    wanted = {("reads_unset", "poison-00"), ("reads_unset", "poison-ff"), ("by_address", "offset")}
    assert set(lost) - {("by_address", "fresh")} == wanted if device == "gpu" else set(lost) == wanted
    assert lost["by_address", "offset"].startswith("total depends on other addresses (offset)")
    shown = reprodb("show", "--db", folder / "db")
    assert "default [poison-ff]" in shown.out
    del device


@pytest.mark.gpu
def test_contention_on_a_gpu(tmp_path: Path) -> None:
    said = reprodb(
        *(
            "run",
            "--kernel",
            "sum_squares_tree",
            "--profile",
            "default",
            "--device",
            "gpu",
            "-n",
            50,
            "--json",
        ),
        *("--db", tmp_path / "db", "--store", tmp_path / "store", "--stress=contention,offset,fresh"),
    )
    assert said.code == 0
    assert bits(said, "sum_squares_tree") == dict.fromkeys(
        ("plain", "contention", "offset", "fresh"), TREE_TOTAL
    )
