"""The profile matrix: groups by bits and by code, the reference group, inert profiles."""

from __future__ import annotations

from dataclasses import replace

from reprodb.compare import matrix
from reprodb.domain import Code, Determinism, Lane, Profile, Result, Role, Status, Toolchain
from reprodb.render.matrix import table
from tests.builders import (
    ATOMIC_TOTAL,
    NVRTC_12,
    NVRTC_13,
    TREE_TOTAL,
    floats,
    make_build,
    make_output,
    make_result,
    make_run,
)


def built(
    profile: str,
    bits: str = TREE_TOTAL,
    *,
    sass: str | None = "s",
    extra: tuple[str, ...] = (),
    toolchain: Toolchain = NVRTC_13,
    partials: bytes = floats(1.0, 2.0),
    lane: Lane = Lane.MODELLED,
) -> Result:
    code = Code("p", sass, None if sass is None else "c")
    settings = Profile(profile, "nvrtc", "*", extra=extra)
    return make_result(
        outputs=(make_output([bits] * 3), make_output([partials] * 3, name="partials", role=Role.WITNESS)),
        profile=profile,
        build=make_build(profile=settings, code=code, toolchain=toolchain),
        lane=lane,
    )


def test_two_groups_by_bits() -> None:
    """A debug build and one without contraction agree with each other and not with the optimised ones."""
    (row,) = matrix(
        (
            built("default"),
            built("ptxas-O0", sass="t"),
            built("G", ATOMIC_TOTAL, sass="u"),
            built("no-fmad", ATOMIC_TOTAL, sass="v"),
        )
    )
    assert [g.profiles for g in row.groups] == [("default", "ptxas-O0"), ("G", "no-fmad")]
    assert [g.bits for g in row.groups] == [TREE_TOTAL, ATOMIC_TOTAL]
    assert row.code_groups == (("default",), ("ptxas-O0",), ("G",), ("no-fmad",))
    assert row.guaranteed


def test_witnesses_part_profiles_whose_result_agrees() -> None:
    (row,) = matrix((built("default"), built("no-fmad", partials=floats(1.0, 3.0))))
    assert [g.profiles for g in row.groups] == [("default",), ("no-fmad",)]
    assert row.groups[0].bits == row.groups[1].bits
    assert row.groups[0].witness != row.groups[1].witness


def test_the_group_with_the_references_bits_is_marked() -> None:
    default, other = built("default"), built("fast", ATOMIC_TOTAL)
    (row,) = matrix((default, other), {default.row: (built("default"), make_run(1), "accepted")})
    assert [(g.profiles, g.reference) for g in row.groups] == [(("default",), True), (("fast",), False)]


def test_a_row_without_a_reference_has_no_star() -> None:
    """A condition seen for the first time has another row's bits, and held none of its own."""
    plain = built("default")
    stressed = replace(built("default"), condition="poison-00")
    shown = table(matrix((plain, stressed), {plain.row: (built("default"), make_run(1), "accepted")}))
    (row,) = shown.rows
    cells = {cell.profile: (cell.label, cell.reference) for cell in row.cells if cell}
    assert cells == {"default [plain]": ("A", True), "default [poison-00]": ("A", False)}
    assert shown.has_reference


def test_a_switch_that_changed_nothing_is_inert() -> None:
    (row,) = matrix((built("default"), built("precise", extra=("-some-precise-switch",))))
    assert row.inert == (("default", "precise"),)
    assert row.code_groups == (("default", "precise"),)


def test_identical_code_from_two_toolchains_is_not_an_inert_flag() -> None:
    (row,) = matrix((built("default"), built("cuda12", toolchain=NVRTC_12)))
    assert row.code_groups == (("default", "cuda12"),)
    assert row.inert == ()


def test_unknown_code_agrees_with_nothing_where_a_gpu_ran_it() -> None:
    measured = (built("a", sass=None, lane=Lane.MEASURED), built("b", sass=None, lane=Lane.MEASURED))
    assert matrix(measured)[0].code_groups == (("a",), ("b",))
    # The model executes the PTX itself, so there the PTX is the code.
    assert matrix((built("a", sass=None), built("b", sass=None)))[0].code_groups == (("a", "b"),)


def test_what_failed_is_listed_beside_the_groups() -> None:
    failed = make_result(
        profile="nvcc12", status=Status.BUILD_FAILED, build=make_build(code=Code(None, None, None))
    )
    (row,) = matrix((built("default"), failed))
    assert row.no_result == (("nvcc12", "build_failed"),)
    assert [g.profiles for g in row.groups] == [("default",)]


def test_arrival_order_kernels_are_grouped_by_their_support() -> None:
    sides = [
        make_result(repetitions, profile=name, determinism=Determinism.NOT_GUARANTEED)
        for name, repetitions in (
            ("a", [TREE_TOTAL, ATOMIC_TOTAL]),
            ("b", [ATOMIC_TOTAL, TREE_TOTAL]),
            ("c", [TREE_TOTAL]),
        )
    ]
    (row,) = matrix(tuple(sides))
    assert not row.guaranteed
    assert [(g.profiles, g.distinct) for g in row.groups] == [(("a", "b"), 2), (("c",), 1)]


def test_rows_by_kernel_and_case_and_names_with_their_architecture() -> None:
    rows = matrix((built("default"), replace(built("default"), arch="sm_80"), make_result(kernel="other")))
    assert [(r.kernel, r.groups[0].profiles) for r in rows] == [
        ("sum_squares_tree", ("default sm_90", "default sm_80")),
        ("other", ("default",)),
    ]
