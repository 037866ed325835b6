// bfloat16: sums, products and fused products, scalar and in pairs.
#include "../_lib/pick.cuh"

typedef unsigned short u16;
extern "C" __global__ void bf16Arithmetic(const u16* x, unsigned long long n, u16* out, unsigned* pairs)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const u16 a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    u16 r[RESULTS];
    asm("add.rn.bf16 %0, %1, %2;" : "=h"(r[0]) : "h"(a), "h"(b));
    asm("sub.rn.bf16 %0, %1, %2;" : "=h"(r[1]) : "h"(a), "h"(b));
    asm("mul.rn.bf16 %0, %1, %2;" : "=h"(r[2]) : "h"(a), "h"(b));
    asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(r[3]) : "h"(a), "h"(b), "h"(c));
    asm("fma.rn.relu.bf16 %0, %1, %2, %3;" : "=h"(r[4]) : "h"(a), "h"(b), "h"(c));
    asm("min.bf16 %0, %1, %2;" : "=h"(r[5]) : "h"(a), "h"(b));
    asm("max.bf16 %0, %1, %2;" : "=h"(r[6]) : "h"(a), "h"(b));
    asm("max.NaN.bf16 %0, %1, %2;" : "=h"(r[7]) : "h"(a), "h"(b));
    for (int k = 0; k < RESULTS; ++k) out[k * all + i] = r[k];
    const unsigned p = a | (unsigned)b << 16, q = b | (unsigned)c << 16, s = c | (unsigned)a << 16;
    unsigned d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(p), "r"(q), "r"(s));
    pairs[i] = d;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(p), "r"(q));
    pairs[all + i] = d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(p), "r"(q));
    pairs[2 * all + i] = d;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(p), "r"(q));
    pairs[3 * all + i] = d;
}
