// Subnormal operands and results: kept by default, flushed with their sign by .ftz.
#include "../_lib/pick.cuh"

extern "C" __global__ void subnormals(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const unsigned ma = __float_as_uint(x[i % n]), mb = __float_as_uint(x[pick(i, 1) % n]);
    const float a = __uint_as_float(ma & 0x80ffffffu);   // below 2^-125: half of them subnormal
    const float b = __uint_as_float(mb & 0x80ffffffu);
    const float s = __uint_as_float(0x3e000000u | (ma & 0x01ffffffu));
    float r[RESULTS];
    asm("add.f32 %0, %1, %2;" : "=f"(r[0]) : "f"(a), "f"(b));
    asm("add.ftz.f32 %0, %1, %2;" : "=f"(r[1]) : "f"(a), "f"(b));
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(r[2]) : "f"(a), "f"(s));
    asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(r[3]) : "f"(a), "f"(s));
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r[4]) : "f"(a), "f"(s), "f"(b));
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(r[5]) : "f"(a), "f"(s), "f"(b));
    asm("sub.rn.ftz.f32 %0, %1, %2;" : "=f"(r[6]) : "f"(a), "f"(b));
    asm("div.rn.f32 %0, %1, %2;" : "=f"(r[7]) : "f"(a), "f"(s));
    asm("div.rn.ftz.f32 %0, %1, %2;" : "=f"(r[8]) : "f"(a), "f"(s));
    asm("sqrt.rn.f32 %0, %1;" : "=f"(r[9]) : "f"(__uint_as_float(ma & 0x00ffffffu)));
    asm("sqrt.rn.ftz.f32 %0, %1;" : "=f"(r[10]) : "f"(__uint_as_float(ma & 0x00ffffffu)));
    asm("rcp.rn.f32 %0, %1;" : "=f"(r[11]) : "f"(b));
    asm("rcp.rn.ftz.f32 %0, %1;" : "=f"(r[12]) : "f"(b));
    asm("{ .reg .pred p; setp.lt.ftz.f32 p, %1, %2; selp.f32 %0, 0f3F800000, 0f40000000, p; }"
        : "=f"(r[13]) : "f"(a), "f"(b));
    asm("{ .reg .pred p; setp.equ.ftz.f32 p, %1, 0f80000000; selp.f32 %0, 0f3F800000, 0f40000000, p; }"
        : "=f"(r[14]) : "f"(a));
    r[15] = a + b;   // as the profile's -ftz says
    for (int k = 0; k < RESULTS; ++k) out[k * all + i] = r[k];
}
