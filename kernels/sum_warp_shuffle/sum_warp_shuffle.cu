// A plain sum whose tree lives in registers: 32 lanes fold by shuffles, then the first warp folds the warps' sums.
#include "../_lib/block_reduce.cuh"

#define WARPS (THREADS / 32)

// Lane 0 gets the sum of 32 lanes: lane l adds lane l + 16, then l + 8, … l + 1.
static __device__ __forceinline__ float foldWarp(float value)
{
    for (unsigned int step = 16; step > 0; step /= 2)
        value += __shfl_down_sync(0xffffffffu, value, step);
    return value;
}

// Thread 0 gets the block's sum. Lanes without a warp's sum bring +0.
static __device__ __forceinline__ float foldByWarps(float value)
{
    __shared__ float sums[WARPS];
    value = foldWarp(value);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < WARPS ? sums[threadIdx.x] : 0.0f;
    return foldWarp(value);
}

extern "C" __global__ void sumShufflePartials(const float* x, unsigned long long n, float* partials)
{
    float sum = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum += x[i];
    sum = foldByWarps(sum);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum;
}

// One block of THREADS threads, a partial each.
extern "C" __global__ void foldShuffled(const float* partials, float* total)
{
    float sum = foldByWarps(threadIdx.x < BLOCKS ? partials[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0)
        total[0] = sum;
}
