// Correctly rounded quotients, reciprocals and square roots of float, in every rounding mode.
#include "../_lib/pick.cuh"

extern "C" __global__ void f32Division(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const float a = x[i % n], b = x[pick(i, 1) % n];
    float r[RESULTS];
    r[0] = __fdiv_rn(a, b);
    r[1] = __fdiv_rz(a, b);
    r[2] = __fdiv_rd(a, b);
    r[3] = __fdiv_ru(a, b);
    r[4] = __frcp_rn(b);
    r[5] = __frcp_rz(b);
    r[6] = __frcp_rd(b);
    r[7] = __frcp_ru(b);
    r[8] = __fsqrt_rn(a);
    r[9] = __fsqrt_rz(a);
    r[10] = __fsqrt_rd(a);
    r[11] = __fsqrt_ru(a);
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = r[k];
}
