// 32-bit integer arithmetic, comparisons and predicate logic, on bit patterns of every kind.
#include "../_lib/pick.cuh"

extern "C" __global__ void intLogic(const unsigned* x, unsigned long long n, unsigned* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    const int sa = (int)a, sb = (int)b;
    unsigned r[RESULTS];
    r[0] = a * b + c;
    r[1] = __umulhi(a, b);
    r[2] = (unsigned)__mulhi(sa, sb);
    r[3] = a / (b | 1u);
    r[4] = a % (b | 1u);
    r[5] = (unsigned)(sa / ((sb & 0xffff) + 3));
    r[6] = (unsigned)(sa % ((sb & 0xffff) + 3));
    r[7] = (unsigned)(sa >> (b & 31u)) ^ (a << (c & 31u));
    r[8] = (sa < sb && a < c) || (sb >= 0 && b != c) ? min(a, c) : (unsigned)max(sa, sb);
    r[9] = (a > b) ^ (sa > sb) ^ ((a & c) == 0u);
    r[10] = __usad(a, b, c) + __sad(sa, sb, c);
    r[11] = (unsigned)__mul24(sa, sb) + __umul24(a, c);
    // Shifts by the width or more are defined in PTX: everything is shifted out.
    asm("shl.b32 %0, %1, %2;" : "=r"(r[12]) : "r"(a), "r"(c & 63u));
    asm("shr.s32 %0, %1, %2;" : "=r"(r[13]) : "r"(sa), "r"(c & 63u));
    asm("{ .reg .pred p, q; setp.lt.and.s32 p|q, %1, %2, 1; selp.u32 %0, %3, %2, p; @q add.u32 %0, %0, 7; }"
        : "=r"(r[14]) : "r"(sa), "r"(sb), "r"(c));
    asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(r[15]) : "r"(a), "r"(b), "r"((int)c));
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = r[k];
}
