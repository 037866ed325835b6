// An inclusive scan of a block in shared memory, then of the block sums, in a fixed order.
extern "C" __global__ void scanBlocks(const float* x, unsigned long long n, float* out, float* sums)
{
    __shared__ float a[2][THREADS];
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    a[0][t] = x[i % n];
    __syncthreads();
    int from = 0;
    for (unsigned step = 1; step < THREADS; step *= 2) {
        a[1 - from][t] = t >= step ? a[from][t - step] + a[from][t] : a[from][t];
        from = 1 - from;
        __syncthreads();
    }
    out[i] = a[from][t];
    if (t == THREADS - 1) sums[blockIdx.x] = a[from][t];
}
extern "C" __global__ void addSums(const float* sums, float* out)
{
    float before = 0.0f;
    for (unsigned b = 0; b < blockIdx.x; ++b) before += sums[b];
    out[blockIdx.x * THREADS + threadIdx.x] += before;
}
