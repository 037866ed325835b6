// 64-bit integers: products, quotients, shifts, carries.
#include "../_lib/pick.cuh"

typedef unsigned long long u64;
extern "C" __global__ void int64(const u64* x, u64 n, u64* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const u64 a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    const long long sa = (long long)a, sb = (long long)b;
    u64 r[RESULTS];
    r[0] = a * b + c;
    r[1] = __umul64hi(a, b);
    r[2] = (u64)__mul64hi(sa, sb);
    r[3] = a / (b | 1ull);
    r[4] = a % (b | 1ull);
    r[5] = (u64)(sa / ((sb & 0xffffffll) + 3));
    r[6] = (u64)(sa % ((sb & 0xffffffll) + 3));
    r[7] = (u64)(sa >> (b & 63ull)) ^ (a << (c & 63ull)) ^ (b >> (a & 63ull));
    r[8] = sa < sb ? (a < c ? a : c) : (u64)(sa > (long long)c ? sa : (long long)c);
    r[9] = (u64)(unsigned)a * (unsigned)b + c;
    r[10] = (u64)((long long)(int)a * (int)b) - c;
    r[11] = (u64)__popcll(a) | (u64)__clzll((long long)b) << 8 | (u64)__ffsll((long long)c) << 16;
    r[12] = __brevll(a) ^ (u64)(sa < 0 ? -sa : sa);
    // 128-bit sum and difference by hand, with the carry flag.
    u64 lo, hi, dlo, dhi;
    asm("add.cc.u64 %0, %2, %3;\n\taddc.u64 %1, %4, %5;" : "=l"(lo), "=l"(hi) : "l"(a), "l"(b), "l"(c), "l"(a));
    asm("sub.cc.u64 %0, %2, %3;\n\tsubc.u64 %1, %4, %5;" : "=l"(dlo), "=l"(dhi) : "l"(a), "l"(b), "l"(c), "l"(a));
    r[13] = lo ^ hi * 3;
    r[14] = dlo ^ dhi * 5;
    asm("shl.b64 %0, %1, %2;" : "=l"(r[15]) : "l"(a), "r"((unsigned)c & 127u));
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = r[k];
}
