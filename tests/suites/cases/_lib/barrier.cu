// Two block sums share one scratch: the mean, then the squared distances from it. Between reading the mean and
// writing the distances a barrier is needed: without it a fast warp overwrites scratch[0] before a slow one
// has read it. Reading `zero` from memory delays a warp by chance, as real work between the two would.
#include "fold.cuh"

extern "C" __global__ void squaredDistances(const float* x, const unsigned int* zero, float* sums)
{
    __shared__ float scratch[THREADS];
    unsigned int i = blockIdx.x * THREADS + threadIdx.x;
    float value = x[i];
    scratch[threadIdx.x] = value;
    foldBlock(scratch);
    __syncthreads();
    float distance = value - scratch[zero[i]] / THREADS;
#if BARRIER
    __syncthreads();
#endif
    scratch[threadIdx.x] = distance * distance;
    foldBlock(scratch);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = scratch[0];
}
