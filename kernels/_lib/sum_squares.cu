// The sum of f(x) = x*x + 0.25f over n floats, in three ways: a two-pass tree, one global atomicAdd a block,
// and the same with a compensated sum in each thread. The expression is left for the compiler to contract; with
// IDENTITY the elements themselves are summed, so that the order of the tree's sum can be measured.
#include "block_reduce.cuh"

// Pass 1 of the tree: partials[b] is block b's sum, in a fixed order.
extern "C" __global__ void sumSquaresPartials(const float* x, unsigned long long n, float* partials)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
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

// Pass 2: one block folds the BLOCKS partials, each thread first its own in steps of THREADS.
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

// The same partials, added to the total as the blocks arrive.
extern "C" __global__ void sumSquaresAtomic(const float* x, unsigned long long n, float* partials, float* total)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum += x[i] * x[i] + 0.25f;
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = scratch[0];
        atomicAdd(total, scratch[0]);
    }
}

// Each thread carries Kahan's compensation: better partials, and the arrival order moves the total as before.
extern "C" __global__ void sumSquaresKahanAtomic(const float* x, unsigned long long n, float* partials,
                                                 float* total)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    float lost = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += STRIDE) {
        float term = (x[i] * x[i] + 0.25f) - lost;
        float next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = scratch[0];
        atomicAdd(total, scratch[0]);
    }
}
