// Sixteen-bit inputs, widened without rounding and summed in float32. BFLOAT16 picks the format; neither needs a
// header of the toolkit.
#include "second_pass.cuh"

static __device__ __forceinline__ float widened(unsigned short bits)
{
#if BFLOAT16
    return __uint_as_float((unsigned int)bits << 16);  // the upper half of a float32
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#endif
}

extern "C" __global__ void sum16Partials(const unsigned short* x, unsigned long long n, float* partials)
{
    __shared__ float scratch[THREADS];
    float sum = 0.0f;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum += widened(x[i]);
    scratch[threadIdx.x] = sum;
    foldBlock(scratch);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = scratch[0];
}
