"""The math atlas: its table of functions, what moves, its documents and pages, and what a user meets."""

from __future__ import annotations

import json
import lzma
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprodb.atlas import toolkits
from reprodb.atlas.exact import EXACT, Exact
from reprodb.atlas.functions import Function, functions
from reprodb.atlas.reading import read
from reprodb.atlas.source import SUITE, kernel_of, text
from reprodb.atlas.survey import Survey, carry_out, column
from reprodb.atlas.table import Absence, Atlas, Move, atlas_of
from reprodb.cli.atlas import exit_code
from reprodb.cli.flow import RunOptions, opened_bench
from reprodb.cli.progress import listener
from reprodb.domain import Code, FunctionCounts, Lane, Result, Status
from reprodb.errors import Exit, ToolchainError, UsageError
from reprodb.executors.arrays import Arrays
from reprodb.profiles import bundled_profiles, load_profiles
from reprodb.profiles import select as select_profiles
from reprodb.recovery import Compilers
from reprodb.render import atlas as render
from reprodb.render import html
from reprodb.render.atlas_page import markdown
from reprodb.toolchains import catalog
from tests.builders import NVRTC_12, NVRTC_13, make_build, make_output, make_result, make_run, store_of
from tests.command import Said, reprodb, valid

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "reports" / "evidence" / "atlas-h200.json.xz"
HERE = (
    "--toolkits",
    "12.6.85,13.5.37",
    "--no-install",
    "--device",
    "model",
    "--profile",
    "default",
    "-j",
    "1",
)


@pytest.fixture(scope="module")
def measured() -> Atlas:
    """What an H200 gave."""
    return read(EVIDENCE)


# --- the functions and their inputs ------------------------------------------------------------


def row(name: str) -> Function:
    (found,) = (each for each in functions() if each.name == name)
    return found


def test_every_function_is_a_kernel_of_its_own_with_a_value_that_is_known_or_none() -> None:
    rows = functions()
    assert len(rows) == 348
    assert len({r.name for r in rows}) == len({r.entry for r in rows}) == len(rows)
    for each in rows:
        assert each.entry.isidentifier()
        assert text(each.source, [each]).count(f"void {each.entry}(") == 1
    without = {each.exact for each in rows} - set(EXACT)
    # Their results are exact by definition, or are bits; a move of them is one whose side nobody asks for.
    assert without == {
        "", "ceil", "copysign", "fabs", "fdim", "floor", "fmax", "fmin", "ilogb", "ldexp", "llrint",
        "llround", "logb", "lrint", "lround", "nearbyint", "nextafter", "rint", "round", "trunc",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "word", "heads"), [("expf", "u4", 512), ("exp", "u8", 4096)])
def test_inputs_have_every_exponent_with_both_signs_and_the_special_values(
    name: str, word: str, heads: int
) -> None:
    (asked,) = kernel_of(row(name)).cases[0].inputs
    values = Arrays().get(asked)
    exponent_bits = heads.bit_length() - 1
    words = values.view(word) >> np.dtype(word).type(8 * values.itemsize - exponent_bits)
    assert len(values) == 65_536
    assert len(np.unique(words)) == heads
    tiny = np.finfo(values.dtype).smallest_normal
    assert np.count_nonzero((np.abs(values) < tiny) & (values != 0)) > 10
    for special in (np.inf, -np.inf, np.finfo(values.dtype).max, np.finfo(values.dtype).smallest_subnormal):
        assert special in values
    zeros = np.signbit(values[values == 0])
    assert zeros.any()
    assert not zeros.all()
    low, high = row(name).arguments[0].low, row(name).arguments[0].high
    # A change within the range of interest alone is one of many inputs too.
    assert np.count_nonzero((values >= low) & (values <= high)) > 30_000


def test_a_half_sees_every_half() -> None:
    (asked,) = kernel_of(row("hsin")).cases[0].inputs
    assert len(np.unique(Arrays().get(asked))) == 65_536


# --- exact values ------------------------------------------------------------------------------


def test_exact_values_of_inverse_and_whole_functions() -> None:
    exact = Exact()
    assert exact.shown(exact.value("atan2", [1.0, 1.0])) == "0.785398163397448309615661"  # π/4
    assert exact.shown(exact.value("tgamma", [5.0])) == "24.0"
    assert exact.shown(exact.value("pow", [-2.0, 3.0])) == "-8.0"
    assert exact.shown(exact.value("remainder", [5.0, 3.0])) == "-1.0"
    assert exact.shown(exact.value("fmod", [-5.0, 3.0])) == "-2.0"
    for tiny in (1e-30, 1e-300, 1.9999999):
        assert abs(mpmath.erfc(exact.value("erfcinv", [tiny])) / mpmath.mpf(tiny) - 1) < 1e-13
    # The domain's ends, and beyond.
    for name, argument in (("asin", 1.5), ("log", 0.0), ("tgamma", -3.0), ("erfinv", 1.0), ("sqrt", -1.0)):
        assert exact.value(name, [argument]) is None
    assert exact.value("exp", [float("nan")]) is None


def test_an_error_is_counted_in_units_at_the_exact_value() -> None:
    exact = Exact()
    one, nothing = exact.value("same", [1.0]), exact.value("same", [0.0])
    assert exact.error(one, 1 + 2**-23, "float32") == 1
    assert exact.error(one, 1 - 2**-24, "float32") == 0.5
    assert exact.error(one, 1 + 2**-52, "float64") == 1
    assert exact.error(nothing, 2**-149, "float32") == 1  # the smallest subnormal
    assert exact.error(one, float("inf"), "float32") is None
    assert exact.error(nothing, 5.0, "float64") == sys.float_info.max  # 5 · 2^1074, in a document


# --- the table's arithmetic --------------------------------------------------------------------


def answer(
    name: str, version: str, bits: list[int] | None, *, code: str | None = "code", patterns: int = 1
) -> Result:
    """A result of a function under one release, of made-up words; without them one that failed."""
    kernel = kernel_of(row(name))
    toolchain = replace(NVRTC_12, version=version)
    function = FunctionCounts("f", sass_digest=code)
    build = make_build(toolchain=toolchain, code=Code("ptx", code, None, (function,)))
    dtype = kernel.cases[0].buffers[0].dtype
    data = [np.array(bits or [], f"u{np.dtype(dtype).itemsize}").tobytes() for _ in range(patterns)]
    data[1:] = [bytes(len(each)) for each in data[1:]]
    result = make_result(
        outputs=(make_output(data, name="o", dtype=dtype),),
        kernel=kernel,
        profile=f"default-{version}",
        build=build,
        status=Status.OK if bits else Status.UNSUPPORTED,
        error="" if bits else "ex2.approx at line 7",
    )
    return replace(result, case=kernel.cases[0])


def table(*results: Result, exact: Exact | None = None, lane: Lane = Lane.MODELLED) -> Atlas:
    rows = tuple(row(name) for name in dict.fromkeys(r.kernel.name for r in results))
    fetch = store_of(*results).__getitem__
    return atlas_of(make_run(suite=SUITE, lane=lane), results, rows, fetch, Arrays().get, exact)


ONE, NAN, OTHER_NAN = 0x3F800000, 0x7FC00000, 0xFFC00000


def moved(before: list[int], after: list[int]) -> Move:
    found = table(answer("expf", "12.6.85", before), answer("expf", "13.5.37", after))
    ((_, move),) = found.moves
    return move


def test_moves_are_counted_element_by_element() -> None:
    move = moved([ONE, ONE, ONE, 0], [ONE, ONE + 1, ONE + 5, 0x80000000])
    # -0 for +0 is a change of bits and no distance.
    assert (move.changed, move.of, move.max_ulp, move.nans) == (3, 4, 5, 0)
    assert (move.example.before.bits, move.example.after.bits) == ("0x3f800000", "0x3f800005")
    assert not move.nans_only


def test_a_nan_for_a_nan_is_told_from_numbers_that_come_and_go() -> None:
    other = moved([NAN, ONE], [OTHER_NAN, ONE])
    assert (other.max_ulp, other.nans, other.nan_to_nan, other.nans_only) == (None, 1, 1, True)
    assert render.distance(other) == "NaN for NaN"
    lost = moved([NAN, ONE], [OTHER_NAN, NAN])
    assert (lost.max_ulp, lost.nans, lost.nan_to_nan, lost.nans_only) == (None, 2, 1, False)
    assert render.distance(lost) == "NaN"
    assert render.reach(lost) == "NaN, 1 NaN for NaN, 1 between NaN and a number"
    both = moved([NAN, ONE], [OTHER_NAN, ONE + 2])
    assert (both.max_ulp, both.nans_only) == (2, False)
    assert render.reach(both) == "2 ULP, 1 NaN for NaN"
    assert render.reach(other) == "NaN for NaN"
    assert render.reach(moved([ONE, ONE], [ONE, ONE + 1])) == "1 ULP"


def test_a_table_that_did_not_count_nans_for_nans_is_read_and_shown_without(tmp_path: Path) -> None:
    """Documents of before the count are told by their example."""
    entries = (
        (answer("expf", "12.6.85", [NAN, ONE]), answer("expf", "13.5.37", [OTHER_NAN, ONE])),
        (answer("logf", "12.6.85", [NAN, ONE]), answer("logf", "13.5.37", [OTHER_NAN, ONE + 2])),
    )
    found = table(*entries[0], *entries[1])
    document = valid(render.document(found), "atlas")
    assert [m["nan_to_nan"] for f in document["functions"] for m in f["moves"]] == [1, 1]
    for function in document["functions"]:
        for move in function["moves"]:
            del move["nan_to_nan"]
    file = tmp_path / "older.json"
    file.write_text(json.dumps(valid(document, "atlas")))
    older = read(file)
    assert [(m.nan_to_nan, m.nans_only, render.reach(m)) for _, m in older.moves] == [
        (None, True, "NaN for NaN"),
        (None, False, "2 ULP"),
    ]
    assert render.verdict(older) == render.verdict(found)
    assert {m["nan_to_nan"] for f in render.document(older)["functions"] for m in f["moves"]} == {None}
    assert "2 ULP, 1 NaN for NaN" in markdown(found) and "1 NaN for NaN" in html.atlas(found)


def test_code_that_moves_without_bits_is_news_of_its_own() -> None:
    found = table(
        answer("expf", "12.0.140", [ONE], code="a"),
        answer("expf", "12.1.105", [ONE], code="b"),
        answer("expf", "12.2.140", [ONE], code="b"),
        answer("expf", "12.3.107", [ONE], code=None),
        answer("expf", "12.4.127", [ONE + 1], code="c"),
    )
    (entry,) = found.entries
    assert (entry.code_only, entry.code_unknown) == (("12.1.105",), ("12.3.107",))
    assert [span.versions[-1] for span in entry.spans] == ["12.3.107", "12.4.127"]
    assert [(m.before, m.after) for m in entry.moves] == [("12.3.107", "12.4.127")]


def test_a_release_without_a_result_hides_no_move() -> None:
    found = table(
        answer("expf", "12.6.85", [ONE]),
        answer("expf", "12.9.86", None),
        answer("expf", "13.5.37", [ONE + 1]),
    )
    (entry,) = found.entries
    assert entry.absences[0].reason == "ex2.approx at line 7"
    told = "\n".join(render.lines(found))
    assert "12.6 → 12.9: nothing moved, 1 not compared" in told
    assert "expf: 1 of 1 (100 %), up to 1 ULP; nearer: not known (since 12.6)" in told
    assert "expf has no result under 12.9: unsupported: ex2.approx at line 7" in told
    assert "(since 12.6)" in markdown(found)
    # A model may refuse; on a GPU a function without a result is no answer.
    assert exit_code(found) is Exit.CLEAN
    assert exit_code(replace(found, lane=Lane.MEASURED)) is Exit.NO_ANSWER


def test_what_the_model_cannot_know_is_noted_on_every_page() -> None:
    noted = replace(answer("expf", "13.5.37", [ONE]), notes=("met two different NaNs",))
    found = table(answer("expf", "12.6.85", [ONE]), noted)
    assert "with notes, see atlas.md: expf" in "\n".join(render.lines(found))
    assert "- met two different NaNs: `expf`" in markdown(found)
    assert "<p>met two different NaNs:" in html.atlas(found)


def test_many_without_a_result_are_named_in_a_line() -> None:
    names = ("acosf", "acoshf", "asinf", "asinhf", "atanf", "atanhf", "cbrtf", "cosf", "coshf")
    found = table(*(answer(name, v, None) for name in names for v in ("12.6.85", "13.5.37")))
    told = "\n".join(render.lines(found))
    assert f"9 have no result somewhere, see atlas.md for the reasons: {', '.join(names)}" in told
    assert markdown(found).count("ex2.approx at line 7") == 9


def test_two_answers_in_one_run_are_no_answer_to_rely_on() -> None:
    found = table(answer("expf", "12.6.85", [ONE], patterns=2), answer("expf", "13.5.37", [ONE]))
    assert found.entries[0].unstable == ("12.6.85",)
    assert exit_code(found) is Exit.UNTRUSTWORTHY
    assert "expf gave more than one answer under 12.6" in "\n".join(render.lines(found))


def test_the_nearer_side_is_the_one_nearer_the_exact_value() -> None:
    """Correctly rounded roots against their neighbours: before is nearer, everywhere."""
    (asked,) = kernel_of(row("sqrtf")).cases[0].inputs
    arguments = Arrays().get(asked)[:600]
    finite = np.isfinite(arguments) & (arguments >= 0)
    roots = np.sqrt(np.where(finite, arguments, 1).astype(np.float64)).astype(np.float32)
    after = np.where(finite & (arguments > 0), np.nextafter(roots, np.float32(np.inf)), roots)
    sides = [side.view("u4").tolist() for side in (roots, after)]
    found = table(
        *(answer("sqrtf", v, bits) for v, bits in zip(("12.6.85", "13.5.37"), sides, strict=True)),
        exact=Exact(),
    )
    ((_, move),) = found.moves
    assert move.nearness is not None
    assert 100 < move.nearness.looked_at == move.nearness.before <= 200
    assert move.nearness.before_error <= 0.5 < move.nearness.after_error < 1.5
    assert move.example.nearer == "before"


WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4)


@given(WORDS, WORDS)
@settings(max_examples=15, deadline=None)
def test_a_step_back_mirrors_the_step(one: list[int], other: list[int]) -> None:
    there = table(answer("expf", "12.6.85", one), answer("expf", "13.5.37", other)).moves
    back = table(answer("expf", "12.6.85", other), answer("expf", "13.5.37", one)).moves
    assert len(there) == len(back) == (one != other)
    for (_, a), (_, b) in zip(there, back, strict=True):
        assert a.changed == b.changed == sum(x != y for x, y in zip(one, other, strict=True))
        assert (a.max_ulp, a.nans, a.nan_to_nan) == (b.max_ulp, b.nans, b.nan_to_nan)
        assert (a.example.before, a.example.after) == (b.example.after, b.example.before)


# --- documents and pages -----------------------------------------------------------------------


def test_the_page_of_the_docs_is_what_the_command_writes_from_the_evidence(
    measured: Atlas, tmp_path: Path
) -> None:
    said = reprodb("atlas", "--from", EVIDENCE, "--out", tmp_path, "--quiet")
    assert said.code == 0
    assert said.out.startswith("27 of 348 functions move between nvrtc 12.0 and 13.5, 4 of them only")
    assert (tmp_path / "atlas.md").read_text() == (ROOT / "docs" / "atlas-h200.md").read_text()
    assert (tmp_path / "atlas.html").read_text() == html.atlas(measured)


def test_a_document_follows_its_schema_and_is_read_back_whole(measured: Atlas, tmp_path: Path) -> None:
    valid(json.loads(lzma.decompress(EVIDENCE.read_bytes())), "atlas")
    file = tmp_path / "atlas.json"
    small = table(answer("expf", "12.6.85", [ONE]), answer("expf", "13.5.37", [NAN]))
    valid(render.document(small), "atlas")
    for found in (measured, small):
        document = render.document(found)
        file.write_text(json.dumps(document))
        assert read(file) == found
        # A later version of the same schema may say more.
        document["functions"][0]["more"] = document["more"] = 1
        file.write_text(json.dumps(document))
        assert read(file) == found


def test_what_is_no_atlas_is_refused_by_name(tmp_path: Path) -> None:
    whole = EVIDENCE.read_bytes()
    cut = json.loads(lzma.decompress(whole))
    del cut["functions"][0]["moves"]
    wrong = {
        "cut.xz": whole[:5000],
        "other.json": b'{"schema": "reprodb.show/1"}',
        "list.json": b"[]",
        "text.json": b"no json",
        "part.json": json.dumps(cut).encode(),
        "deep.json": b"[" * 100_000,
    }
    for name, data in wrong.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=name.replace(".", r"\.")):
            read(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "nothing.json")


def hostile(measured: Atlas) -> Atlas:
    """Names that would be tags, table cells and code, everywhere a document has names."""
    evil = "<img src=x onerror=alert(1)>|`x`\u202e\n# heading"
    entry = next(entry for entry in measured.entries if entry.moves)
    move = entry.moves[0]
    word = replace(move.example.before, bits=evil, value=evil)
    example = replace(move.example, arguments=(word,), before=word, after=word, exact=evil)
    versions = (evil, move.after)
    move = replace(move, before=evil, example=example)
    absence = Absence((evil,), evil, evil)
    entry = replace(
        entry, function=evil, flags=evil, moves=(move,), code_only=(move.after,), absences=(absence,)
    )
    return replace(
        measured,
        device=evil,
        driver=evil,
        arch=evil,
        compiler=evil,
        inputs=evil,
        started_at=evil,
        flags=((evil, (evil,)),),
        versions=versions,
        entries=(entry, replace(entry, function="still", moves=(), absences=())),
    )


def test_names_from_outside_are_text_on_every_page(measured: Atlas) -> None:
    evil = hostile(measured)
    for page in (html.atlas(evil), markdown(evil), "\n".join(render.lines(evil))):
        assert "\u202e" not in page
    assert "<img" not in html.atlas(evil)
    for line in markdown(evil).splitlines():
        assert not line.startswith("# heading")
        # Whole inside code, where it is no tag, or with its angle bracket written out.
        assert "<img" not in re.sub(r"`[^`]*`", "", line)


# --- releases ----------------------------------------------------------------------------------


def test_releases_by_word(tmp_path: Path) -> None:
    older = replace(NVRTC_12, version="12.4.127")
    here = Compilers([NVRTC_12, NVRTC_13, older, replace(NVRTC_12, version="12.6.20")])

    def versions(words: str | None) -> list[str]:
        return [t.version for t in toolkits.chosen(words, here, None, headers=False)]

    assert versions("13.5,12.6") == ["12.6.85", "13.5.37"]
    assert versions("12.6.20,12.6.85") == ["12.6.20", "12.6.85"]
    assert versions(None) == ["12.4.127", "12.6.20", "12.6.85", "13.5.37"]
    assert versions("all") == ["12.4.127", "12.6.85", "13.5.37"]
    with pytest.raises(UsageError, match="two versions"):
        versions("13.5")
    with pytest.raises(UsageError, match="'latest'"):
        versions("12.6,latest")
    with pytest.raises(ToolchainError, match=r"nvrtc 12\.3 is not installed") as caught:
        versions("12.3,13.5")
    assert "--no-install" in caught.value.remedy


def test_two_patches_of_a_release_are_told_apart() -> None:
    found = table(answer("expf", "12.6.20", [ONE]), answer("expf", "12.6.85", [NAN]))
    assert "12.6.20 → 12.6.85: 1 function moved" in "\n".join(render.lines(found))
    assert "## 12.6.20 → 12.6.85" in markdown(found)


# --- the command, on real compilers and the model ----------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("atlas")


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Said:
    """A run of a function that moves, one that does not, and one that the model refuses."""
    names = ("atan2f", "fmaf", "rhypotf")
    asked = [word for name in names for word in ("--function", name)]
    return reprodb("atlas", *HERE, *asked, "--label", "three", folder=folder)


def test_two_releases_on_the_model_move_as_the_gpu_did(recorded: Said, folder: Path, measured: Atlas) -> None:
    assert recorded.code == 0, recorded.err
    assert recorded.out.startswith("1 of 3 functions moves between nvrtc 12.6 and 13.5; 1 has no result")
    assert "atan2f: 12,664 of 65,536 (19 %), up to 2 ULP; nearer: after (156 after, 42 before" in recorded.out
    assert "rhypotf has no result under 12.6, 13.5: unsupported" in recorded.out
    assert "(modelled, sm_90, 65,536 inputs each)" in recorded.out
    found = read(folder / "reports" / "atlas.json")
    assert as_measured(found, measured) == {"atan2f", "fmaf"}
    assert "Modelled lane" in (folder / "reports" / "atlas.html").read_text()


def as_measured(found: Atlas, measured: Atlas) -> set[str]:
    """The functions whose results are the H200's under the same releases, in every bit.

    Any other one notes that it cannot know which of two NaNs goes on.
    """
    gpu = {
        (entry.function, entry.flags, version): span.sha256
        for entry in measured.entries
        for span in entry.spans
        for version in span.versions
    }
    equal = set()
    for entry in found.entries:
        same = [
            gpu[entry.function, entry.flags, version] == span.sha256
            for span in entry.spans
            for version in span.versions
        ]
        assert all(same) or any("different NaNs" in note for note in entry.notes), entry.function
        equal |= {entry.function} if same and all(same) else set()
    return equal


def test_outputs_are_stored_once_for_all_releases_that_agree(recorded: Said, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "reprodb.db")) as database:
        ((stored,),) = database.execute("SELECT count(*) FROM patterns")
        ((results,),) = database.execute("SELECT count(*) FROM results")
        ((bytes_kept,),) = database.execute("SELECT sum(length(data)) FROM blobs")
    # Two of atan2f, one of fmaf, whose results under both releases are one.
    assert (results, stored) == (6, 3)
    assert 0 < bytes_kept < 3 * 4 * 65_536


def test_progress_names_what_is_asked_and_done(recorded: Said) -> None:
    assert "3 functions, 1 set of flags, nvrtc 12.6.85, nvrtc 13.5.37 (sm_90)" in recorded.err
    assert "6 of 6 results: atan2f … rhypotf" in recorded.err


def test_a_recorded_run_gives_its_table_again(recorded: Said, folder: Path) -> None:
    again = reprodb("atlas", "--run", "three", "--function", "atan2f", "--json", folder=folder)
    assert again.code == 0
    found = valid(again.json, "atlas")
    assert [entry["function"] for entry in found["functions"]] == ["atan2f"]
    assert found["functions"][0]["moves"][0]["nan_to_nan"] == 0
    gone = reprodb("atlas", "--run", "three", "--toolkits", "12.6,12.9", folder=folder)
    assert (gone.code, "nothing of nvrtc 12.9" in gone.err) == (2, True)
    assert "12.6.85, 13.5.37" in gone.err


def test_without_mpmath_the_table_says_that_exact_values_were_not_looked_at(
    recorded: Said, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reprodb.atlas import exact

    monkeypatch.setattr(exact, "available", lambda: False)
    said = reprodb("atlas", "--run", "three", "--out", "plain", folder=folder)
    assert "atan2f: 12,664 of 65,536 (19 %), up to 2 ULP; nearer: not known" in said.out
    assert "exact values were not looked at: pip install 'reprodb[atlas]'" in said.out
    assert "not looked at: mpmath was not installed" in (folder / "plain" / "atlas.html").read_text()
    assert not read(folder / "plain" / "atlas.json").exact


def test_an_interrupted_atlas_says_what_it_kept(
    recorded: Said, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reprodb.atlas import survey

    whole = survey.carry_out

    def interrupted(*arguments: Any, **more: Any) -> Iterator[Any]:
        yield next(whole(*arguments, **more))[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr(survey, "carry_out", interrupted)
    said = reprodb("atlas", *HERE, "--function", "fmaf", "--function", "hypotf", folder=folder)
    assert said.code == 130
    assert "run 2 has 2 of 4 results, `reprodb atlas --run 2` makes their table" in said.err
    partial = reprodb("atlas", "--run", "2", folder=folder)
    assert partial.out.startswith("none of 1 function moves")
    assert "The run did not finish" in partial.out
    for page in ("atlas.md", "atlas.html"):
        assert "The run did not finish" in (folder / "reports" / page).read_text()
    assert not read(folder / "reports" / "atlas.json").complete


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--function", "atan3f"), "did you mean 'atanf'?"),
        (("--toolkits", "newest"), "versions such as 12.4 or 12.6.85"),
        (("--from", "a.json", "--run", "1"), "--run and --from exclude each other"),
        (("--from", EVIDENCE, "--toolkits", "12.6,13.2"), "chooses nothing of a written table"),
        (("--from", EVIDENCE, "--profile", "no-fmad"), "its flags are default, fast-math"),
        (("--profile", "nvcc13"), "profile nvcc13 compiles with nvcc"),
        (("--device", "cpu"), "functions are GPU code"),
    ],
)
def test_a_wrong_question_says_what_is_allowed(
    options: tuple[str | Path, ...], told: str, tmp_path: Path
) -> None:
    said = reprodb("atlas", *options, folder=tmp_path)
    assert (said.code, told in said.err) == (2, True), said.err


def test_a_release_that_is_not_here_is_no_answer_without_installing(tmp_path: Path) -> None:
    said = reprodb("atlas", "--toolkits", "9.9,13.5.37", "--no-install", "--device", "model", folder=tmp_path)
    assert (said.code, "nvrtc 9.9 is not installed" in said.err) == (4, True), said.err


def test_the_list_of_functions_is_a_document() -> None:
    listed = valid(reprodb("atlas", "--list", "--json").json, "atlas-list")["functions"]
    assert len(listed) == 348
    assert {"function": "atan2f", "signature": "float atan2f(float, float)"}.items() <= next(
        each for each in listed if each["function"] == "atan2f"
    ).items()


# Sources whose functions need no header that a wheel lacks.
HEADERLESS = tuple(each for each in functions() if each.source != "f16")


@pytest.mark.soak
def test_the_model_gives_the_gpu_s_bits_of_all_that_it_executes(measured: Atlas, tmp_path: Path) -> None:
    """Every function under the oldest and newest release of the environment, default flags and fast-math."""
    asked = [word for each in HEADERLESS for word in ("--function", each.name)]
    options = (*HERE, "--profile", "fast-math", "--repetitions", "1", "--quiet")
    said = reprodb("atlas", *options, *asked, folder=tmp_path)
    assert said.code == 0, said.err
    found = read(tmp_path / "reports" / "atlas.json")
    executed = {entry.function for entry in found.entries if entry.spans}
    # The 21 others are double arithmetic that meets two different NaNs, and say so.
    assert (len(HEADERLESS), len(executed), len(as_measured(found, measured))) == (313, 220, 199)
    assert {a.status for entry in found.entries for a in entry.absences} == {"unsupported"}


@pytest.mark.gpu
def test_a_gpu_gives_the_measured_outputs_again(measured: Atlas, tmp_path: Path) -> None:
    """Every release that is installed here and in the evidence; outputs are one GPU architecture's."""
    found = [t for t in catalog.find() if t.compiler == "nvrtc" and t.version in measured.versions]
    assert found, f"this test needs NVRTC of one of {', '.join(measured.versions)}"
    names = {
        "atan2f",
        "asinh",
        "cospif",
        "expm1f",
        "tanhf",
        "tgammaf",
        "__expf",
        "__fdiv_rn",
        "divide-double",
    }
    flags = select_profiles(load_profiles(bundled_profiles()), ("default", "fast-math"))
    columns = tuple(column(each, toolchain) for each in flags for toolchain in found)
    rows = tuple(each for each in functions() if each.name in names)
    expected = {
        (entry.function, f"{entry.flags}-{version}"): span.sha256
        for entry in measured.entries
        for span in entry.spans
        for version in span.versions
    }
    options = RunOptions(device="gpu", store=tmp_path / "store")
    with listener(quiet=True) as said, opened_bench(options, said) as bench:
        assert bench.where.device is not None
        made = carry_out(
            Survey(rows, columns, bench.where.device.arch, 2), bench.store, bench.pool, Lane.MEASURED
        )
        results = [result for some in made for result, _ in some]
    assert len(results) == len(names) * len(columns)
    for result in results:
        assert result.status is Status.OK, result.error
        assert result.results[0].distinct == 1
        assert result.results[0].sha256 == expected[result.kernel.name, result.profile], result.profile
