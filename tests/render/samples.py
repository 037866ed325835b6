"""Realistic values for the renderers: the published experiment, a contraction change, churn and faults.

The tree's bits and hash are the published ones (0x4b25426d, 0x8189389fe1bc0a65 over 100 repetitions of
n = 4,194,915). The 73 moved partials and their bits come from a NumPy model of the same tree with
x*x + 0.25f fused and separate.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reprodb.claims import Claim, claim
from reprodb.compare import Side
from reprodb.digest import content_key, run_hash, sha256
from reprodb.domain import (
    Accuracy,
    Buffer,
    Build,
    Case,
    Code,
    CodeOrigin,
    Determinism,
    Device,
    Environment,
    FunctionCounts,
    Input,
    Judgement,
    Kernel,
    Lane,
    Output,
    Pattern,
    Profile,
    Result,
    Role,
    Run,
    Stage,
    Status,
    Toolchain,
)
from reprodb.dossier import Dossier, natural_pairs
from reprodb.dossier import dossier as dossier_of
from reprodb.findings import (
    Alarm,
    Attribution,
    CanaryOutcome,
    Cause,
    Churn,
    Comparison,
    Diff,
    Effect,
    ElementDelta,
    Layer,
    Loss,
    MatrixGroup,
    MatrixRow,
    Moved,
    OutputDelta,
    State,
    Support,
    Verdict,
)
from reprodb.policy import Policy
from reprodb.render.sources import Sources
from reprodb.render.timeline import Moment, moments

TREE_BITS = 0x4B25426D
TREE_HASH = 0x8189389FE1BC0A65
START = datetime(2026, 3, 2, 4, 30, tzinfo=UTC)

# fmt: off
MOVED = (
    8, 32, 33, 58, 66, 67, 80, 90, 113, 133, 157, 158, 183, 191, 192, 205, 215, 238, 258, 282, 283, 308, 316,
    317, 330, 340, 363, 383, 407, 408, 433, 441, 442, 455, 465, 488, 508, 532, 533, 558, 566, 567, 580, 590,
    613, 633, 657, 658, 683, 691, 692, 705, 715, 738, 758, 782, 783, 808, 816, 817, 830, 840, 863, 883, 907,
    908, 933, 941, 942, 955, 965, 988, 1008,
)
# fmt: on
FIRST_MOVED = (
    ElementDelta(8, None, "0x461f8aed", "0x461f8aec", 10210.7314453125, 10210.73046875, 1),
    ElementDelta(32, None, "0x4622c56a", "0x4622c56b", 10417.353515625, 10417.3544921875, 1),
    ElementDelta(33, None, "0x4629a5fe", "0x4629a5fd", 10857.498046875, 10857.4970703125, 1),
    ElementDelta(58, None, "0x46214c7b", "0x46214c7c", 10323.1201171875, 10323.12109375, 1),
    ElementDelta(66, None, "0x462161d7", "0x462161d8", 10328.4599609375, 10328.4609375, 1),
    ElementDelta(67, None, "0x462186a8", "0x462186a7", 10337.6640625, 10337.6630859375, 1),
    ElementDelta(80, None, "0x462a475c", "0x462a475b", 10897.83984375, 10897.8388671875, 1),
    ElementDelta(90, None, "0x461f8962", "0x461f8960", 10210.345703125, 10210.34375, 2),
)

NVRTC13 = Toolchain("nvrtc", "13.5.37", "lib/libnvrtc.so.13", "wheel", ("sm_75", "sm_90"))
NVRTC12 = Toolchain("nvrtc", "12.6.85", "lib/libnvrtc.so.12", "wheel", ("sm_75", "sm_90"))
PROFILES = {
    "default": (Profile("default", "nvrtc", ">=13,<14"), NVRTC13),
    "no-fmad": (Profile("no-fmad", "nvrtc", ">=13,<14", fmad=False), NVRTC13),
    "fast-math": (Profile("fast-math", "nvrtc", ">=13,<14", fast_math=True), NVRTC13),
    "cuda12": (Profile("cuda12", "nvrtc", "12.6.*"), NVRTC12),
    "cuda12-no-fmad": (Profile("cuda12-no-fmad", "nvrtc", "12.6.*", fmad=False), NVRTC12),
}
H200 = Device("NVIDIA H200", "GPU-6a1f0c52-5f3e-4d0b-9b1e-0f4f5f1d2c77", "9.0", 132, 150_109_880_320)

TREE_PTX = """\
.visible .entry sumSquaresPartials(
    .param .u64 p0, .param .u64 p1, .param .u64 p2)
{
    ld.param.u64 %rd1, [p0];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
L1:
    ld.global.nc.f32 %f1, [%rd4];
    MULTIPLY_ADD
    add.s64 %rd4, %rd4, %rd5;
    @%p1 bra L1;
    st.shared.f32 [%r5], %f3;
    bar.sync 0;
    ret;
}
"""
FUSED = TREE_PTX.replace("MULTIPLY_ADD", "fma.rn.f32 %f2, %f1, %f1, 0f3E800000;\n    add.f32 %f3, %f3, %f2;")
SEPARATE = TREE_PTX.replace(
    "MULTIPLY_ADD",
    "mul.rn.f32 %f2, %f1, %f1;\n    add.rn.f32 %f4, %f2, 0f3E800000;\n    add.rn.f32 %f3, %f3, %f4;",
)
FUSED_COUNTS = FunctionCounts(
    "sumSquaresPartials",
    ptx=(("add.f32", 12), ("fma.rn.f32", 4)),
    sass=(("FADD", 12), ("FFMA", 4), ("LDG", 4), ("BAR", 9)),
)
SEPARATE_COUNTS = FunctionCounts(
    "sumSquaresPartials",
    ptx=(("add.rn.f32", 16), ("mul.rn.f32", 4)),
    sass=(("FADD", 16), ("FMUL", 4), ("LDG", 4), ("BAR", 9)),
)


def code_texts(key: str) -> tuple[str | None, str | None]:
    """PTX and SASS of a sample artifact's key."""
    if "no-fmad" in key:
        return SEPARATE, "FMUL R4, R0, R0 ;\nFADD R5, R4, 0.25 ;\nFADD R6, R6, R5 ;\n"
    return FUSED, "FFMA R4, R0, R0, 0.25 ;\nFADD R6, R6, R4 ;\n"


SOURCES = Sources(code_texts=code_texts)


def kernel(name: str, determinism: Determinism = Determinism.RUN_TO_RUN, *, blocks: int = 1024) -> Kernel:
    """A kernel of the published experiment with its one case."""
    tree = determinism.guaranteed
    buffers = (
        Buffer("partials", "float32", (blocks,), Role.WITNESS),
        Buffer("total", "float32", (1,), Role.RESULT),
    )
    case = Case(
        "ramp1000-4194915",
        4_194_915,
        (Input("x", "ramp1000", 4_194_915),),
        buffers if tree else buffers[1:],
        "sum_squares_quarter",
        1e-5,
    )
    stages = (
        Stage("sumSquaresPartials", (blocks, 1, 1), (256, 1, 1), ()),
        Stage("foldPartials", (1, 1, 1), (256, 1, 1), ()),
    )
    return Kernel(
        name,
        "_lib/sum_squares.cu",
        "sum of x*x + 0.25",
        determinism,
        "float32",
        (("BLOCKS", str(blocks)), ("THREADS", "256")),
        ("BLOCKS", "THREADS"),
        stages if tree else stages[:1],
        (case,),
        manifest=f"{name}/kernel.toml",
    )


TREE = kernel("sum_squares_tree")
ATOMIC = kernel("sum_squares_atomic", Determinism.NOT_GUARANTEED)
KAHAN = kernel("sum_squares_kahan_atomic", Determinism.NOT_GUARANTEED)


def build(profile: str, kernel_name: str, *, fused: bool | None = None) -> Build:
    """A finished build; contraction follows the profile unless `fused` says otherwise."""
    settings, toolchain = PROFILES[profile]
    contracted = settings.fmad if fused is None else fused
    flags = ["--gpu-architecture=sm_90", f"--fmad={'true' if settings.fmad else 'false'}"]
    if settings.fast_math:
        flags.append("--use_fast_math")
    return Build(
        f"{'fused' if contracted else 'no-fmad'}-{content_key(profile, kernel_name)[:24]}",
        settings,
        toolchain,
        "sm_90",
        tuple(flags),
        (("BLOCKS", "1024"), ("THREADS", "256")),
        (("_lib/sum_squares.cu", content_key("source", kernel_name)),),
        Status.OK,
        code=Code(
            content_key("ptx", str(contracted)),
            content_key("sass", str(contracted)),
            content_key("constants"),
            (FUSED_COUNTS if contracted else SEPARATE_COUNTS,),
        ),
    )


def _word(bits: int) -> bytes:
    return bits.to_bytes(4, "little")


def output(
    name: str,
    words: tuple[int, ...],
    counts: tuple[int, ...],
    determinism: Determinism,
    role: Role = Role.RESULT,
) -> Output:
    """A one-element float32 output whose patterns showed `counts` times, interleaved."""
    left, sequence = list(counts), []
    while any(left):
        for index, rest in enumerate(left):
            if rest:
                sequence.append(index)
                left[index] -= 1
    data = tuple(_word(w) for w in words)
    patterns = tuple(
        Pattern(sha256(d), c, sequence.index(i), d) for i, (d, c) in enumerate(zip(data, counts, strict=True))
    )
    return Output(
        name,
        role,
        "float32",
        (1,),
        determinism,
        patterns,
        tuple(sequence),
        run_hash(data, sequence),
        first_bits=f"0x{words[0]:08x}",
    )


def partials(contracted: bool, blocks: int = 1024) -> Output:
    """The tree's witness; its data is a stand-in, its identity depends on contraction as the real one's."""
    data = (b"fused   " if contracted else b"separate") * (blocks // 2)
    return Output(
        "partials",
        Role.WITNESS,
        "float32",
        (blocks,),
        Determinism.RUN_TO_RUN,
        (Pattern(sha256(data), 100, 0, data),),
        (0,) * 100,
        run_hash((data,), (0,) * 100),
    )


def tree(profile: str = "default", *, bits: int = TREE_BITS, lane: Lane = Lane.MODELLED) -> Result:
    """The published tree under a profile."""
    contracted = PROFILES[profile][0].fmad
    return Result(
        TREE,
        TREE.cases[0],
        profile,
        "sm_90",
        lane,
        Status.OK,
        100,
        (output("total", (bits,), (100,), Determinism.RUN_TO_RUN), partials(contracted)),
        Judgement(Accuracy.OK, 1.739e-9, 10_830_444.98, ""),
        build(profile, TREE.name),
        CodeOrigin.PTX if lane is Lane.MODELLED else CodeOrigin.CUBIN,
        content_key("ramp1000", "4194915"),
        seconds=0.31,
        notes=("contracted as SASS: 4 FFMA in sumSquaresPartials",) if contracted else (),
    )


ATOMIC_WORDS = (0x4B25426E, 0x4B25426F, 0x4B25426D, 0x4B254270, 0x4B25426C,
                0x4B254271, 0x4B25426B, 0x4B254272, 0x4B254269)  # fmt: skip
ATOMIC_COUNTS = (31, 22, 18, 11, 8, 4, 3, 2, 1)


def atomic(
    profile: str = "default",
    of: Kernel = ATOMIC,
    words: tuple[int, ...] = ATOMIC_WORDS,
    counts: tuple[int, ...] = ATOMIC_COUNTS,
    lane: Lane = Lane.MODELLED,
) -> Result:
    """An arrival-order kernel with nine patterns in 100 repetitions."""
    return Result(
        of,
        of.cases[0],
        profile,
        "sm_90",
        lane,
        Status.OK,
        100,
        (output("total", words, counts, Determinism.NOT_GUARANTEED),),
        Judgement(Accuracy.OK, 2.753e-7, 10_830_444.98, ""),
        build(profile, of.name),
        CodeOrigin.PTX if lane is Lane.MODELLED else CodeOrigin.CUBIN,
        content_key("ramp1000", "4194915"),
        seconds=0.52,
    )


def run(number: int = 1, lane: Lane = Lane.MODELLED, label: str | None = None) -> Run:
    """A finished run; the measured lane has an H200."""
    measured = lane is Lane.MEASURED
    return Run(
        f"01HX{number:06d}",
        "reprodb",
        lane,
        Environment(
            "builder",
            "Debian GNU/Linux 12, Linux 6.1",
            "3.11.2",
            "AMD EPYC 9454P",
            "0.1.0",
            H200 if measured else None,
            "580.159.04" if measured else None,
            "13.0" if measured else None,
            "13.0" if measured else None,
            (("LLVM", "20.1.8"), ("llvmlite", "0.50.0"), ("numpy", "2.3.1")),
        ),
        START + timedelta(days=number),
        label,
        START + timedelta(days=number, seconds=41),
        kind="nightly",
        exit_code=0,
        id=number,
    )


def night(lane: Lane = Lane.MODELLED) -> tuple[Result, ...]:
    """The results of a nightly: three kernels under five profiles."""
    return tuple(
        result
        for profile in PROFILES
        for result in (
            tree(profile, lane=lane),
            atomic(profile, lane=lane),
            atomic(profile, KAHAN, ATOMIC_WORDS[:5], (61, 20, 12, 5, 2), lane),
        )
    )


def past(nights: int = 40) -> tuple[tuple[Run, Result], ...]:
    """The tree's results over nights, newest first: an upgrade that moves the partials, one that moves the
    total, a night without a result, and the first measured ones on a GPU.
    """
    entries = []
    for number in range(1, nights + 1):
        if number < nights // 4:
            result = replace(tree("cuda12"), profile="default")
        elif number < nights // 2:
            result = replace(tree("cuda12-no-fmad"), profile="default")
        else:
            result = tree("default", bits=0x4B25426F)
        if number == nights - 7:
            result = replace(result, status=Status.TIMED_OUT, outputs=(), error="60 s passed")
        entries.append((run(number), result))
        if number > nights - 3:
            entries.append((run(number, Lane.MEASURED), tree("default", lane=Lane.MEASURED)))
    return tuple(reversed(entries))


def claims(result: Result) -> Claim:
    """The claim card of a result of run 2."""
    return claim(run(2, result.lane), result, past(), SASS)


# The head of a disassembly: registers a thread, static shared memory a block.
SASS = """\
	//----- nvinfo : EIATTR_REGCOUNT
	.align		4
.L_0:
        /*0004*/ 	.word	index@(sumSquaresPartials)
        /*0008*/ 	.word	0x00000014
	//----- nvinfo : EIATTR_REGCOUNT
        /*001c*/ 	.word	index@(_Z12foldPartialsPKfPf)
        /*0020*/ 	.word	0x00000010
.nv.shared._Z12foldPartialsPKfPf:
	.zero		2048
"""


def past_of(result: Result) -> tuple[Moment, ...]:
    """The nights of a row."""
    return moments(past())


# All that a page may ask for; a night without the row is among them.
WHOLE = Sources(code_texts=code_texts, past=past_of, claims=claims, nights=(run(41),))


def dossier() -> Dossier:
    """The two upgrades inside one night, both without a moved bit."""
    side = Side(run(2), night())
    pairs = natural_pairs(side.results)
    return dossier_of(side, side, pairs, nowhere, Policy(), now=START + timedelta(days=2))


def nowhere(sha256: str) -> bytes:
    raise LookupError(sha256)


def matrix() -> tuple[MatrixRow, ...]:
    """The profile matrix of `night`: contraction moves the partials and not the total."""
    hash64 = f"0x{TREE_HASH:016x}"
    fused = ("default", "fast-math", "cuda12")
    separate = ("no-fmad", "cuda12-no-fmad")
    rows = [
        MatrixRow(
            "sum_squares_tree",
            "ramp1000-4194915",
            True,
            (
                MatrixGroup(fused, "0x4b25426d", hash64, "9f2c11d07a41", 1, True),
                MatrixGroup(separate, "0x4b25426d", hash64, "41b7e3350c9d", 1, False),
            ),
            (fused, separate),
            (("default", "fast-math"),),
        )
    ]
    for name, distinct in (("sum_squares_atomic", 9), ("sum_squares_kahan_atomic", 5)):
        groups = tuple(
            MatrixGroup((p,), "0x4b25426e", f"0x{0x51F0AA27C0DE0000 + i:016x}", "", distinct, p == "default")
            for i, p in enumerate(PROFILES)
        )
        rows.append(MatrixRow(name, "ramp1000-4194915", False, groups, (fused, separate)))
    return tuple(sorted(rows, key=lambda r: r.kernel))


def layers(changed: dict[str, str], effects: dict[str, str]) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    """Layer tables in which the named causes and effects differ, with a detail each; `?` is unknown."""

    def state(name: str, told: dict[str, str]) -> Layer:
        detail = told.get(name, "")
        kind = State.SAME if name not in told else State.UNKNOWN if detail == "?" else State.DIFFERS
        return Layer(name, kind, "" if detail == "?" else detail)

    return tuple(state(c.value, changed) for c in Cause), tuple(state(e.value, effects) for e in Effect)


def same(baseline: Result, candidate: Result) -> Comparison:
    """Nothing moved."""
    causes, effects = layers({}, {Effect.ORDER.value: "?"})
    told = Attribution(causes, effects, None, (), sentence="Nothing moved.")
    deltas = tuple(
        OutputDelta(o.name, o.role, o.dtype, o.shape, 0, o.elements, max_ulp=0) for o in candidate.outputs
    )
    return Comparison(
        candidate.kernel.name,
        candidate.case.name,
        baseline,
        candidate,
        Verdict.SAME,
        candidate.accuracy.verdict,
        told,
        deltas,
        note="0 of 100 repetitions differ; no bound is claimed on the modelled lane",
        reference_run=1,
        reference_kind="accepted",
    )


def churn(
    profile: str = "default", relation: str = "overlapping", of: Kernel = ATOMIC, lane: Lane = Lane.MODELLED
) -> Comparison:
    """An arrival-order kernel: nine patterns against nine, seven of them common."""
    after_words = (*ATOMIC_WORDS[:7], 0x4B254273, 0x4B254268)
    after_counts = (28, 24, 17, 12, 9, 5, 3, 1, 1)
    before, after = atomic(profile, of, lane=lane), atomic(profile, of, after_words, after_counts, lane)

    def support(words: tuple[int, ...], counts: tuple[int, ...]) -> Support:
        low = 0x4B254268
        return Support(
            len(words), 100, tuple((f"0x{w:08x}", n, w - low) for w, n in zip(words, counts, strict=True))
        )

    causes, effects = layers({}, {})
    return Comparison(
        of.name,
        "ramp1000-4194915",
        before,
        after,
        Verdict.CHURN,
        Accuracy.OK,
        Attribution(
            causes, effects, None, (), sentence="Arrival order varies; nothing in the pinned tuple moved."
        ),
        (),
        Churn(
            relation,
            support(ATOMIC_WORDS, ATOMIC_COUNTS),
            support(after_words, after_counts),
            7,
            11,
            "0x4b25426e is still the most frequent: 31 of 100, now 28 of 100",
        ),
        reference_run=1,
        reference_kind="accepted",
    )


def latent() -> Comparison:
    """-fmad=false on the tree: 73 of 1,024 partials move, the total does not."""
    before, after = tree("default"), tree("no-fmad")
    causes, effects = layers(
        {Cause.FLAGS.value: "-fmad=true → -fmad=false"},
        {
            Effect.ORDER.value: "?",
            Effect.PTX.value: "sumSquaresPartials",
            Effect.SASS.value: "sumSquaresPartials",
            Effect.WITNESS.value: "73 of 1,024 in partials",
        },
    )
    return Comparison(
        "sum_squares_tree",
        "ramp1000-4194915",
        before,
        after,
        Verdict.LATENT,
        Accuracy.OK,
        Attribution(
            causes,
            effects,
            Cause.FLAGS.value,
            (Moved.BUILD,),
            sentence="The build moved: -fmad=true → -fmad=false; 73 of 1,024 partials differ.",
        ),
        (
            OutputDelta("total", Role.RESULT, "float32", (1,), 0, 1, max_ulp=0, max_rel=0.0, max_abs=0.0),
            OutputDelta(
                "partials",
                Role.WITNESS,
                "float32",
                (1024,),
                73,
                1024,
                8,
                2,
                1.9128e-7,
                1.953125e-3,
                None,
                MOVED,
                FIRST_MOVED,
            ),
        ),
        reference_run=1,
        reference_kind="named",
        gate_reason="latent is reported, not gated, by this policy",
    )


def changed() -> Comparison:
    """A toolkit upgrade that moves the result: three causes differ, the toolchain is the first."""
    before, after = tree("cuda12"), tree("default", bits=0x4B25426F)
    if after.build is None or after.build.code is None:
        raise ValueError("the sample tree was built")
    code = replace(after.build.code, ptx=content_key("ptx", "13"), sass=content_key("sass", "13"))
    after = replace(after, build=replace(after.build, code=code))
    causes, effects = layers(
        {
            Cause.TOOLCHAIN.value: "nvrtc 12.6.85 → nvrtc 13.5.37",
            Cause.ENVIRONMENT.value: "driver 570.86 → 580.159",
        },
        {
            Effect.ORDER.value: "?",
            Effect.PTX.value: "sumSquaresPartials",
            Effect.SASS.value: "sumSquaresPartials",
            Effect.WITNESS.value: "73 of 1,024 in partials",
            Effect.RESULT.value: "1 of 1 in total",
        },
    )
    return Comparison(
        "sum_squares_tree",
        "ramp1000-4194915",
        before,
        after,
        Verdict.CHANGED,
        Accuracy.OK,
        Attribution(
            causes,
            effects,
            Cause.TOOLCHAIN.value,
            (Moved.BUILD, Moved.ENVIRONMENT),
            notes=("profile redefined: nvrtc 12.6.85 → nvrtc 13.5.37",),
            sentence="The build moved: nvrtc 12.6.85 → nvrtc 13.5.37; the total is 2 ULP higher.",
        ),
        (
            OutputDelta(
                "total",
                Role.RESULT,
                "float32",
                (1,),
                1,
                1,
                0,
                2,
                1.85e-7,
                2.0,
                None,
                (0,),
                (ElementDelta(0, None, "0x4b25426d", "0x4b25426f", 10_830_445.0, 10_830_447.0, 2),),
            ),
            replace(latent().outputs[1]),
        ),
        reference_run=1,
        reference_kind="blessed",
        gated=True,
        gate_reason="changed gates: the kernel guarantees run_to_run",
    )


def lost() -> Comparison:
    """A tree that lost its determinism: three of 100 repetitions differ, all in the first third."""
    before = tree("default")
    after = replace(
        tree("default"),
        outputs=(
            output("total", (TREE_BITS, 0x4B25426C, 0x4B254271), (97, 2, 1), Determinism.RUN_TO_RUN),
            partials(True),
        ),
    )
    causes, effects = layers(
        {}, {Effect.ORDER.value: "?", Effect.RESULT.value: "3 of 100 repetitions", Effect.WITNESS.value: "?"}
    )
    return Comparison(
        "sum_squares_tree",
        "ramp1000-4194915",
        before,
        after,
        Verdict.DETERMINISM_LOST,
        Accuracy.OK,
        Attribution(
            causes,
            effects,
            None,
            (),
            (Alarm.CODE_SAME_BITS_CHANGED,),
            sentence="The code is the same and three repetitions differ.",
        ),
        (),
        loss=Loss(
            "total",
            3,
            3,
            100,
            "first third",
            (
                "compute-sanitizer --tool racecheck reprodb run --kernel sum_squares_tree",
                "compute-sanitizer --tool initcheck reprodb run --kernel sum_squares_tree",
            ),
        ),
        reference_run=1,
        reference_kind="accepted",
        gated=True,
        gate_reason="a run_to_run kernel showed 3 patterns",
    )


def failed() -> Comparison:
    """A candidate that did not build; the compiler's log is the error."""
    before = tree("fast-math")
    log = (
        'sum_squares.cu(41): error: identifier "partialz" is undefined\n1 error detected in the compilation.'
    )
    after = replace(
        before, status=Status.BUILD_FAILED, outputs=(), error=log, accuracy=Judgement(Accuracy.UNKNOWN)
    )
    return Comparison(
        "sum_squares_tree",
        "ramp1000-4194915",
        before,
        after,
        Verdict.NO_RESULT,
        Accuracy.UNKNOWN,
        reference_run=1,
        reference_kind="accepted",
        gated=True,
        gate_reason="the reference had a result",
    )


CANARIES = (
    CanaryOutcome("integer-sum", True, "The integer sum has its exact bits."),
    CanaryOutcome("contraction", True, "Contraction on and off differ, as they must."),
    CanaryOutcome("arrival-order", False, "The atomic canary did not churn in 100 repetitions.", fatal=False),
)


def quiet() -> Diff:
    """A clean night."""
    rows = [same(r, r) for r in night() if r.kernel.determinism.guaranteed]
    rows += [churn(p, of=k) for p in PROFILES for k in (ATOMIC, KAHAN)]
    return Diff(
        None,
        run(2),
        tuple(rows),
        matrix(),
        CANARIES,
        0,
        "Nothing moved: 5 fixed-order results have the same bits as their references.",
    )


def contraction() -> Diff:
    """`-fmad=false` against the default build of one run."""
    return Diff(
        run(1),
        run(1),
        (latent(), churn("no-fmad"), churn("no-fmad", of=KAHAN)),
        matrix(),
        CANARIES,
        0,
        "No result moved; 1 kernel has witness bits that did.",
    )


def eventful() -> Diff:
    """A night with every kind of trouble."""
    row = same(tree("cuda12"), tree("cuda12"))
    bare = replace(row, attribution=None, outputs=(), note="")
    gone = replace(
        bare,
        candidate=None,
        verdict=Verdict.MISSING,
        gated=True,
        gate_reason="the candidate has no such row",
    )
    fresh = replace(bare, baseline=None, verdict=Verdict.NO_BASELINE, reference_run=None, reference_kind=None)
    other = replace(
        bare,
        verdict=Verdict.NOT_COMPARABLE,
        note="the other side was measured, this one modelled",
        may_gate=False,
    )
    return Diff(
        run(1, Lane.MEASURED, "before the upgrade"),
        run(2, Lane.MEASURED, "after the upgrade"),
        (churn(lane=Lane.MEASURED), latent(), fresh, failed(), changed(), other, lost(), gone,
         same(tree("default"), tree("default"))),
        matrix(),
        CANARIES,
        3,
        "Determinism lost in 1 kernel; bits changed in 1, 1 row is missing and 1 has no result.",
        ("sum_squares_tree under default showed 3 patterns", "sum_squares_tree under cuda12 changed"),
        ("Profile nvcc12 was skipped: no nvcc 12 was found.",),
    )  # fmt: skip


HOSTILE = "<script>alert('x')</script>\"'&|`*_[a](b)\u202egnp.exe\x1b[31m\x07\u200b::error::%0A"


def hostile() -> Diff:
    """Names, logs and notes that try to break out of every format, and a 10,000-character line."""
    bad = replace(TREE, name=HOSTILE, operation=HOSTILE, source=HOSTILE, order=HOSTILE)
    base = changed()
    told = base.attribution
    if base.candidate is None or told is None:
        raise ValueError("the sample of a change has two sides and an attribution")
    side = replace(
        base.candidate, kernel=bad, profile=HOSTILE, error=HOSTILE + "\n" + "A" * 10_000, notes=(HOSTILE,)
    )
    row = replace(
        base,
        kernel=HOSTILE,
        case=HOSTILE,
        candidate=side,
        note=HOSTILE + "B" * 10_000,
        gate_reason=HOSTILE,
        attribution=replace(
            told,
            sentence=HOSTILE,
            notes=(HOSTILE,),
            causes=tuple(replace(layer, detail=HOSTILE) for layer in told.causes),
        ),
    )
    broken = replace(
        row, verdict=Verdict.NO_RESULT, candidate=replace(side, status=Status.CRASHED, outputs=())
    )
    both = (HOSTILE, "b")
    group = MatrixGroup(both, HOSTILE, HOSTILE, HOSTILE, 1, True)
    rows = (MatrixRow(HOSTILE, HOSTILE, True, (group,), (both,), (both,), ((HOSTILE, HOSTILE),)),)
    return Diff(
        run(1),
        replace(run(2), label=HOSTILE, suite=HOSTILE),
        (row, broken),
        rows,
        (CanaryOutcome(HOSTILE, False, HOSTILE),),
        1,
        HOSTILE,
        (HOSTILE,),
        (HOSTILE,),
    )
