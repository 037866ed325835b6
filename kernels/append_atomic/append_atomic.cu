// A compaction: each thread that holds a large element takes the next free place by an atomic counter.
#include "../_lib/block_reduce.cuh"

extern "C" __global__ void appendLarge(const float* x, unsigned long long n, float* items, unsigned int* count)
{
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        if (x[i] > 1.25f)
            items[atomicAdd(count, 1u)] = x[i];
}
