"""Floats that meet as threads arrive, found in what NVRTC makes of every way to write them."""

from __future__ import annotations

import pytest

from reprodb.atomics import FloatAtomic, Meeting, float_atomics
from reprodb.domain import BuildRequest, Profile, SourceFile
from reprodb.toolchains.pool import compile_all
from tests.toolchains_here import nvrtc13

KERNEL = 'extern "C" __global__ void NAME(const float* x, PARAMETER) { BODY }'
SWAP = "WORD old = *w, seen; do { seen = old; old = atomicCAS(w, seen, NEXT); } while (old != seen);"
HELPERS = """
__device__ int lockWord;
__device__ unsigned int tickets, serving, turn, count;
__device__ __noinline__ void take(int* lock) { while (atomicCAS(lock, 0, 1) != 0) {} __threadfence(); }
__device__ __noinline__ void give(int* lock) { __threadfence(); atomicExch(lock, 0); }
__device__ __noinline__ float mixed(float a, float b) { return a * 0.5f + b; }
__device__ unsigned short halfSum(unsigned short a, unsigned short b)
{
    asm("add.f16 %0, %0, %1;" : "+h"(a) : "h"(b));
    return a;
}
__device__ unsigned short bfloatSum(unsigned short a, unsigned short b)
{
    asm("add.rn.bf16 %0, %0, %1;" : "+h"(a) : "h"(b));
    return a;
}
__device__ unsigned int pairSum(unsigned int a, unsigned int b)
{
    asm("add.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}
"""
FLOATS, DOUBLES, WORDS = "float* y", "double* y", "unsigned int* y"


def swapped(word: str, following: str) -> str:
    return SWAP.replace("WORD", word).replace("NEXT", following)


def shared(kind: str, body: str) -> str:
    """`body` on a shared `t`, whose sum ends in `y`."""
    return f"__shared__ {kind} t; t = 0; __syncthreads(); {body} __syncthreads(); *y = t;"


# name: (parameter, body, how, space)
FOUND = {
    "added": (FLOATS, "atomicAdd(y, x[0]);", Meeting.ADDED, "global"),
    "added64": (DOUBLES, "atomicAdd(y, x[0]);", Meeting.ADDED, "global"),
    "added_shared": (FLOATS, shared("float", "atomicAdd(&t, x[threadIdx.x]);"), Meeting.ADDED, "shared"),
    "added_shared64": (DOUBLES, shared("double", "atomicAdd(&t, x[threadIdx.x]);"), Meeting.ADDED, "shared"),
    "added_block": (FLOATS, "atomicAdd_block(y, x[0]);", Meeting.ADDED, "global"),
    "added_pair": ("float2* y", "atomicAdd(y, make_float2(x[0], x[1]));", Meeting.ADDED, "global"),
    "added_four": (
        "float4* y",
        "y[1] = atomicAdd(y, make_float4(x[0], x[1], 1, 2));",
        Meeting.ADDED,
        "global",
    ),
    "red_pair": (
        FLOATS,
        'asm volatile("red.global.add.v2.f32 [%0], {%1, %1};" :: "l"(y), "f"(x[0]) : "memory");',
        Meeting.ADDED,
        "global",
    ),
    "red_half": (
        "unsigned short* y",
        'asm volatile("red.global.add.noftz.f16 [%0], %1;" :: "l"(y), "h"(y[1]) : "memory");',
        Meeting.ADDED,
        "global",
    ),
    "red_bfloats": (
        WORDS,
        'asm volatile("red.global.add.noftz.v2.bf16x2 [%0], {%1, %1};" :: "l"(y), "r"(y[1]) : "memory");',
        Meeting.ADDED,
        "global",
    ),
    "atom_halves": (
        WORDS,
        'asm volatile("atom.add.noftz.f16x2 %0, [%1], %0;" : "+r"(y[1]) : "l"(y) : "memory");',
        Meeting.ADDED,
        "global or shared",
    ),
    "swap32": (
        FLOATS,
        "unsigned int* w = (unsigned int*)y; "
        + swapped("unsigned int", "__float_as_uint(__uint_as_float(seen) + x[0])"),
        Meeting.SWAPPED,
        "global",
    ),
    "swap64": (
        DOUBLES,
        "unsigned long long* w = (unsigned long long*)y; "
        + swapped("unsigned long long", "__double_as_longlong(__longlong_as_double(seen) + x[0])"),
        Meeting.SWAPPED,
        "global",
    ),
    "swap_two": (
        "unsigned long long* w",
        swapped(
            "unsigned long long",
            "(unsigned long long)__float_as_uint(__uint_as_float((unsigned)seen) + x[0]) | "
            "(unsigned long long)__float_as_uint(__uint_as_float((unsigned)(seen >> 32)) + x[1]) << 32",
        ),
        Meeting.SWAPPED,
        "global",
    ),
    "swap_half": (
        "unsigned short* w",
        swapped("unsigned short", "halfSum(seen, w[1])"),
        Meeting.SWAPPED,
        "global",
    ),
    "swap_bfloat": (
        "unsigned short* w",
        swapped("unsigned short", "bfloatSum(seen, w[1])"),
        Meeting.SWAPPED,
        "global",
    ),
    "swap_halves": (
        "unsigned int* w",
        swapped("unsigned int", "pairSum(seen, w[1])"),
        Meeting.SWAPPED,
        "global",
    ),
    "swap_shared": (
        FLOATS,
        shared(
            "float",
            "unsigned int* w = (unsigned int*)&t; "
            + swapped("unsigned int", "__float_as_uint(__uint_as_float(seen) + x[threadIdx.x])"),
        ),
        Meeting.SWAPPED,
        "shared",
    ),
    "swap_called": (
        FLOATS,
        "unsigned int* w = (unsigned int*)y; "
        + swapped("unsigned int", "__float_as_uint(mixed(__uint_as_float(seen), x[0]))"),
        Meeting.SWAPPED,
        "global",
    ),
    "exchanged": (
        FLOATS,
        "float v = x[0]; do { v += atomicExch(y, 0.0f); v = atomicExch(y, v); } while (v != 0.0f);",
        Meeting.EXCHANGED,
        "global",
    ),
    "lock_swap": (
        FLOATS,
        "while (atomicCAS(&lockWord, 0, 1) != 0) {} __threadfence(); y[0] += x[threadIdx.x]; "
        "__threadfence(); atomicExch(&lockWord, 0);",
        Meeting.LOCKED,
        "global",
    ),
    "lock_exchange": (
        FLOATS,
        "volatile float* s = y; while (atomicExch(&lockWord, 1) != 0) {} __threadfence(); "
        "s[0] = s[0] + x[threadIdx.x]; __threadfence(); *(volatile int*)&lockWord = 0;",
        Meeting.LOCKED,
        "global",
    ),
    "lock_inside": (  # as warps need it that go in step
        FLOATS,
        "volatile float* s = y; bool done = false; while (!done) if (atomicCAS(&lockWord, 0, 1) == 0) { "
        "__threadfence(); *s = fmaf(x[threadIdx.x], 0.5f, *s); __threadfence(); atomicExch(&lockWord, 0); "
        "done = true; }",
        Meeting.LOCKED,
        "global",
    ),
    "lock_shared": (
        DOUBLES,
        "__shared__ int lock; lock = 0; "
        + shared(
            "double",
            "bool done = false; while (!done) if (atomicExch(&lock, 1) == 0) { __threadfence_block(); "
            "*(volatile double*)&t += x[threadIdx.x]; __threadfence_block(); atomicExch(&lock, 0); "
            "done = true; }",
        ),
        Meeting.LOCKED,
        "shared",
    ),
    "lock_called": (
        FLOATS,
        "if (threadIdx.x == 0) { take(&lockWord); *(volatile float*)y += x[blockIdx.x]; give(&lockWord); }",
        Meeting.LOCKED,
        "global",
    ),
    "lock_barrier": (  # one thread takes it for its block
        FLOATS,
        "if (threadIdx.x == 0) while (atomicCAS(&lockWord, 0, 1) != 0) {} __syncthreads(); "
        "y[threadIdx.x] += x[blockIdx.x * 32 + threadIdx.x]; __threadfence(); __syncthreads(); "
        "if (threadIdx.x == 0) atomicExch(&lockWord, 0);",
        Meeting.LOCKED,
        "global",
    ),
    "lock_halves": (
        "unsigned short* y",
        "while (atomicCAS(&lockWord, 0, 1) != 0) {} __threadfence(); y[0] = halfSum(y[0], y[1]); "
        "__threadfence(); atomicExch(&lockWord, 0);",
        Meeting.LOCKED,
        "global",
    ),
    "lock_ticket": (
        FLOATS,
        "if (threadIdx.x == 0) { unsigned int mine = atomicAdd(&tickets, 1u); "
        "while (*(volatile unsigned int*)&serving != mine) {} __threadfence(); "
        "*(volatile float*)y += x[blockIdx.x]; __threadfence(); atomicAdd(&serving, 1u); }",
        Meeting.LOCKED,
        "global",
    ),
}
# name: (parameter, body): nothing here follows the order of arrival
QUIET = {
    "plain": (FLOATS, "y[threadIdx.x] += x[threadIdx.x];"),
    "counted": (FLOATS, "atomicAdd(&count, 1u); y[threadIdx.x] += x[threadIdx.x];"),
    "largest": (
        FLOATS,
        "unsigned int* w = (unsigned int*)y; "
        + swapped("unsigned int", "__float_as_uint(fmaxf(__uint_as_float(seen), x[0]))")
        + " y[1 + threadIdx.x] += x[threadIdx.x];",
    ),
    "in_turn": (  # blocks wait for each other in the order of their numbers
        FLOATS,
        "if (threadIdx.x == 0) { while (*(volatile unsigned int*)&turn != blockIdx.x) {} __threadfence(); "
        "*(volatile float*)y += x[blockIdx.x]; __threadfence(); atomicAdd(&turn, 1u); }",
    ),
    "whole_numbers": (
        "int* y",
        "while (atomicCAS(&lockWord, 0, 1) != 0) {} __threadfence(); y[0] += (int)x[threadIdx.x]; "
        "__threadfence(); atomicExch(&lockWord, 0);",
    ),
    "after_the_lock": (
        FLOATS,
        "while (atomicCAS(&lockWord, 0, 1) != 0) {} __threadfence(); *(volatile unsigned int*)&count += 1; "
        "__threadfence(); atomicExch(&lockWord, 0); y[threadIdx.x] += x[threadIdx.x];",
    ),
    "last_block": (
        FLOATS,
        "__shared__ bool last; y[1 + blockIdx.x] = x[blockIdx.x] + 1; __threadfence(); "
        "if (threadIdx.x == 0) last = atomicInc(&count, gridDim.x - 1) == gridDim.x - 1; __syncthreads(); "
        "if (last && threadIdx.x == 0) { float s = 0; for (int i = 0; i < gridDim.x; ++i) "
        "s += ((volatile float*)y)[1 + i]; y[0] = s; }",
    ),
    "work_queue": (
        FLOATS,
        "for (unsigned int i = atomicAdd(&tickets, 1u); i < 64; i = atomicAdd(&tickets, 1u)) y[i] += x[i];",
    ),
}


@pytest.fixture(scope="module")
def ptx() -> str:
    bodies = {name: entry[:2] for name, entry in (*FOUND.items(), *QUIET.items())}
    kernels = (
        KERNEL.replace("NAME", name).replace("PARAMETER", parameter).replace("BODY", body)
        for name, (parameter, body) in bodies.items()
    )
    source = SourceFile("all.cu", "\n".join((HELPERS, *kernels)))
    profile = Profile("default", "nvrtc", ">=13")
    request = BuildRequest("all", (), source.path, (source,), (), profile, nvrtc13(), "sm_90")
    (done,) = compile_all([request])
    assert done.output.ok and done.output.ptx is not None, done.output.log
    return done.output.ptx


def found_in(ptx: str, name: str) -> tuple[FloatAtomic, ...]:
    return float_atomics(ptx, [name])


@pytest.mark.parametrize("name", FOUND)
def test_found(ptx: str, name: str) -> None:
    _, _, how, space = FOUND[name]
    found = found_in(ptx, name)
    assert {(each.how, each.space) for each in found} == {(how, space)}
    assert len(found) == (2 if name == "exchanged" else 1)
    assert ptx.splitlines()[found[0].line - 1].split()[0] == found[0].opcode


@pytest.mark.parametrize("name", QUIET)
def test_quiet(ptx: str, name: str) -> None:
    assert found_in(ptx, name) == ()


def test_a_phrase_says_how_where_and_by_what(ptx: str) -> None:
    (lock,) = found_in(ptx, "lock_called")
    said = (
        f"floats added under a lock in global memory (atom.global.cas.b32 in _Z4takePi, PTX line {lock.line})"
    )
    assert lock.phrase == said


def test_an_indirect_call_hides_locks_and_nothing_else() -> None:
    text = """.version 8.5
.target sm_90
.address_size 64
.visible .entry k()
{
    .reg .f32 %f<4>; .reg .b64 %rd<4>;
    { prototype_0: .callprototype _ (); call %rd2, (), prototype_0; }
    red.global.add.f32 [%rd1], %f1;
    ret;
}
"""
    assert [each.how for each in float_atomics(text, ["k"])] == [Meeting.ADDED]
