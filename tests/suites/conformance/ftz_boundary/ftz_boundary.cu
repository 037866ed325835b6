// Results that round up to the smallest normal number: is the flush judged before or after rounding?
extern "C" __global__ void ftzBoundary(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const unsigned m = __float_as_uint(x[i % n]);
    const float least = __uint_as_float(0x00800000u);                     // 2^-126
    const float below = __uint_as_float(0x3f800000u - 1u - (m & 3u));     // 1 - k * 2^-24, k = 1 … 4
    const float above = __uint_as_float(0x3f800000u + (m & 3u));
    float r[RESULTS];
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(r[0]) : "f"(least), "f"(below));
    asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(r[1]) : "f"(least), "f"(below));
    asm("mul.rp.ftz.f32 %0, %1, %2;" : "=f"(r[2]) : "f"(least), "f"(below));
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(r[3]) : "f"(least), "f"(below), "f"(0.0f));
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(r[4]) : "f"(least), "f"(below), "f"(__uint_as_float(m & 0x80000003u)));
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r[5]) : "f"(least), "f"(below), "f"(__uint_as_float(m & 0x80000003u)));
    asm("div.rn.ftz.f32 %0, %1, %2;" : "=f"(r[6]) : "f"(least), "f"(above));
    asm("div.rn.f32 %0, %1, %2;" : "=f"(r[7]) : "f"(least), "f"(above));
    for (int k = 0; k < RESULTS; ++k) out[k * all + i] = r[k];
}
