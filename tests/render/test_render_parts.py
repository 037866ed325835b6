"""The parts of pages: bit cells, maps, histograms, side-by-side code, the matrix, histories."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.domain import Lane, Status
from reprodb.findings import ElementDelta, MatrixGroup, MatrixRow, Support
from reprodb.render import bitcells, charts, matrix
from reprodb.render.sidebyside import side_by_side
from reprodb.render.timeline import moments
from tests.render import samples


def element(before: str, after: str) -> ElementDelta:
    return ElementDelta(0, None, before, after, 0.0, 0.0, 1)


def test_cells_of_the_published_total() -> None:
    """0x4b25426d is sign 0, exponent 150, fraction 0x25426d; one ULP up changes its two lowest bits."""
    found = bitcells.cells(element("0x4b25426d", "0x4b25426e"), "float32")
    assert found is not None
    assert found.changed == (1, 0)
    fields = {field.name: "".join(run.digits for run in field.runs) for field in found.before}
    assert fields == {"sign": "0", "exponent": f"{150:08b}", "fraction": f"{0x25426D:023b}"}
    assert [run.changed for run in found.after[2].runs] == [False, True]


@pytest.mark.parametrize(
    ("dtype", "digits", "widths"),
    [
        ("float16", 4, [1, 5, 10]),
        ("bfloat16", 4, [1, 8, 7]),
        ("float64", 16, [1, 11, 52]),
        ("int32", 8, [32]),
        ("uint8", 2, [8]),
    ],
)
def test_widths_of_fields(dtype: str, digits: int, widths: list[int]) -> None:
    found = bitcells.cells(element("0x" + "0" * digits, "0x" + "f" * digits), dtype)
    assert found is not None
    assert [sum(len(run.digits) for run in field.runs) for field in found.before] == widths


def test_what_is_no_word_has_no_cells() -> None:
    assert bitcells.cells(element("<script>", "0x00"), "float32") is None
    assert bitcells.cells(element("0x0000", "0x00"), "float32") is None


@given(st.sets(st.integers(0, 69_999)), st.integers(70_000, 200_000))
def test_a_map_marks_a_cell_for_every_moved_element(moved: set[int], of: int) -> None:
    found = charts.element_map(moved, of)
    assert found.cells <= charts.MAP_CELLS
    assert found.path.count("M") == len({index // found.step for index in moved})


def test_the_map_of_1024_partials_has_a_cell_each() -> None:
    found = charts.element_map(samples.MOVED, 1024)
    assert (found.columns, found.rows, found.step, found.last) == (64, 16, 1, 64)
    assert found.path.count("M") == 73
    assert charts.element_map((), 100).last == 4


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 50)), min_size=1, max_size=40))
def test_no_pattern_is_lost_in_a_histogram(pairs: list[tuple[int, int]]) -> None:
    support = Support(len(pairs), 100, tuple((f"0x{u:08x}", n, u) for u, n in pairs))
    found = charts.histogram(support, Support(1, 1, (("0x0", 1, None),)))
    assert found is not None
    assert sum(bar.count for bar in found.sides[0]) == sum(n for _, n in pairs)
    assert found.bins <= charts.BINS
    assert all(0 <= bar.place < found.bins and 0 < bar.height <= 1 for bar in found.sides[0])
    assert found.unplaced == (0, 1)


@given(st.sets(st.integers(0, 10**12), min_size=1, max_size=12))
def test_labels_of_an_axis_do_not_run_into_each_other(places: set[int]) -> None:
    found = charts.histogram(Support(9, 9, tuple((f"0x{u:08x}", 1, u) for u in sorted(places))))
    assert found is not None
    assert found.bins * found.pitch <= charts.AXIS
    axis = found.bins * found.pitch
    # In drawing units: a label around its place, the last one before the end of the axis.
    spans = [(x * found.pitch, len(label) * charts.CHARACTER) for x, label in found.ticks]
    spans = [(min(middle, axis - wide / 2) if n else middle, wide) for n, (middle, wide) in enumerate(spans)]
    for (left, before), (right, after) in pairwise(spans):
        assert left + before / 2 <= right - after / 2


def test_patterns_without_a_place_have_no_histogram() -> None:
    assert charts.histogram(Support(1, 1, (("sha", 1, None),))) is None


def test_side_by_side_finds_the_fused_multiply_add() -> None:
    found = side_by_side(samples.FUSED, samples.SEPARATE)
    changed = [row for row in found.rows if row.kind not in ("equal", "gap")]
    assert (found.removed, found.added) == (2, 3)
    assert any("fma.rn.f32" in row.before for row in changed)
    assert any("mul.rn.f32" in row.after for row in changed)
    assert any(row.kind == "gap" for row in found.rows)


def test_renumbered_registers_are_equal_rows() -> None:
    found = side_by_side("add.f32 %f1, %f2, %f3;\nret;\n", "add.f32 %f7, %f8, %f9;\nbar.sync 0;\nret;\n")
    assert found.renumbered
    assert (found.removed, found.added) == (0, 1)


def test_long_texts_are_bounded() -> None:
    before = "\n".join(f"mov.u32 %r1, {n};" for n in range(50_000))
    found = side_by_side(before, before.replace("mov", "ld"), limit=20)
    assert len(found.rows) == 20
    assert found.cut > 0


def test_matrix_letters() -> None:
    found = matrix.table(samples.matrix())
    assert found.profiles == ("default", "cuda12", "cuda12-no-fmad", "fast-math", "no-fmad")
    tree = found.rows[-1]
    assert [cell.label for cell in tree.cells if cell] == ["A", "A", "A′", "A", "A′"]
    assert [cell.code for cell in tree.cells if cell] == [1, 1, 2, 1, 2]
    assert [cell.label for cell in found.rows[0].cells if cell] == ["~"] * 5
    assert found.inert[0].kernels == ("sum_squares_tree",)


def test_the_matrix_does_not_depend_on_the_order_of_results() -> None:
    (row,) = [r for r in samples.matrix() if r.guaranteed]
    turned = replace(
        row,
        code_groups=tuple(group[::-1] for group in row.code_groups[::-1]),
        inert=tuple(group[::-1] for group in row.inert),
        groups=row.groups[::-1],
    )
    before, after = matrix.table([row]), matrix.table([turned])
    assert before.rows[0].cells == after.rows[0].cells
    assert before.inert == after.inert


def test_matrix_shows_other_bits_and_failures() -> None:
    groups = (
        MatrixGroup(("b",), "0x2", "0x2", "", 1, False),
        MatrixGroup(("a",), "0x1", "0x1", "", 1, True),
    )
    row = MatrixRow("k", "c", True, groups, (("a",), ("b",)), (), (("z", "timed_out"),))
    found = matrix.table([row]).rows[0]
    assert [(c.label, c.status) for c in found.cells if c] == [("A", ""), ("B", ""), ("∅", "timed_out")]


def test_moments_of_a_history() -> None:
    """Newest first: no result, moved with the toolchain, witness only, same, first."""
    broken = replace(samples.tree("default"), status=Status.TIMED_OUT, outputs=())
    moved = replace(samples.tree("default", bits=0x4B25426F), profile="p")
    witness = replace(samples.tree("cuda12-no-fmad"), profile="p")
    first = replace(samples.tree("cuda12"), profile="p")
    entries = [replace(broken, profile="p"), moved, witness, first, first]
    found = moments([(samples.run(9 - n), result) for n, result in enumerate(entries)])
    assert [m.step for m in found] == ["no result", "moved", "latent", "same", "first"]
    assert "nvrtc 12.6.85 → nvrtc 13.5.37" in found[1].changed
    assert found[3].changed == found[4].changed == ()


def test_histories_of_two_lanes_do_not_mix() -> None:
    entries = [
        (samples.run(2, Lane.MEASURED), samples.tree(lane=Lane.MEASURED)),
        (samples.run(1), samples.tree()),
    ]
    assert [m.step for m in moments(entries)] == ["first", "first"]
    assert (
        moments([(samples.run(2), samples.atomic()), (samples.run(1), samples.atomic())])[0].step == "churn"
    )
