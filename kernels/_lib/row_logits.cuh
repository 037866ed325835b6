// One row of y = W x, in the one order that all row kernels share: a serial entry and a batched one include
// this file and have no arithmetic of their own, so that a request's bits cannot depend on how it is served.
#pragma once

#define LANES 32
#define WARPS (THREADS / LANES)

// The sum over the lanes of a warp, in lane 0: lane i takes lane i + 16's sum, then i + 8's, 4, 2 and 1.
static __device__ __forceinline__ float foldLanes(float sum, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, step));
    return sum;
}

// The product of a row of weights with a request, both `width` long, by a block of THREADS threads. Thread t
// adds up elements t, t + THREADS, … from +0; then the lanes of each warp fold, then the WARPS warp sums in the
// same way. Products and sums are rounded apart, whatever a build's flags say. Thread 0 gets the answer.
static __device__ __noinline__ float rowLogit(const float* weights, const float* request, unsigned int width)
{
    __shared__ float warps[WARPS];
    float sum = 0.0f;
    for (unsigned int k = threadIdx.x; k < width; k += THREADS)
        sum = __fadd_rn(sum, __fmul_rn(weights[k], request[k]));
    sum = foldLanes(sum, LANES);
    if (threadIdx.x % LANES == 0)
        warps[threadIdx.x / LANES] = sum;
    __syncthreads();
    sum = threadIdx.x < WARPS ? warps[threadIdx.x] : 0.0f;
    return threadIdx.x < LANES ? foldLanes(sum, WARPS) : 0.0f;
}
