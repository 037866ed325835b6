// Double arithmetic in every rounding mode. PTX does not pin the payload of a double NaN: one stands for all.
#include "../_lib/pick.cuh"

__device__ double plain(double v) { return v != v ? __longlong_as_double(0x7ff8000000000000ll) : v; }
extern "C" __global__ void f64Rounding(const double* x, unsigned long long n, double* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const double a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n];
    double r[RESULTS];
    r[0] = __dadd_rn(a, b);
    r[1] = __dadd_rz(a, b);
    r[2] = __dadd_rd(a, b);
    r[3] = __dadd_ru(a, b);
    r[4] = __dmul_rn(a, b);
    r[5] = __dmul_rz(a, b);
    r[6] = __dmul_rd(a, b);
    r[7] = __dmul_ru(a, b);
    r[8] = __fma_rn(a, b, c);
    r[9] = __fma_rz(a, b, c);
    r[10] = __fma_rd(a, b, c);
    r[11] = __fma_ru(a, b, c);
    r[12] = __dsub_rn(a, c);
    r[13] = __dsub_rd(a, a);
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = plain(r[k]);
}
