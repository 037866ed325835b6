// Loads and stores with cache hints, read-only and volatile accesses: the same values whatever the hint.
extern "C" __global__ void cacheHints(const float* __restrict__ x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float a = __ldg(x + i % n), b = __ldcg(x + (i + 1) % n), c = __ldcs(x + (i + 2) % n), d = __ldca(x + (i + 3) % n);
    __stcg(out + i, a + b);
    __stcs(out + all + i, c - d);
    __stwt(out + 2 * all + i, a * d);
    volatile float* v = out + 3 * all + i;
    *v = b;
    *v = *v * 2.0f + a;
    float r;
    asm volatile("ld.global.relaxed.gpu.f32 %0, [%1];" : "=f"(r) : "l"(out + i));
    asm volatile("st.global.release.gpu.f32 [%0], %1;" ::"l"(out + 4 * all + i), "f"(r + 1.0f) : "memory");
}
