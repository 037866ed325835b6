"""What moved: causes in order, the pinned tuple, alarms, and the sentence that a reviewer reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprodb.attribute import attribute, deviating_device
from reprodb.compare import compare_results
from reprodb.domain import Code, Device, FunctionCounts, Lane, Profile, Result, Role, Run, Toolchain
from reprodb.findings import Alarm, Attribution, Cause, Comparison, Effect, Moved, State
from reprodb.ordering import fingerprint_of
from tests.builders import (
    ATOMIC_TOTAL,
    H200,
    NVRTC_12,
    NVRTC_13,
    TREE_TOTAL,
    floats,
    make_build,
    make_environment,
    make_kernel,
    make_output,
    make_result,
    make_run,
    store_of,
)

MOVED_CODE = Code("ptx-2", "sass-2", "constants-1")
PLAIN = Profile("default", "nvrtc", ">=13,<14")


def compare(old: Result, new: Result, runs: tuple[Run, Run] | None = None) -> tuple[Comparison, Attribution]:
    one, two = runs or (make_run(1), make_run(2))
    row = compare_results(old, new, one, two, store_of(old, new).__getitem__)
    assert row.attribution is not None
    return row, row.attribution


def states(found: Attribution) -> dict[str, State]:
    return {layer.name: layer.state for layer in (*found.causes, *found.effects)}


def detail(found: Attribution, name: str) -> str:
    return next(layer.detail for layer in (*found.causes, *found.effects) if layer.name == name)


def test_every_layer_is_there_and_in_order() -> None:
    _, found = compare(make_result(), make_result())
    assert [layer.name for layer in found.causes] == list(Cause)
    assert [layer.name for layer in found.effects] == list(Effect)
    assert all(layer.state is State.SAME for layer in found.causes)
    assert states(found)[Effect.ORDER] is State.UNKNOWN
    assert found.first_layer is None
    assert found.moved == ()
    assert found.sentence == "nothing in the pinned tuple moved; code the same; no bit moved"


# --- The published exercise: three edits ---------------------------------------------------------


def test_2048_blocks_moved_the_shape_although_defines_and_code_changed_too() -> None:
    old = make_result()
    new = make_result(
        [ATOMIC_TOTAL] * 100,
        kernel=make_kernel(grid=2048),
        build=make_build(defines=(("BLOCKS", "2048"), ("THREADS", "256")), code=MOVED_CODE),
    )
    _, found = compare(old, new)
    assert found.moved == (Moved.SHAPE,)
    assert found.first_layer == "launch shape"
    assert states(found)[Cause.FLAGS] is State.SAME
    assert "BLOCKS 1024 → 2048" in detail(found, Cause.LAUNCH_SHAPE)


@pytest.mark.parametrize(
    ("orders", "moved"),
    [
        (("front to back", "back to front"), Moved.ORDER),
        (("front to back", "front to back"), Moved.BUILD),
        ((None, None), Moved.BUILD),
    ],
)
def test_a_change_of_source_moved_the_order_where_the_manifests_say_so(
    orders: tuple[str | None, str | None], moved: Moved
) -> None:
    old = make_result(kernel=make_kernel(order=orders[0]))
    new = make_result(
        [ATOMIC_TOTAL] * 100,
        kernel=make_kernel(order=orders[1]),
        build=make_build(sources=(("_lib/sum_squares.cu", "bb" * 32),), code=MOVED_CODE),
    )
    _, found = compare(old, new)
    assert found.moved == (moved,)
    assert found.first_layer == "source"
    assert detail(found, Cause.SOURCE) == "_lib/sum_squares.cu"
    assert found.new_history == "new history: source changed (_lib/sum_squares.cu)"
    assert found.new_history in found.notes
    # A measured order decides over the manifests' words.
    pairwise, in_turn = (fingerprint_of(3, (((0, 1, a), (0, 2, b), (1, 2, 3)),)) for a, b in ((2, 3), (3, 2)))
    _, probed = compare(replace(old, fingerprint=pairwise), replace(new, fingerprint=in_turn))
    assert probed.moved == (Moved.ORDER,)
    assert "the order differs (2 of 3 pairs meet elsewhere)" in probed.sentence
    _, still = compare(replace(old, fingerprint=pairwise), replace(new, fingerprint=pairwise))
    assert still.moved == (Moved.BUILD,)
    assert "the order is the same" in still.sentence


def partials(fmad: bool, values: bytes, code: Code) -> Result:
    name = "default" if fmad else "no-fmad"
    return make_result(
        outputs=(
            make_output([TREE_TOTAL] * 9),
            make_output([values] * 9, name="partials", role=Role.WITNESS),
        ),
        profile=name,
        build=make_build(profile=replace(PLAIN, name=name, fmad=fmad), code=code),
    )


def test_contraction_off_moved_the_build_and_reads_as_one_sentence() -> None:
    before = partials(True, floats(*range(1024)), Code("p1", "s1", "c"))
    after = partials(False, floats(*(i + (i < 73) for i in range(1024))), Code("p2", "s2", "c"))
    _, found = compare(before, after)
    assert found.moved == (Moved.BUILD,)
    assert found.first_layer == "flags"
    assert found.sentence == (
        "build moved: flags (-fmad=true → -fmad=false); code differs; "
        "73 of 1,024 partials moved, the total did not"
    )


# --- Causes --------------------------------------------------------------------------------------


def test_several_flags_are_listed_and_none_is_singled_out() -> None:
    new = replace(PLAIN, fmad=False, ftz=True, extra=("-G",))
    _, found = compare(make_result(), make_result(build=make_build(profile=new, code=MOVED_CODE)))
    assert detail(found, Cause.FLAGS) == "-fmad=true → -fmad=false, -ftz unset → -ftz=true, with -G"
    assert "none of them singled out" in found.sentence


def test_a_define_that_shapes_nothing_is_a_flag() -> None:
    defines = (("BLOCKS", "1024"), ("THREADS", "256"), ("UNROLL", "4"))
    _, found = compare(make_result(), make_result(build=make_build(defines=defines)))
    assert found.first_layer == "flags"
    assert detail(found, Cause.FLAGS) == "UNROLL unset → 4"


def test_another_toolchain_under_one_name_is_a_redefined_profile() -> None:
    old = make_result(build=make_build(toolchain=NVRTC_12))
    _, found = compare(old, make_result(build=make_build(toolchain=NVRTC_13)))
    assert found.moved == (Moved.BUILD,)
    assert found.first_layer == "toolchain"
    assert found.notes == ("profile redefined: toolchain nvrtc 12.6.85 → nvrtc 13.5.37",)


def test_other_flags_under_one_name_are_a_redefined_profile() -> None:
    new = make_result(build=make_build(profile=replace(PLAIN, fmad=False)))
    _, found = compare(make_result(), new)
    assert found.notes == ("profile redefined: flags -fmad=true → -fmad=false",)


def test_where_a_compiler_lies_is_not_its_identity() -> None:
    _, found = compare(
        make_result(), make_result(build=make_build(toolchain=replace(NVRTC_13, path="/elsewhere")))
    )
    assert found.moved == ()


def test_a_component_of_the_toolchain() -> None:
    nvcc = Toolchain("nvcc", "13.0.88", "nvcc", "PATH", components=(("host", "gcc 12"),))
    other = replace(nvcc, components=(("host", "gcc 13"),))
    _, found = compare(
        make_result(build=make_build(toolchain=nvcc)), make_result(build=make_build(toolchain=other))
    )
    assert detail(found, Cause.TOOLCHAIN) == "host gcc 12 → gcc 13"


def test_environment_stands_beside_the_four() -> None:
    measured = make_result(lane=Lane.MEASURED)
    newer = make_environment(H200, driver="590.10")
    runs = (make_run(1, device=H200), replace(make_run(2, device=H200), environment=newer))
    _, found = compare(measured, measured, runs)
    assert found.moved == (Moved.ENVIRONMENT,)
    assert detail(found, Cause.ENVIRONMENT) == "driver 580.159.04 → 590.10"


def test_another_host_with_the_same_gpu_is_no_cause() -> None:
    measured = make_result(lane=Lane.MEASURED)
    moved = replace(make_run(2, device=H200), environment=make_environment(H200, host="runner-2"))
    _, found = compare(measured, measured, (make_run(1, device=H200), moved))
    assert found.moved == ()
    assert detail(found, Cause.ENVIRONMENT) == "host runner-1 → runner-2"


def test_what_is_not_known_is_unknown() -> None:
    bare = replace(make_result(), build=None, input_digest="")
    _, found = compare(bare, make_result())
    assert states(found)[Cause.INPUT] is State.UNKNOWN
    assert states(found)[Cause.FLAGS] is State.UNKNOWN
    assert states(found)[Effect.SASS] is State.UNKNOWN
    assert found.sentence.startswith("nothing known moved (input, source, flags and toolchain unknown)")


# --- Effects and alarms --------------------------------------------------------------------------


def test_code_the_same_and_bits_changed_is_loud() -> None:
    _, found = compare(make_result(), make_result([ATOMIC_TOTAL] * 100))
    assert found.alarms == (Alarm.CODE_SAME_BITS_CHANGED,)


def test_the_alarm_stays_quiet_where_shape_explains_it_or_code_is_unknown() -> None:
    changed = [ATOMIC_TOTAL] * 100
    for other in (
        make_result(changed, kernel=make_kernel(grid=2048)),
        make_result(changed, build=make_build(code=Code("ptx-1", None, None)), lane=Lane.MEASURED),
        make_result(changed, build=make_build(code=MOVED_CODE)),
    ):
        old = make_result(lane=other.lane)
        runs = (make_run(1, device=H200), make_run(2, device=H200)) if other.lane is Lane.MEASURED else None
        assert compare(old, other, runs)[1].alarms == ()


def test_an_inert_flag_is_a_quiet_alarm() -> None:
    precise = replace(PLAIN, name="precise", extra=("-some-precise-switch",))
    _, found = compare(make_result(), make_result(profile="precise", build=make_build(profile=precise)))
    assert found.alarms == (Alarm.INERT_PROFILE,)


def test_code_the_same_from_two_toolchains_is_quiet() -> None:
    """PTX text and preambles differ, instructions do not."""
    old = make_result(build=make_build(toolchain=NVRTC_12, code=Code("p1", "s", "c")))
    new = make_result(build=make_build(toolchain=NVRTC_13, code=Code("p2", "s", "c")))
    _, found = compare(old, new)
    assert states(found)[Effect.PTX] is State.DIFFERS
    assert states(found)[Effect.SASS] is State.SAME
    assert found.alarms == ()
    assert "code the same; no bit moved" in found.sentence


def test_sass_detail_counts_what_does_arithmetic() -> None:
    before = Code("p1", "s1", "c", (FunctionCounts("sum", (), (("FADD", 9), ("FFMA", 1))),))
    after = Code("p2", "s2", "c", (FunctionCounts("sum", (), (("FADD", 10), ("FMUL", 1))),))
    _, found = compare(make_result(build=make_build(code=before)), make_result(build=make_build(code=after)))
    assert detail(found, Effect.SASS) == (
        "sum: FFMA 1 → 0, FMUL 0 → 1, FADD 9 → 10: 1 multiply-add came apart"
    )


def test_constant_data_alone_is_code_too() -> None:
    new = make_result(build=make_build(code=Code("ptx-1", "sass-1", "constants-2")))
    _, found = compare(make_result(), new)
    assert detail(found, Effect.SASS) == "constant data alone"
    assert "code differs" in found.sentence


def test_a_single_number_reads_with_its_bits() -> None:
    _, found = compare(make_result(), make_result([ATOMIC_TOTAL] * 100, build=make_build(code=MOVED_CODE)))
    assert found.sentence.endswith("total (0x4b25426d → 0x4b25426e, 1 ULP) moved")


def test_a_lost_determinism_reads_with_its_repetitions() -> None:
    _, found = compare(make_result(), make_result([TREE_TOTAL] * 9 + [ATOMIC_TOTAL]))
    assert "total differs in 1 of 10 repetitions (repetition 9 only)" in found.sentence


def test_attributing_twice_is_attributing_once() -> None:
    row, _ = compare(make_result(), make_result([ATOMIC_TOTAL] * 100))
    assert attribute(row, make_run(1), make_run(2)) == row


# --- One card of several -------------------------------------------------------------------------


def card(number: int) -> Device:
    return replace(H200, uuid=f"GPU-{number}", index=number)


def test_the_one_card_that_deviates_is_named() -> None:
    good, bad = make_result(lane=Lane.MEASURED), make_result([ATOMIC_TOTAL] * 100, lane=Lane.MEASURED)
    runs = [make_run(i, device=card(i)) for i in range(3)]
    assert deviating_device(zip(runs, (good, bad, good), strict=True)) == "GPU-1"
    assert deviating_device(zip(runs, (good, good, good), strict=True)) is None
    assert deviating_device(zip(runs[:2], (good, bad), strict=True)) is None


def test_a_card_is_not_blamed_for_another_build() -> None:
    good = make_result(lane=Lane.MEASURED)
    bad = make_result([ATOMIC_TOTAL] * 100, lane=Lane.MEASURED, build=make_build(code=MOVED_CODE))
    runs = [make_run(i, device=card(i)) for i in range(3)]
    assert deviating_device(zip(runs, (good, bad, good), strict=True)) is None
