// The sum of n values in a fixed order: a strided loop a thread, a halving tree a block, one block for the rest.
// BLOCKS and THREADS come from kernel.toml. They are part of the order, and so never follow the device.

__device__ float foldBlock(float value)
{
    __shared__ float scratch[THREADS];
    scratch[threadIdx.x] = value;
    for (unsigned int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
    return scratch[0];
}

extern "C" __global__ void sumBlocks(const float* x, unsigned long long n, float* partials)
{
    float sum = 0.0f;
    for (unsigned long long i = blockIdx.x * THREADS + threadIdx.x; i < n; i += BLOCKS * THREADS)
        sum += x[i] * x[i];
    float block = foldBlock(sum);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = block;
}

extern "C" __global__ void sumPartials(const float* partials, float* total)
{
    float sum = 0.0f;
    for (unsigned int i = threadIdx.x; i < BLOCKS; i += THREADS)
        sum += partials[i];
    float all = foldBlock(sum);
    if (threadIdx.x == 0)
        total[0] = all;
}
