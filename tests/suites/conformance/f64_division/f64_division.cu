// Correctly rounded quotients, reciprocals and square roots of double, in every rounding mode.
#include "../_lib/pick.cuh"

__device__ double plain(double v) { return v != v ? __longlong_as_double(0x7ff8000000000000ll) : v; }
extern "C" __global__ void f64Division(const double* x, unsigned long long n, double* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const double a = x[i % n], b = x[pick(i, 1) % n];
    double r[RESULTS];
    r[0] = a / b;
    r[1] = __ddiv_rz(a, b);
    r[2] = __ddiv_rd(a, b);
    r[3] = __ddiv_ru(a, b);
    r[4] = __drcp_rn(b);
    r[5] = __drcp_rz(b);
    r[6] = __drcp_rd(b);
    r[7] = __drcp_ru(b);
    r[8] = sqrt(a);
    r[9] = __dsqrt_rz(a);
    r[10] = __dsqrt_rd(a);
    r[11] = __dsqrt_ru(a);
    for (int k = 0; k < RESULTS; ++k) out[k * BLOCKS * THREADS + i] = plain(r[k]);
}
