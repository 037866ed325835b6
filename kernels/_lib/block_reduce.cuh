// The one fixed-order piece that the kernels share: a halving tree over a block's THREADS values.
#pragma once

// Folds scratch[0 .. THREADS-1] into scratch[0]: thread t adds scratch[t + half] to scratch[t] for
// half = THREADS/2, THREADS/4, … 1. THREADS is a power of two. Each thread has written its own slot before
// the call; the barrier is here. Only thread 0 may read scratch[0] afterwards without another barrier.
static __device__ __forceinline__ void foldBlock(float* scratch)
{
    for (unsigned int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
}

// The first element of this thread, and the distance to its next: a grid-stride walk over BLOCKS x THREADS.
// Both come from the manifest's constants, so that the order of the sum never depends on the device.
#define FIRST ((unsigned long long)blockIdx.x * THREADS + threadIdx.x)
#define STRIDE ((unsigned long long)BLOCKS * THREADS)
