// One launch: every block writes its sum, and the block that finishes last folds them all. Which block that is
// changes from run to run; the order in which it adds does not. Who chooses the grid is the manifest's affair.
#include "block_reduce.cuh"

__device__ unsigned int finished = 0;

extern "C" __global__ void sumLastBlock(const float* x, unsigned long long n, float* partials, float* total)
{
    __shared__ float scratch[THREADS];
    __shared__ bool last;
    float sum = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += (unsigned long long)gridDim.x * THREADS)
        sum += x[i];
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = scratch[0];
        __threadfence();  // the sum is there before the count says so
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    // Other blocks wrote these while this one ran: they are read from memory and not from a stale cache.
    sum = 0.0f;
    for (unsigned int i = threadIdx.x; i < gridDim.x; i += THREADS)
        sum += ((volatile const float*)partials)[i];
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0)
        total[0] = scratch[0];
}
