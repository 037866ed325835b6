// The operators: a / b, 1 / x and sqrtf. Correctly rounded by default, approximate under fast math.
#include "../_lib/pick.cuh"

extern "C" __global__ void f32PlainDivision(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const float a = x[i % n], b = x[pick(i, 1) % n];
    const unsigned all = BLOCKS * THREADS;
    out[i] = a / b;
    out[all + i] = 1.0f / a;
    out[2 * all + i] = sqrtf(a);
    out[3 * all + i] = a / sqrtf(1.0f + b * b);
}
