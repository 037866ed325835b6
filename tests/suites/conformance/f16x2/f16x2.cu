// Two halves in one register.
#include "../_lib/pick.cuh"

extern "C" __global__ void f16x2(const unsigned* x, unsigned long long n, unsigned* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    unsigned r[RESULTS];
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r[0]) : "r"(a), "r"(b));
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r[1]) : "r"(a), "r"(b));
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r[2]) : "r"(a), "r"(b));
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r[3]) : "r"(a), "r"(b), "r"(c));
    asm("fma.rn.ftz.f16x2 %0, %1, %2, %3;" : "=r"(r[4]) : "r"(a), "r"(b), "r"(c));
    asm("mul.rn.sat.f16x2 %0, %1, %2;" : "=r"(r[5]) : "r"(a), "r"(b));
    asm("min.f16x2 %0, %1, %2;" : "=r"(r[6]) : "r"(a), "r"(b));
    asm("max.f16x2 %0, %1, %2;" : "=r"(r[7]) : "r"(a), "r"(b));
    asm("{ .reg .pred p, q; setp.lt.f16x2 p|q, %1, %2; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2; }"
        : "=r"(r[8]) : "r"(a), "r"(b));
    // A dot of pairs folded into one half, then the halves swapped.
    unsigned swapped;
    asm("prmt.b32 %0, %1, 0, 0x1032;" : "=r"(swapped) : "r"(r[3]));
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r[9]) : "r"(r[3]), "r"(swapped));
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = r[k];
}
