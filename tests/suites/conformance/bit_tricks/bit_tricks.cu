// Funnel shifts, byte permutes, three-input logic, counts, fields and dot products of bytes.
#include "../_lib/pick.cuh"

extern "C" __global__ void bitTricks(const unsigned* x, unsigned long long n, unsigned* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    unsigned r[RESULTS];
    r[0] = __funnelshift_l(a, b, c);
    r[1] = __funnelshift_lc(a, b, c & 63u);
    r[2] = __funnelshift_r(a, b, c);
    r[3] = __funnelshift_rc(a, b, c & 63u);
    r[4] = __byte_perm(a, b, c);
    asm("prmt.b32 %0, %1, %2, 0xba98;" : "=r"(r[5]) : "r"(a), "r"(b));
    asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(r[6]) : "r"(a), "r"(b), "r"(c));
    asm("prmt.b32.rc16 %0, %1, %2, %3;" : "=r"(r[7]) : "r"(a), "r"(b), "r"(c));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r[8]) : "r"(a), "r"(b), "r"(c));
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r[9]) : "r"(a), "r"(b), "r"(c));
    asm("lop3.b32 %0, %1, %2, %3, 0x1d;" : "=r"(r[10]) : "r"(a), "r"(b), "r"(c));
    r[11] = __popc(a) | __clz((int)b) << 8 | __ffs((int)c) << 16;
    r[12] = __brev(a);
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r[13]) : "r"(a), "r"(b & 63u), "r"(c & 63u));
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r[14]) : "r"(a), "r"(b & 31u), "r"(c & 31u));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r[15]) : "r"(a), "r"(b), "r"(c & 31u), "r"((c >> 8) & 31u));
    asm("bfind.u32 %0, %1;" : "=r"(r[16]) : "r"(a & b));
    asm("bfind.shiftamt.s32 %0, %1;" : "=r"(r[17]) : "r"(a));
    r[18] = (unsigned)__dp4a((int)a, (int)b, (int)c);
    r[19] = __dp4a(a, b, c);
    r[20] = (unsigned)__dp2a_lo((int)a, (int)b, (int)c) ^ __dp2a_hi(a, b, c);
    r[21] = (a & ~b) | (~c & b);
    r[22] = (a ^ b ^ c) & ((a & b) | c);
    asm("cnot.b32 %0, %1;" : "=r"(r[23]) : "r"(a & b & c & 0x11u));
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = r[k];
}
