// The plain sum of n floats with ever fewer atomics that meet in global memory: one an element, one a block
// after shared atomics, one a block after a tree.
#include "block_reduce.cuh"

// Every element is added to the total as it arrives: the order of all n additions is open.
extern "C" __global__ void sumGlobalAtomic(const float* x, unsigned long long n, float* total)
{
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        atomicAdd(total, x[i]);
}

// Each thread sums its own elements, the threads of a block meet in shared memory in the order in which they
// arrive, and the blocks meet in global memory: two levels of open order.
extern "C" __global__ void sumSharedAtomic(const float* x, unsigned long long n, float* partials, float* total)
{
    __shared__ float block;
    if (threadIdx.x == 0)
        block = 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum += x[i];
    atomicAdd(&block, sum);
    __syncthreads();
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = block;
        atomicAdd(total, block);
    }
}

// A tree gives each block's sum a fixed order; only the last meeting of the blocks is open.
extern "C" __global__ void sumTreeAtomic(const float* x, unsigned long long n, float* partials, float* total)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum += x[i];
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = scratch[0];
        atomicAdd(total, scratch[0]);
    }
}
