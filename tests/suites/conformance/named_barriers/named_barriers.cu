// Two halves of a block with a barrier each, a hand-over from producers to consumers, and counting barriers.
extern "C" __global__ void namedBarriers(const float* x, unsigned long long n, float* out, int* counts)
{
    __shared__ float tile[THREADS], passed[THREADS / 2];
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t, half = THREADS / 2;
    tile[t] = x[i % n];
    if (t < half) {
        asm volatile("barrier.sync 1, %0;" ::"r"(half) : "memory");
        passed[t] = tile[half - 1 - t] * 2.0f;
        asm volatile("barrier.arrive 3, %0;" ::"r"((unsigned)THREADS) : "memory");
    } else {
        asm volatile("barrier.sync 2, %0;" ::"r"(half) : "memory");
        const float v = tile[half + (t + 5) % half];
        asm volatile("barrier.sync 3, %0;" ::"r"((unsigned)THREADS) : "memory");
        out[BLOCKS * THREADS + i] = v - passed[t - half];
    }
    __syncthreads();
    if (t < half) out[BLOCKS * THREADS + i] = passed[t];
    out[i] = tile[(t * 3 + 1) % THREADS];
    const int negative = __syncthreads_count(x[i % n] < 0.0f);
    const int any = __syncthreads_or(x[i % n] > 2.0f), every = __syncthreads_and(x[i % n] > -1e30f);
    counts[i] = negative * 4 + (any != 0) * 2 + (every != 0);
}
