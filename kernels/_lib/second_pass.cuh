// The second stage that two-pass sums share: one block folds the BLOCKS partials, each thread first its own in
// steps of THREADS.
#pragma once
#include "block_reduce.cuh"

extern "C" __global__ void foldPartials(const float* partials, float* total)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    for (unsigned int i = threadIdx.x; i < BLOCKS; i += THREADS)
        sum += partials[i];
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0)
        total[0] = scratch[0];
}
