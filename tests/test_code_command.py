"""`reprodb code`: counts before and after, and texts side by side, from real builds of the bundled tree."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from reprodb import campaign
from reprodb.artifacts import ArtifactStore
from reprodb.build import build_each, request
from reprodb.codegen import step_phrase
from reprodb.domain import FunctionCounts, Result
from reprodb.profiles import bundled_profiles, load_profiles, select
from reprodb.render.code import Pair, Side, show
from reprodb.sidebyside import Line, side_by_side, stretches
from reprodb.store import open_store
from reprodb.suite import bundled_suite, load_suite, select_kernels
from reprodb.toolchains import catalog
from tests import shared
from tests.builders import STARTED, make_result, make_run
from tests.command import Said, reprodb, valid

PROFILES = ("default", "no-fmad", "cuda12", "cuda12-no-fmad")
STEP = "FFMA 1 fewer, FMUL and FADD 1 more each"


@pytest.fixture(scope="module", name="database")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundled kernels by NVRTC 12 and 13, with and without contraction; their bits do not matter."""
    folder = tmp_path_factory.mktemp("code")
    suite = load_suite(bundled_suite())
    kernels = select_kernels(suite, ("sum_squares_tree", "sum_tree_atomic"))
    profiles = select(load_profiles(bundled_profiles()), PROFILES)
    plan = campaign.plan(suite, kernels, profiles, catalog.find(), arch="sm_90")
    wanted = [request(suite, b.kernel, b.profile, b.toolchain, b.arch) for b in plan.builds]
    with open_store(str(folder / "reprodb.db"), write=True) as store:
        run_id = store.begin(replace(make_run(None), finished_at=None, label="code"))
        for asked, artifact in build_each(wanted, ArtifactStore(shared.store())):
            kernel = next(k for k in kernels if k.name == asked.kernel)
            row = make_result(kernel=kernel, profile=asked.profile.name, build=artifact.build)
            store.record(run_id, row, artifact)
        store.finish(run_id, 0, STARTED)
    return folder / "reprodb.db"


def code(database: Path, *args: object) -> Said:
    return reprodb("code", *args, "--db", database)


# --- Counts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on", "off"), [("default", "no-fmad"), ("cuda12", "cuda12-no-fmad")])
def test_without_contraction_an_element_step_has_one_ffma_fewer(database: Path, on: str, off: str) -> None:
    said = code(database, f"latest:{on}", f"latest:{off}", "sum_squares_tree")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[1] == "flags: -fmad=true → -fmad=false"
    assert lines[2] == "PTX differs; SASS differs; constants the same"
    step = next(line for line in lines if "per element step" in line)
    assert step == f"sumSquaresPartials: per element step, which is laid out 8 times: {STEP}"
    assert "FFMA 8 → 0, FMUL 0 → 8, FADD 16 → 24" in said.out
    # The other functions of the shared source are not this kernel's.
    assert "sumSquaresAtomic" not in said.out
    assert "2 other functions of the same source with other counts: --full" in said.out
    assert (
        "sumSquaresAtomic"
        in code(database, f"latest:{on}", f"latest:{off}", "sum_squares_tree", "--full").out
    )


def test_json_has_the_counts_the_states_and_where_each_side_is_from(database: Path) -> None:
    document = valid(code(database, "1:default", "1:no-fmad", "sum_squares_tree", "--json").json, "code")
    assert document["schema"] == "reprodb.code/1"
    (pair,) = document["pairs"]
    assert pair["states"] == {"ptx": "differs", "sass": "differs", "constants": "same"}
    assert (pair["baseline"]["profile"], pair["candidate"]["profile"]) == ("default", "no-fmad")
    functions = {f["function"]: f for f in pair["functions"]}
    assert functions["sumSquaresPartials"]["sass"]["FFMA"] == [8, 0]
    assert functions["sumSquaresPartials"]["ptx"]["fma.rn.f32"] == [1, 0]
    assert functions["sumSquaresPartials"]["step"].endswith(STEP)


def test_the_same_code_says_so(database: Path) -> None:
    said = code(database, "code:default", "latest:default", "sum_squares_tree")
    assert "PTX the same; SASS the same; constants the same" in said.out
    assert "every opcode is counted as often on both sides" in said.out


def test_runs_without_a_profile_are_matched_profile_by_profile(database: Path) -> None:
    document = code(database, "latest", "latest", "sum_tree_atomic", "--json").json
    pairs = [(p["baseline"]["profile"], p["candidate"]["profile"]) for p in document["pairs"]]
    assert sorted(pairs) == sorted((p, p) for p in PROFILES)
    only = code(database, "latest", "latest", "sum_tree_atomic", "--profile", "cuda12", "--json").json
    assert [p["baseline"]["profile"] for p in only["pairs"]] == ["cuda12"]


def test_two_kernels_are_named_on_both_sides(database: Path) -> None:
    said = code(database, "latest:default:sum_tree_atomic", "latest:default:sum_squares_tree")
    assert said.out.startswith("sum_tree_atomic → sum_squares_tree: run 1 default → run 1 default")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("latest", "latest", "sum_squares_tre"), "did you mean sum_squares_tree?"),
        (("latest", "latest"), "which kernel?"),
        (("latest", "latest", "sum_squares_tree", "--profile", "cuda1"), "did you mean cuda12?"),
        (("latest:default", "latest", "sum_squares_tree", "--profile", "cuda12"), "name it once"),
        (("latest:default:sum_tree_atomic", "latest", "sum_squares_tree"), "name it once"),
        (("baseline", "latest", "sum_squares_tree"), "each row's own reference"),
        (("latest~3", "latest", "sum_squares_tree"), "1 complete run\n"),
    ],
)
def test_wrong_names(database: Path, args: tuple[str, ...], problem: str) -> None:
    said = code(database, *args)
    assert (said.code, problem in said.err) == (2, True), said.err


# --- Texts -------------------------------------------------------------------------------------


def test_sass_stands_side_by_side(database: Path) -> None:
    said = code(database, "latest:default", "latest:no-fmad", "sum_squares_tree", "--sass")
    assert "opcode" not in said.out  # no counts unless asked for
    changed = [line for line in said.out.splitlines() if " | " in line and "FFMA" in line.split(" | ")[0]]
    assert any("FMUL" in line.split(" | ")[1] for line in changed)


def test_ptx_in_json_has_both_sides_and_full_has_every_line(database: Path) -> None:
    args = ("latest:default", "latest:no-fmad", "sum_squares_tree", "--ptx", "--json")
    (pair,) = code(database, *args).json["pairs"]
    (whole,) = valid(code(database, *args, "--full").json, "code")["pairs"]
    assert "functions" not in pair
    assert {"|", " "} <= {line["mark"] for line in pair["ptx"]}
    assert len(whole["ptx"]) > len(pair["ptx"])
    before = [line["before"] for line in whole["ptx"] if line["before"] is not None]
    after = [line["after"] for line in whole["ptx"] if line["after"] is not None]
    assert any("fma.rn.f32" in line for line in before)
    assert not any("fma.rn.f32" in line for line in after)


def _printed(database: Path, width: int, **what: bool) -> list[str]:
    with open_store(str(database)) as store:
        sides = [_side(store.results(1, profile=p, kernel="sum_squares_tree")[0]) for p in PROFILES[:2]]
        sides = [
            Side(s.run, s.result, *store.code_texts(s.result.build.key if s.result.build else ""))
            for s in sides
        ]
    asked = {"counts": False, "ptx": False, "sass": False, "full": False, **what}
    out = io.StringIO()
    show(Console(file=out, width=width, color_system=None), Pair(*sides), **asked)
    return out.getvalue().splitlines()


def _side(result: Result) -> Side:
    return Side(1, result, None, None)


@pytest.mark.parametrize("width", [40, 72, 90, 200])
def test_the_terminal_decides_the_columns(database: Path, width: int) -> None:
    lines = _printed(database, width, sass=True)
    assert max(map(len, lines)) <= width
    stacked = [line for line in lines if line.startswith(("- ", "+ "))]
    assert bool(stacked) is (width < 72)


# --- The pure parts ----------------------------------------------------------------------------

_TEXT = st.lists(st.sampled_from(["a", "b", "c", "}", ""]), max_size=12)


@given(_TEXT, _TEXT)
def test_both_texts_are_whole_and_in_order(before: list[str], after: list[str]) -> None:
    lines = side_by_side(before, after)
    assert [line.before for line in lines if line.before is not None] == before
    assert [line.after for line in lines if line.after is not None] == after
    for line in lines:
        assert (
            line.mark
            == {
                (False, False): " " if line.before == line.after else "|",
                (False, True): "<",
                (True, False): ">",
            }[(line.before is None, line.after is None)]
        )


@given(_TEXT, _TEXT, st.integers(0, 3))
def test_stretches_leave_out_equal_lines_alone(before: list[str], after: list[str], context: int) -> None:
    lines = side_by_side(before, after)
    shown = stretches(lines, context)
    kept = [line for stretch in shown for line in stretch.lines]
    assert [line for line in kept if line.mark != " "] == [line for line in lines if line.mark != " "]
    assert len(kept) + sum(s.skipped for s in shown) <= len(lines)
    assert all(any(line.mark != " " for line in s.lines) for s in shown)


def test_a_long_text_takes_no_long_time() -> None:
    before = [f"FADD R{i % 7}, R{i % 5}, R{i % 3}" for i in range(20_000)]
    after = [*before[:9_000], "FMUL R1, R2, R3", *before[9_000:]]
    lines = side_by_side(before, after)
    assert [line for line in lines if line.mark != " "] == [Line(">", None, "FMUL R1, R2, R3")]


def counts(**opcodes: int) -> FunctionCounts:
    return FunctionCounts("f", (), tuple(sorted(opcodes.items())))


@pytest.mark.parametrize(
    ("before", "after", "phrase"),
    [
        # dot2: a*b + c*d, four loads and one fused operation an element
        (
            counts(FFMA=1, FMUL=1, LDG=4),
            counts(FMUL=2, FADD=1, LDG=4),
            "per element step: FFMA 1 fewer, FMUL and FADD 1 more each",
        ),
        # a polynomial of three steps, unrolled four times
        (
            counts(FFMA=12, LDG=4),
            counts(FMUL=12, FADD=12, LDG=4),
            "per element step, which is laid out 4 times: FFMA 3 fewer, FMUL and FADD 3 more each",
        ),
        # fused again
        (
            counts(DMUL=2, DADD=2, LDG=2),
            counts(DFMA=2, LDG=2),
            "per element step, which is laid out 2 times: DFMA 1 more, DMUL and DADD 1 fewer each",
        ),
        (counts(FFMA=8, LDG=8), counts(FMUL=4, FADD=4, LDG=4), None),  # laid out otherwise
        (counts(FFMA=8, LDG=8), counts(FFMA=8, LDG=8), None),
        (counts(FFMA=8, LDG=8), counts(FMUL=8, FADD=7, LDG=8), None),  # not a contraction alone
    ],
)
def test_an_element_step(before: FunctionCounts, after: FunctionCounts, phrase: str | None) -> None:
    assert step_phrase(before, after) == phrase
