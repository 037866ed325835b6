// The sum of n values in one block of THREADS lanes; lanes beyond n add +0.0.
#include "fold.cuh"

extern "C" __global__ void sumLanes(const float* x, unsigned long long n, float* total)
{
    __shared__ float scratch[THREADS];
    scratch[threadIdx.x] = threadIdx.x < n ? x[threadIdx.x] : 0.0f;
    foldBlock(scratch);
    if (threadIdx.x == 0)
        total[0] = scratch[0];
}
