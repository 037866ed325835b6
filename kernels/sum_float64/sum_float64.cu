// Elements of float32, sums of float64 from the first addition to the result. The tree is that of the float32 sums.
#include "../_lib/block_reduce.cuh"

static __device__ __forceinline__ void foldDoubles(double* scratch)
{
    for (unsigned int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
}

extern "C" __global__ void sumDoublePartials(const float* x, unsigned long long n, double* partials)
{
    __shared__ double scratch[THREADS];
    double sum = 0.0;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum += (double)x[i];
    scratch[threadIdx.x] = sum;
    foldDoubles(scratch);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = scratch[0];
}

// One block; each thread first its own partials in steps of THREADS.
extern "C" __global__ void foldDoublePartials(const double* partials, double* total)
{
    __shared__ double scratch[THREADS];
    double sum = 0.0;
    for (unsigned int i = threadIdx.x; i < BLOCKS; i += THREADS)
        sum += partials[i];
    scratch[threadIdx.x] = sum;
    foldDoubles(scratch);
    if (threadIdx.x == 0)
        total[0] = scratch[0];
}
