"""The engine whole: known answers, orders, memory rules, barriers, errors with names, and the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reprodb.domain import Arg, ArgKind, Buffer, Role
from reprodb.errors import ExecutionError, UnsupportedError
from reprodb.executors.model.engine import Limits, ModelExecutor, run
from reprodb.executors.model.machine import Host
from tests.model.kernels import HEAD, TREE, compiled, outputs, ramp, stage

TREE_STAGES = [
    stage("partialSums", 1024, 256, "<x", "n", "partials"),
    stage("fold", 1, 256, "partials", "total"),
]
TREE_BUFFERS = {"partials": ("uint32", 1024), "total": ("uint32", 1)}


# --- Known answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("major", [12, 13])
def test_the_published_tree(executor: ModelExecutor, major: int) -> None:
    """0x4b25426d was published for a T4 and measured on an H200; 73 partials move without contraction."""
    partials = []
    for fmad in (True, False):
        ptx = compiled(TREE, "partialSums", major=major, fmad=fmad)
        found = outputs(executor, ptx, TREE_STAGES, TREE_BUFFERS, {"x": ramp(4194915)}, 4194915, 3)
        assert {hex(int(t[0])) for t in found["total"]} == {"0x4b25426d"}
        assert all((p == found["partials"][0]).all() for p in found["partials"])
        partials.append(found["partials"][0])
    assert int((partials[0] != partials[1]).sum()) == 73


def test_the_tree_at_two_to_the_26(executor: ModelExecutor) -> None:
    n = 1 << 26
    ptx = compiled(TREE, "partialSums")
    found = outputs(executor, ptx, TREE_STAGES, TREE_BUFFERS, {"x": ramp(n)}, n)
    assert hex(int(found["total"][0][0])) == "0x4d253cb6"


@pytest.mark.parametrize("host", [Host("x86-64-v2", "", False), Host("x86-64-v3", "", True)])
def test_other_cpus_give_the_same_bits(host: Host) -> None:
    if not Host.this().fma and host.fma:
        pytest.skip("this CPU has no AVX2 to try it on")
    ptx = compiled(TREE, "partialSums")
    found = outputs(ModelExecutor(host=host), ptx, TREE_STAGES, TREE_BUFFERS, {"x": ramp(70000)}, 70000)
    here = outputs(ModelExecutor(), ptx, TREE_STAGES, TREE_BUFFERS, {"x": ramp(70000)}, 70000)
    assert (found["partials"][0] == here["partials"][0]).all()


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 255, 257])
def test_small_sizes(executor: ModelExecutor, n: int) -> None:
    """One block's worth of squares plus a quarter, exact in float32 for integers."""
    x = np.arange(1, n + 1, dtype=np.float32) % 7
    ptx = compiled(TREE, "partialSums")
    found = outputs(executor, ptx, TREE_STAGES, TREE_BUFFERS, {"x": x}, n)
    assert found["total"][0].view(np.float32)[0] == np.float32((x * x + 0.25).sum())


# --- Orders ------------------------------------------------------------------------------------

ATOMIC = """
extern "C" __global__ void sums(const float* x, unsigned long long n, float* total, float* old)
{
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(total, x[i]);
        old[i] = atomicAdd(total + 1, x[i]);
    }
}
"""


def test_arrival_orders_differ_by_repetition_and_seed_and_come_again(executor: ModelExecutor) -> None:
    n = 4000
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    ptx = compiled(ATOMIC, "sums")
    launch = [stage("sums", 20, 256, "<x", "n", "total", "old")]
    buffers = {"total": ("uint32", 2), "old": ("uint32", n)}

    def totals(seed: int) -> list[bytes]:
        found = outputs(executor, ptx, launch, buffers, {"x": x}, n, 12, seed, init="zero")
        return [t.tobytes() for t in found["total"]]

    first = totals(5)
    assert first == totals(5)
    assert first != totals(6)
    assert len(set(first)) > 3
    # The quick additions, whose old values nobody wants, are the bits of the others.
    assert all(t[:4] == t[4:] for t in first)


MISSING_BARRIER = """
extern "C" __global__ void racy(float* out)
{
    __shared__ float s[128];
    s[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = s[(threadIdx.x + 32) % 128];
}
"""


def test_a_missing_barrier_shows(executor: ModelExecutor) -> None:
    """Shared memory begins as poison, so that a warp which reads too early reads 0xa5a5a5a5."""
    ptx = compiled(MISSING_BARRIER, "racy")
    found = outputs(executor, ptx, [stage("racy", 1, 128, "out")], {"out": ("uint32", 128)}, repetitions=8)
    assert len({o.tobytes() for o in found["out"]}) > 1
    assert any(0xA5A5A5A5 in o for o in found["out"])


SPIN = """
extern "C" __global__ void meet(unsigned* arrived, unsigned* out)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (atomicAdd(arrived, 0u) < gridDim.x) { }
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = arrived[0] + blockIdx.x;
}
extern "C" __global__ void turns(unsigned* lock, unsigned* out)
{
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0u, 1u) == 0u) {
            out[0] += threadIdx.x;
            __threadfence();
            atomicExch(lock, 0u);
            done = true;
        }
    }
}
extern "C" __global__ void never(unsigned* lock) { while (atomicAdd(lock, 0u) == 0u) { } }
"""


def test_blocks_that_wait_for_each_other_get_their_turn(executor: ModelExecutor) -> None:
    ptx = compiled(SPIN, "meet")
    found = outputs(
        executor,
        ptx,
        [stage("meet", 40, 64, "arrived", "out")],
        {"arrived": ("uint32", 1), "out": ("uint32", 2560)},
        repetitions=2,
        init="zero",
        limits=Limits(quantum=64, stalls=2),
    )
    for out in found["out"]:
        assert (out == 40 + np.arange(2560) // 64).all()


def test_threads_of_a_warp_that_take_a_lock_in_turns(executor: ModelExecutor) -> None:
    ptx = compiled(SPIN, "turns")
    buffers = {"lock": ("uint32", 1), "out": ("uint32", 1)}
    found = outputs(executor, ptx, [stage("turns", 2, 64, "lock", "out")], buffers, init="zero")
    assert found["out"][0][0] == 2 * sum(range(64))


def test_spinning_without_end_is_given_up(executor: ModelExecutor) -> None:
    ptx = compiled(SPIN, "never")
    limits = Limits(quantum=64, stalls=2, steps=100_000)
    with pytest.raises(ExecutionError, match=r"test: stage never, block \(\d, 0, 0\): no end after 100,000"):
        outputs(
            executor,
            ptx,
            [stage("never", 3, 32, "lock")],
            {"lock": ("uint32", 1)},
            init="zero",
            limits=limits,
        )


# --- What memory starts as ---------------------------------------------------------------------

VARIABLES = """
__device__ int counter = 7;
__device__ int* pointer = &counter;
__constant__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
extern "C" __global__ void touch(float* out)
{
    if (threadIdx.x == 0) *pointer += 1;
    __syncthreads();
    out[threadIdx.x] = counter + table[threadIdx.x & 3];
}
"""


def test_variables_start_anew_each_repetition_and_last_from_stage_to_stage(executor: ModelExecutor) -> None:
    ptx = compiled(VARIABLES, "touch")
    twice = [stage("touch", 1, 4, "first"), stage("touch", 1, 4, "second")]
    buffers = {"first": ("float32", 4), "second": ("float32", 4)}
    found = outputs(executor, ptx, twice, buffers, repetitions=3)
    for first, second in zip(found["first"], found["second"], strict=True):
        assert first.tolist() == [9.0, 10.0, 11.0, 12.0]
        assert second.tolist() == [10.0, 11.0, 12.0, 13.0]


def test_unset_buffers_are_poisoned_in_every_repetition(executor: ModelExecutor) -> None:
    ptx = HEAD + (
        ".visible .entry one(.param .u64 o) { .reg .b64 %d<2>; .reg .b32 %r<2>;\n"
        "ld.param.u64 %d0, [o]; ld.global.u32 %r0, [%d0]; add.u32 %r0, %r0, 1;\n"
        "st.global.u32 [%d0], %r0; ret; }"
    )
    found = outputs(executor, ptx, [stage("one", 1, 1, "o")], {"o": ("uint32", 2)}, repetitions=2)
    assert [o.tolist() for o in found["o"]] == [[0xA5A5A5A6, 0xA5A5A5A5]] * 2


def test_sizes_in_32_bits_must_fit(executor: ModelExecutor) -> None:
    ptx = HEAD + (
        ".visible .entry size(.param .u32 n, .param .u64 o) { .reg .b64 %d<2>; .reg .b32 %r<2>;\n"
        "ld.param.u32 %r0, [n]; ld.param.u64 %d0, [o]; st.global.u32 [%d0], %r0; ret; }"
    )
    launch = [stage("size", 1, 1, "n", "o")]
    found = outputs(executor, ptx, launch, {"o": ("uint32", 1)}, n=0xFFFFFFFF)
    assert found["o"][0][0] == 0xFFFFFFFF
    with pytest.raises(ExecutionError, match="size 4294967296 does not fit the 4 bytes"):
        outputs(executor, ptx, launch, {"o": ("uint32", 1)}, n=1 << 32)


def test_arguments_must_match_the_parameters(executor: ModelExecutor) -> None:
    ptx = compiled(VARIABLES, "touch")
    with pytest.raises(ExecutionError, match="passes 2 arguments, its entry takes 1"):
        outputs(executor, ptx, [stage("touch", 1, 4, "o", "n")], {"o": ("float32", 4)})
    scalar = Arg(ArgKind.SCALAR, "s", "int32", bytes(4))
    with pytest.raises(ExecutionError, match="passes 4 bytes for s, its parameter has 8"):
        outputs(executor, ptx, [stage("touch", 1, 4, scalar)], {"o": ("float32", 4)})
    with pytest.raises(ExecutionError, match="'x', which the case does not have"):
        outputs(executor, ptx, [stage("touch", 1, 4, "<x")], {"o": ("float32", 4)})
    with pytest.raises(ExecutionError, match="entry 'tuch' is not in the PTX"):
        outputs(executor, ptx, [stage("tuch", 1, 4, "o")], {"o": ("float32", 4)})


# --- Bounds, alignment, launch limits ----------------------------------------------------------


def access(instruction: str) -> str:
    """A kernel of 40 threads, each with its number in %r0 and pointers in %d0 (buffer) and %d1 (input)."""
    return HEAD + (
        ".visible .entry touch(.param .u64 o, .param .u64 x) { .reg .b64 %d<6>; .reg .b32 %r<6>;\n"
        ".shared .align 4 .b8 tile[160]; .local .align 4 .b8 own[16]; .reg .pred %p<2>; .reg .f32 %f<4>;\n"
        "ld.param.u64 %d0, [o]; ld.param.u64 %d1, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4;\n"
        "add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2; mad.lo.u32 %r2, %r0, 4, tile;\n"
        f"{instruction}\nret; }}"
    )


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("st.global.u32 [%d3+4], %r0;",
         r"thread \(39, 0, 0\): st.global.u32 at PTX line 8 writes 4 bytes at 0x[0-9a-f]+, 160 bytes into o, "
         "which has 160 bytes"),
        ("ld.global.u32 %r3, [%d3+-4];", r"thread \(0, 0, 0\): .* reads 4 bytes at .*, 4 bytes before o"),
        ("ld.global.u32 %r3, [%d3+2];", r"thread \((0|32), 0, 0\): .* which is no multiple of 4"),
        ("st.global.u32 [%d4], %r0;", ".*into x, which kernels may only read\n.*copy:NAME"),
        ("ld.shared.u32 %r3, [%r2+4];", r"thread \(39, 0, 0\): .* of shared memory, which has 160 bytes"),
        ("ld.shared.u32 %r3, [%r2+1];", ".*no multiple of 4"),
        ("st.local.u32 [own+16], %r0;", ".*of .local memory, beyond its end"),
        ("mov.u64 %d5, 0; ld.u32 %r3, [%d5];", ".*at 0x0, which is in no buffer"),
        ("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d3];", r"thread \((1|33), 0, 0\): .* no multiple of 16"),
        ("atom.global.add.u32 %r3, [%d3+8], 1;", r"thread \(38, 0, 0\): .*160 bytes into o"),
        ("setp.eq.u32 %p0, %r0, 33; @%p0 trap;", r"thread \(33, 0, 0\): trap at PTX line 8"),
        ("sub.u32 %r3, %r0, 5; div.u32 %r3, 9, %r3;", r"thread \(5, 0, 0\): div.u32 .* divides by zero"),
    ],
)  # fmt: skip
def test_errors_name_thread_line_address_and_buffer(
    executor: ModelExecutor, instruction: str, message: str
) -> None:
    x = np.zeros(40, np.uint32)
    with pytest.raises(ExecutionError, match=r"(?s)test: stage touch, block \(0, 0, 0\), " + message):
        outputs(
            executor, access(instruction), [stage("touch", 1, 40, "o", "<x")], {"o": ("uint32", 40)}, {"x": x}
        )


def test_the_last_element_may_be_touched(executor: ModelExecutor) -> None:
    code = access("st.shared.u32 [%r2], %r0; ld.shared.u32 %r3, [%r2]; st.global.u32 [%d3], %r3;")
    x = np.zeros(40, np.uint32)
    found = outputs(executor, code, [stage("touch", 1, 40, "o", "<x")], {"o": ("uint32", 40)}, {"x": x})
    assert (found["o"][0] == np.arange(40)).all()


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        (1, 1025, 0, "blocks of 1025 threads"),
        (1, (1, 1, 65), 0, "65 threads"),
        (0, 32, 0, "at least 1 in every dimension"),
        (1 << 31, 32, 0, r"below 2\^31"),
        (1, 32, 300_000, "bytes of shared memory"),
    ],
)
def test_launch_limits(
    executor: ModelExecutor, grid: int, block: int | tuple[int, int, int], shared: int, message: str
) -> None:
    ptx = compiled(VARIABLES, "touch")
    with pytest.raises(ExecutionError, match=message):
        outputs(executor, ptx, [stage("touch", grid, block, "o", shared=shared)], {"o": ("float32", 4)})


# --- Barriers ----------------------------------------------------------------------------------


def barrier(body: str) -> str:
    return HEAD + (
        ".visible .entry wait(.param .u64 o) { .reg .b64 %d<4>; .reg .b32 %r<6>; .reg .pred %p<4>;\n"
        "ld.param.u64 %d0, [o]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;\n"
        f"setp.lt.u32 %p0, %r0, 32; setp.lt.u32 %p1, %r0, 16;\n{body}\nret; }}"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("@%p0 bar.sync 1, 128;", "every warp waits at a barrier that cannot fill"),
        ("bar.sync 0, 40;", "counts that are multiples of 32"),
        ("bar.sync 16;", "barriers 0 to 15"),
        ("@%p0 bar.sync 1, 64; @!%p0 bar.sync 1, 96;", "one count for all that meet"),
        ("@%p1 bra L; bar.sync 1; bra M; L: bar.sync 2; M:", "one barrier at a time"),
        (
            "@%p1 bra L; bar.sync 0; bra M; L: bar.warp.sync -1; M:",
            "waits for lanes of its warp that never come",
        ),
    ],
)
def test_misused_barriers(executor: ModelExecutor, body: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=r"(?s)test: stage wait, block \(0, 0, 0\).*" + message):
        outputs(executor, barrier(body), [stage("wait", 1, 64, "o")], {"o": ("uint32", 64)})


def test_warps_that_have_returned_are_not_waited_for(executor: ModelExecutor) -> None:
    code = barrier("@%p0 exit; bar.sync 0; st.global.u32 [%d1], %r0;")
    found = outputs(executor, code, [stage("wait", 1, 64, "o")], {"o": ("uint32", 64)}, init="zero")
    assert found["o"][0].tolist() == [0] * 32 + list(range(32, 64))


@pytest.mark.parametrize(
    ("operation", "wanted"), [("popc.u32 %r1", 16), ("and.pred %p2", 0), ("or.pred %p2", 1)]
)
def test_barrier_reductions(executor: ModelExecutor, operation: str, wanted: int) -> None:
    code = barrier(
        f"bar.red.{operation}, 3, %p1; "
        + ("selp.u32 %r1, 1, 0, %p2; " if "pred" in operation else "")
        + "st.global.u32 [%d1], %r1;"
    )
    found = outputs(executor, code, [stage("wait", 1, 96, "o")], {"o": ("uint32", 96)})
    assert (found["o"][0] == wanted).all()


def test_a_named_barrier_hands_over(executor: ModelExecutor) -> None:
    """One warp arrives and goes on, the other waits for what the first has written."""
    code = barrier(
        "@!%p0 bra L; st.global.u32 [%d1], 7; membar.cta; bar.arrive 4, 64; bra M;\n"
        "L: bar.sync 4, 64; sub.u32 %r1, %r0, 32; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d0, %d2;\n"
        "ld.global.u32 %r2, [%d2]; st.global.u32 [%d1], %r2; M:"
    )
    found = outputs(executor, code, [stage("wait", 1, 64, "o")], {"o": ("uint32", 64)}, repetitions=6)
    assert all((o == 7).all() for o in found["o"])


def test_warps_part_after_they_have_kept_step(executor: ModelExecutor) -> None:
    """Rounds at the block's barrier, then half return, the rest meet at another one, then at the first."""
    code = barrier(
        "add.u32 %r1, %r0, 32; and.b32 %r1, %r1, 127; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d0, %d2;\n"
        "st.global.u32 [%d1], %r0; bar.sync 0;\n"
        "ld.global.u32 %r2, [%d2]; bar.sync 0; st.global.u32 [%d1], %r2; bar.sync 0;\n"
        "setp.lt.u32 %p2, %r0, 64; @%p2 exit;\n"
        "add.u32 %r2, %r2, 1000; st.global.u32 [%d1], %r2; bar.sync 1, 64;\n"
        "xor.b32 %r1, %r0, 32; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d0, %d2;\n"
        "ld.global.u32 %r2, [%d2]; bar.sync 0; add.u32 %r2, %r2, 1000; st.global.u32 [%d1], %r2;"
    )
    found = outputs(executor, code, [stage("wait", 1, 128, "o")], {"o": ("uint32", 128)}, repetitions=20)
    neighbours = [(t + 32) % 128 for t in range(128)]
    wanted = neighbours[:64] + [neighbours[t ^ 32] + 2000 for t in range(64, 128)]
    assert all(o.tolist() == wanted for o in found["o"])


# --- What is refused, and the cache ------------------------------------------------------------


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("ex2.approx.f32 %f0, %f1;", "ex2.approx.f32 at PTX line 8, whose bits PTX does not define"),
        ("div.full.f32 %f0, %f1, %f2;", "div.full.f32 at PTX line 8, whose bits PTX does not define"),
        ("mov.u32 %r3, %clock;", "reads %clock, whose value PTX does not define"),
        ("mov.u32 %r3, %smid;", "reads %smid"),
        ("tanh.approx.f32 %f0, %f1;", "tanh.approx.f32"),
        (
            "mbarrier.init.shared.b64 [tile], 1;",
            "mbarrier.init.shared.b64 at PTX line 8, which the model does not",
        ),
    ],
)
def test_what_ptx_does_not_define_is_refused_by_name_and_line(
    executor: ModelExecutor, instruction: str, message: str
) -> None:
    with pytest.raises(UnsupportedError, match="touch: .*" + message):
        outputs(executor, access(instruction), [stage("touch", 1, 40, "o", "o")], {"o": ("uint32", 40)})


def test_compiled_stages_are_kept_and_damage_is_noticed(tmp_path: Path) -> None:
    ptx = compiled(TREE, "partialSums")
    launch = [stage("partialSums", 4, 256, "<x", "n", "p")]
    x = ramp(5000)

    def once() -> bytes:
        found = outputs(ModelExecutor(tmp_path), ptx, launch, {"p": ("uint32", 4)}, {"x": x}, 5000)
        return found["p"][0].tobytes()

    first = once()
    files = sorted(tmp_path.rglob("*.stage"))
    assert len(files) == 2  # the stage, and the code that all stages share
    assert once() == first
    for file in files:
        file.write_bytes(file.read_bytes()[:-100])
    assert once() == first
    assert not list(tmp_path.rglob("*.part"))


def test_a_cache_that_cannot_be_written_costs_time_alone(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    ptx = compiled(VARIABLES, "touch")
    found = outputs(ModelExecutor(blocked / "cache"), ptx, [stage("touch", 1, 4, "o")], {"o": ("float32", 4)})
    assert found["o"][0][0] == 9.0


def test_a_library_that_left_flushing_on_changes_nothing(executor: ModelExecutor) -> None:
    """The floating-point environment is the engine's own while it runs."""
    code = """
import ctypes, sys
import numpy as np
from reprodb.executors.model.engine import ModelExecutor
from tests.model.kernels import HEAD, outputs, stage
import llvmlite.binding as llvm
ptx = HEAD + (".visible .entry half(.param .u64 o, .param .u64 x) { .reg .b64 %d<2>; .reg .f32 %f<2>;"
  "ld.param.u64 %d0, [o]; ld.param.u64 %d1, [x]; ld.global.f32 %f0, [%d1]; mul.rn.f32 %f0, %f0, 0f3F000000;"
  "st.global.f32 [%d0], %f0; ret; }")
ir = '''define void @flush() { %p = alloca i32
store i32 40896, ptr %p
call void @llvm.x86.sse.ldmxcsr(ptr %p)
ret void }
declare void @llvm.x86.sse.ldmxcsr(ptr)'''
executor = ModelExecutor()
executor._compiler._shared_code()
tracker = llvm.JITLibraryBuilder().add_ir(ir).export_symbol("flush").link(executor._compiler._jit, "flush")
ctypes.CFUNCTYPE(None)(tracker["flush"])()
assert np.float32(1e-45) * np.float32(1) == 0
found = outputs(executor, ptx, [stage("half", 1, 1, "o", "<x")], {"o": ("uint32", 1)},
                {"x": np.array([0x00800000], np.uint32)})
print(hex(found["o"][0][0]))
assert np.float32(1e-45) * np.float32(1) == 0
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0x400000", done.stderr


def test_a_shuffle_from_nobody_gives_zero_and_a_note(executor: ModelExecutor) -> None:
    """An H200 gives 0 too; PTX leaves it undefined, so the result says so."""
    ptx = compiled(
        'extern "C" __global__ void part(unsigned* o) '
        "{ o[threadIdx.x] = __shfl_down_sync(0xffffffffu, 100 + threadIdx.x, 16); }",
        "part",
    )
    run_of = executor.program("test", ptx, [stage("part", 1, 20, "o")])
    outcome = run(run_of, [Buffer("o", "uint32", (20,), Role.RESULT)], {}, 0, 1, 0)
    found = np.frombuffer(outcome.raws["o"][0], np.uint32)
    assert found.tolist() == [116, 117, 118, 119] + [0] * 12 + [116, 117, 118, 119]
    assert "read a lane that does not take part" in outcome.notes[0]
