// Shared memory sized at launch, beside a static array; carved into two arrays of different types.
extern __shared__ double pool[];
extern "C" __global__ void dynamicShared(const float* x, unsigned long long n, float* out)
{
    __shared__ int order[THREADS];
    double* sums = pool;                       // THREADS doubles
    float* values = (float*)(pool + THREADS);  // then THREADS floats
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    values[t] = x[i % n];
    order[t] = (int)((t * 29u + 7u) % THREADS);
    __syncthreads();
    sums[t] = (double)values[order[t]] + (double)values[(t + 1) % THREADS];
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (t < step) sums[t] += sums[t + step];
        __syncthreads();
    }
    out[i] = (float)sums[0] + values[order[order[t]]];
}
