// A block that is no multiple of the warp, with threads that leave early, before a barrier.
extern "C" __global__ void partialWarps(const float* x, unsigned long long n, float* out, unsigned* masks)
{
    __shared__ float tile[THREADS];
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    tile[t] = x[i % n];
    __syncthreads();
    const unsigned lanes = t / 32u == THREADS / 32u ? (1u << (THREADS % 32)) - 1u : 0xffffffffu;
    float v = tile[THREADS - 1 - t];
    for (int step = 16; step > 0; step /= 2) {
        const float w = __shfl_down_sync(lanes, v, step);
        if ((t & 31u) + step < 32u && t + step < THREADS) v += w;
    }
    out[i] = v;
    masks[i] = __ballot_sync(lanes, v > 0.0f);
    if (t % 5 == 4) return;
    __syncthreads();
    out[BLOCKS * THREADS + i] = tile[(t + 7) % THREADS] * 0.5f;
}
