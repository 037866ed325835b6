// Floating-point atomics whose sums are exact in any order: whole numbers far below 2^24.
extern "C" __global__ void floatAtomics(const float* x, unsigned long long n, float* out, double* wide)
{
    __shared__ float bins[8];
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    if (t < 8) bins[t] = 0.0f;
    __syncthreads();
    const float v = x[i % n];
    const unsigned slot = (i * 7u + (unsigned)(int)fabsf(v)) % 8u;
    atomicAdd(out + slot, v);
    atomicAdd(bins + slot, v);
    atomicAdd(wide + slot, (double)v * 0.5);
    __syncthreads();
    if (t < 8) out[8 + blockIdx.x * 8 + t] = bins[t];
    // One thread a word: what comes back is the value before.
    const unsigned base = 8 + BLOCKS * 8;
    out[base + i] = v;
    const float before = atomicAdd(out + base + i, 3.0f);
    const float again = atomicExch(out + base + i, before - 1.0f);
    out[base + BLOCKS * THREADS + i] = again;
}
