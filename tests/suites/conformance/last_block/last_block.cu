// The block that finishes last folds all partials, in one fixed order.
__device__ unsigned finished = 0;
extern "C" __global__ void lastBlock(const float* x, unsigned long long n, float* partials, float* total)
{
    __shared__ float tile[THREADS];
    __shared__ bool last;
    const unsigned t = threadIdx.x;
    float sum = 0.0f;
    for (unsigned long long i = blockIdx.x * THREADS + t; i < n; i += BLOCKS * THREADS) sum += x[i] * x[i];
    tile[t] = sum;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    if (t == 0) {
        ((volatile float*)partials)[blockIdx.x] = tile[0];
        __threadfence();
        last = atomicInc(&finished, BLOCKS - 1) == BLOCKS - 1;
    }
    __syncthreads();
    if (last && t < 64) {
        float fold = 0.0f;
        for (unsigned b = 0; b < BLOCKS; ++b) fold += ((volatile float*)partials)[(b + t) % BLOCKS];
        total[t] = fold;
    }
}
