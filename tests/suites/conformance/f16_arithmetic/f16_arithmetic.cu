// Half precision: sums, products, fused products, comparisons, with and without .ftz and .sat.
#include "../_lib/pick.cuh"

typedef unsigned short u16;
#define BINARY(op, d, a, b) asm(op " %0, %1, %2;" : "=h"(d) : "h"(a), "h"(b))
#define TERNARY(op, d, a, b, c) asm(op " %0, %1, %2, %3;" : "=h"(d) : "h"(a), "h"(b), "h"(c))
extern "C" __global__ void f16Arithmetic(const u16* x, unsigned long long n, u16* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const u16 a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    u16 r[RESULTS];
    BINARY("add.rn.f16", r[0], a, b);
    BINARY("sub.rn.f16", r[1], a, b);
    BINARY("mul.rn.f16", r[2], a, b);
    TERNARY("fma.rn.f16", r[3], a, b, c);
    BINARY("add.rn.ftz.f16", r[4], a, b);
    BINARY("mul.rn.ftz.f16", r[5], a, b);
    TERNARY("fma.rn.ftz.f16", r[6], a, b, c);
    BINARY("add.rn.sat.f16", r[7], a, b);
    TERNARY("fma.rn.sat.f16", r[8], a, b, c);
    TERNARY("fma.rn.relu.f16", r[9], a, b, c);
    BINARY("min.f16", r[10], a, b);
    BINARY("max.f16", r[11], a, b);
    BINARY("max.NaN.f16", r[12], a, b);
    asm("{ .reg .pred p; setp.lt.f16 p, %1, %2; selp.b16 %0, 1, 2, p; }" : "=h"(r[13]) : "h"(a), "h"(b));
    asm("{ .reg .pred p; setp.geu.f16 p, %1, %2; selp.b16 %0, 1, 2, p; }" : "=h"(r[14]) : "h"(a), "h"(b));
    BINARY("min.ftz.f16", r[15], a, b);
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = r[k];
}
