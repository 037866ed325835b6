// A sum that carries what every addition loses, in the threads and through the tree. A sum stands for
// `value - lost`. Kahan's own step, (next - sum) - term, is right only while the sum is the larger of the two; this
// input changes sign all the time, so each addition is a two-sum, which needs no such order.
#include "../_lib/block_reduce.cuh"

struct Sum {
    float value;
    float lost;
};

// a + b with the rounding error of the values' sum, which two-sum gives exactly.
static __device__ __forceinline__ Sum joined(Sum a, Sum b)
{
    float value = a.value + b.value;
    float second = value - a.value;
    float error = (a.value - (value - second)) + (b.value - second);
    return Sum{value, (a.lost + b.lost) - error};
}

static __device__ __forceinline__ void foldSums(Sum* scratch)
{
    for (unsigned int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            scratch[threadIdx.x] = joined(scratch[threadIdx.x], scratch[threadIdx.x + half]);
    }
}

extern "C" __global__ void sumKahanPartials(const float* x, unsigned long long n, float* partials, float* lost)
{
    __shared__ Sum scratch[THREADS];
    Sum sum{0.0f, 0.0f};
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum = joined(sum, Sum{x[i], 0.0f});
    scratch[threadIdx.x] = sum;
    foldSums(scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = scratch[0].value;
        lost[blockIdx.x] = scratch[0].lost;
    }
}

// One block of as many threads as there are partials.
extern "C" __global__ void foldKahanPartials(const float* partials, const float* lost, float* total)
{
    __shared__ Sum scratch[THREADS];
    scratch[threadIdx.x] = Sum{partials[threadIdx.x], lost[threadIdx.x]};
    foldSums(scratch);
    if (threadIdx.x == 0)
        total[0] = scratch[0].value - scratch[0].lost;
}
