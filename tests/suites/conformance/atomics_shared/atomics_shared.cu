// Integer atomics in shared memory, 32 and 64 bits: a histogram, extrema, and a lock-free maximum by CAS.
extern "C" __global__ void atomicsShared(const unsigned* x, unsigned long long n, unsigned* out, unsigned long long* wide)
{
    __shared__ unsigned bins[16], low, high, top;
    __shared__ unsigned long long total;
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    if (t < 16) bins[t] = 0;
    if (t == 0) { low = 0xffffffffu; high = 0; top = 0; total = 0; }
    __syncthreads();
    const unsigned v = x[i % n];
    atomicAdd(bins + (v >> 3) % 16u, 1u);
    atomicMin(&low, v);
    atomicMax(&high, v);
    atomicAdd(&total, (unsigned long long)v << 7);
    unsigned seen = top;
    while (seen < (v ^ 0x5555u)) {
        const unsigned now = atomicCAS(&top, seen, v ^ 0x5555u);
        if (now == seen) break;
        seen = now;
    }
    __syncthreads();
    if (t < 16) out[blockIdx.x * 32 + t] = bins[t];
    if (t == 16) out[blockIdx.x * 32 + t] = low;
    if (t == 17) out[blockIdx.x * 32 + t] = high;
    if (t == 18) out[blockIdx.x * 32 + t] = top;
    if (t > 18 && t < 32) out[blockIdx.x * 32 + t] = 0;
    if (t < 32) wide[blockIdx.x * 32 + t] = total * (t + 1u);
}
