// The edit of the order: pass 2 takes the partials from the last to the first.
#include "tree.cuh"

extern "C" __global__ void foldPartials(const float* partials, float* total)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    for (unsigned int i = threadIdx.x; i < BLOCKS; i += THREADS)
        sum += partials[BLOCKS - 1 - i];
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0)
        total[0] = scratch[0];
}
