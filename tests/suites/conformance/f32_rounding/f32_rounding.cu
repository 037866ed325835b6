// Sums, products and fused products of float in every rounding mode, over special values.
#include "../_lib/pick.cuh"

extern "C" __global__ void f32Rounding(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const float a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    float r[RESULTS];
    r[0] = __fadd_rn(a, b);
    r[1] = __fadd_rz(a, b);
    r[2] = __fadd_rd(a, b);
    r[3] = __fadd_ru(a, b);
    r[4] = __fsub_rn(a, c);
    r[5] = __fsub_rd(a, c);
    r[6] = __fmul_rn(a, b);
    r[7] = __fmul_rz(a, b);
    r[8] = __fmul_rd(a, b);
    r[9] = __fmul_ru(a, b);
    r[10] = __fmaf_rn(a, b, c);
    r[11] = __fmaf_rz(a, b, c);
    r[12] = __fmaf_rd(a, b, c);
    r[13] = __fmaf_ru(a, b, c);
    r[14] = __fsub_rd(a, a);
    r[15] = __fmaf_rd(a, b, -__fmul_rn(a, b));
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = r[k];
}
