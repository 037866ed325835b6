// A grid-stride loop over an odd length with a halving tree a block: the shape of most reductions.
extern "C" __global__ void gridStride(const double* x, unsigned long long n, double* partials)
{
    __shared__ double tile[THREADS];
    double s = 0.0;
    for (unsigned long long i = blockIdx.x * (unsigned long long)THREADS + threadIdx.x; i < n; i += BLOCKS * THREADS)
        s += x[i] * x[i] + 0.25;
    tile[threadIdx.x] = s;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = tile[0];
}
