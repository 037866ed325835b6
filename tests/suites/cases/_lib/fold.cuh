// A halving tree over a block's THREADS values; THREADS is a power of two.
#pragma once

static __device__ __forceinline__ void foldBlock(float* scratch)
{
    for (unsigned int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
}
