"""Coordinates of two results: what differs, one by one, and every mixture between the two ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.coordinates import Coordinate, Side, differing, mix, side_of
from reprodb.domain import Arg, ArgKind, Buffer, Input, Kernel, Pairs, Profile, Result, Role, Stage, Toolchain
from reprodb.findings import Cause
from tests.builders import NVRTC_12, NVRTC_13, make_build, make_kernel, make_result

PLAIN = Profile("plain", "nvrtc", ">=12")


def result(
    profile: Profile = PLAIN,
    *,
    toolchain: Toolchain = NVRTC_13,
    arch: str = "sm_90",
    kernel: Kernel | None = None,
    sources: Pairs = (("_lib/sum.cu", "aa" * 32),),
    input_digest: str = "11" * 32,
) -> Result:
    kernel = kernel or make_kernel()
    build = make_build(
        profile=profile, toolchain=toolchain, arch=arch, defines=kernel.defines, sources=sources
    )
    return make_result(kernel=kernel, build=build, arch=arch, input_digest=input_digest)


def sides(before: Result, after: Result) -> tuple[Side, Side, tuple[Coordinate, ...]]:
    assert before.build is not None
    assert after.build is not None
    old, new = side_of(before, before.build), side_of(after, after.build)
    return old, new, differing(before, after, old, new)


def names(before: Result, after: Result) -> list[str]:
    return [c.name for c in sides(before, after)[2]]


def sized(kernel: Kernel, n: int, *shapes: tuple[int, ...]) -> Kernel:
    """The kernel on n elements of input, with buffers of these shapes."""
    buffers = tuple(Buffer(f"b{i}", "float32", shape, Role.RESULT) for i, shape in enumerate(shapes))
    case = replace(kernel.cases[0], n=n, inputs=(Input("x", "ramp1000", n),), buffers=buffers)
    return replace(kernel, cases=(case,))


def test_each_flag_is_a_coordinate_of_its_own() -> None:
    after = replace(PLAIN, fmad=False, ftz=True, prec_sqrt=False, extra=("-lineinfo",))
    _, _, found = sides(result(), result(after, toolchain=NVRTC_12))
    assert [(c.name, c.cause, c.change) for c in found] == [
        ("-fmad=false", Cause.FLAGS, "-fmad=true → -fmad=false"),
        ("-ftz=true", Cause.FLAGS, "-ftz unset → -ftz=true"),
        ("-prec-sqrt=false", Cause.FLAGS, "-prec-sqrt unset → -prec-sqrt=false"),
        ("-lineinfo", Cause.FLAGS, "with -lineinfo"),
        ("toolchain nvrtc 12.6.85", Cause.TOOLCHAIN, "nvrtc 13.5.37 → nvrtc 12.6.85"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (("-maxrregcount=32",), ("-maxrregcount=64",), ["-maxrregcount=64"]),
        (("-lineinfo",), (), ["without -lineinfo"]),
        (("-Xptxas", "-O1"), ("-Xptxas", "-O3"), ["-Xptxas -O3"]),
        (("-Xptxas=-O1",), ("-Xptxas=-O3",), ["-Xptxas=-O3"]),
        (("-DA=1", "-DB=1"), ("-DA=2", "-DB=2"), ["-DA=2", "-DB=2"]),
        (("-G", "-restrict"), ("-restrict", "-G"), ["order of the extra flags"]),
        (("-G",), ("-G",), []),
    ],
)
def test_extra_flags_go_by_what_they_set(
    before: tuple[str, ...], after: tuple[str, ...], found: list[str]
) -> None:
    old, new = (replace(PLAIN, extra=extra) for extra in (before, after))
    assert names(result(old), result(new)) == found


def test_a_define_is_a_flag_unless_it_shapes_the_launch() -> None:
    kernel = replace(make_kernel(), defines=(*make_kernel().defines, ("SCALE", "2")))
    other = replace(kernel, defines=(("BLOCKS", "2048"), ("THREADS", "256"), ("SCALE", "3")))
    old, new, found = sides(result(kernel=kernel), result(kernel=other))
    assert [c.name for c in found] == ["launch shape", "-DSCALE=3"]
    assert dict(mix(old, new, found[1].parts).kernel.defines) == {
        "BLOCKS": "1024",
        "THREADS": "256",
        "SCALE": "3",
    }


def test_shape_brings_grids_and_the_buffers_that_follow_them() -> None:
    before, after = (
        sized(make_kernel(), 4096, (1024,), (1,)),
        sized(make_kernel(grid=2048), 4096, (2048,), (1,)),
    )
    old, new, (shape,) = sides(result(kernel=before), result(kernel=after))
    assert (shape.name, shape.cause) == ("launch shape", Cause.LAUNCH_SHAPE)
    mixed = mix(old, new, shape.parts).kernel
    assert mixed.stages[0].grid == (2048, 1, 1)
    assert [b.shape for b in mixed.cases[0].buffers] == [(2048,), (1,)]


def test_an_input_brings_its_count_and_the_buffers_of_that_size() -> None:
    before = sized(make_kernel(), 4096, (4096,), (1024,))
    after = sized(make_kernel(grid=2048), 8192, (8192,), (1024,))
    old, new, found = sides(result(kernel=before), result(kernel=after, input_digest="22" * 32))
    assert [c.name for c in found] == ["input", "launch shape"]
    mixed = mix(old, new, found[0].parts)
    assert mixed.case.n == 8192
    assert [b.shape for b in mixed.case.buffers] == [(8192,), (1024,)]
    assert mixed.kernel.stages[0].grid == (1024, 1, 1)


def test_a_size_that_may_follow_either_joins_input_and_shape() -> None:
    before = sized(make_kernel(), 4096, (16,))
    after = sized(make_kernel(grid=2048), 8192, (32,))
    assert names(result(kernel=before), result(kernel=after, input_digest="22" * 32)) == [
        "input with launch shape"
    ]


def test_another_number_of_stages_joins_shape_and_source() -> None:
    before = make_kernel()
    more = Stage("fold", (1, 1, 1), (256, 1, 1), (Arg(ArgKind.BUFFER, "total"),))
    after = replace(before, stages=(*before.stages, more))
    other = (("_lib/sum.cu", "bb" * 32),)
    assert names(result(kernel=before), result(kernel=after, sources=other)) == ["launch shape with source"]


def test_other_words_for_the_same_bytes_are_no_coordinate() -> None:
    case = replace(make_kernel().cases[0], inputs=(Input("x", "constant", 4194915),))
    assert names(result(), result(kernel=replace(make_kernel(), cases=(case,)))) == []


def everything_else() -> Result:
    """A result that differs from the plain one in every coordinate."""
    kernel = sized(make_kernel(grid=2048, block=128, entry="other"), 8192, (8192,), (2048,))
    kernel = replace(kernel, defines=(("BLOCKS", "2048"), ("THREADS", "128"), ("SCALE", "3")))
    return result(
        replace(PLAIN, fmad=False, ftz=True, prec_div=False, extra=("-G", "-maxrregcount=64")),
        toolchain=NVRTC_12,
        arch="sm_80",
        kernel=kernel,
        sources=(("_lib/sum.cu", "bb" * 32), ("_lib/x.cuh", "cc" * 32)),
        input_digest="22" * 32,
    )


def plain() -> Result:
    kernel = sized(make_kernel(), 4096, (4096,), (1024,))
    return result(replace(PLAIN, extra=("-lineinfo", "-maxrregcount=32")), kernel=kernel)


def settled(side: Side) -> object:
    """What is built and executed, without what pins the version and names the profile."""
    profile = replace(side.profile, name="", toolkit="")
    defines = tuple(sorted(side.kernel.defines))
    return replace(side, profile=profile, kernel=replace(side.kernel, defines=defines))


@given(st.data())
def test_no_part_gives_the_baseline_and_all_the_candidate(data: st.DataObject) -> None:
    old, new, found = sides(plain(), everything_else())
    assert len(found) == 12
    chosen = data.draw(st.sets(st.sampled_from(found)))
    parts = frozenset().union(*(c.parts for c in chosen))
    mixed = mix(old, new, parts)
    if not chosen:
        assert settled(mixed) == settled(old)
    if len(chosen) == len(found):
        assert settled(mixed) == settled(new)
    shown = {c.cause for c in chosen}
    assert mixed.toolchain == (NVRTC_12 if Cause.TOOLCHAIN in shown else NVRTC_13)
    assert mixed.profile.toolkit == f"=={mixed.toolchain.version}"
    assert mixed.arch == ("sm_80" if Cause.ARCHITECTURE in shown else "sm_90")
    assert mixed.sources == (new if Cause.SOURCE in shown else old).sources
    assert mixed.profile.fmad == ("-fmad=false" not in {c.name for c in chosen})
