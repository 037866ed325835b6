// Pass 1 and the block's tree, which the baseline and its edits share. f(x) = x*x + 0.25f, left to contract;
// with IDENTITY the elements themselves, so that the order of their sum can be measured.
#pragma once

static __device__ __forceinline__ void foldBlock(float* scratch)
{
    for (unsigned int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
}

extern "C" __global__ void sumSquaresPartials(const float* x, unsigned long long n, float* partials)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (unsigned long long)BLOCKS * THREADS)
#ifdef IDENTITY
        sum += x[i];
#else
        sum += x[i] * x[i] + 0.25f;
#endif
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = scratch[0];
}
