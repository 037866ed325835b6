// Compaction by an atomic counter, and a sum by integer atomics.
extern "C" __global__ void appendAll(const float* x, unsigned long long n, unsigned int* count, float* items)
{
    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        items[atomicAdd(count, 1u)] = x[i];
}

extern "C" __global__ void integerSum(const unsigned int* x, unsigned long long n, unsigned int* total)
{
    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        atomicAdd(total, x[i]);
}
