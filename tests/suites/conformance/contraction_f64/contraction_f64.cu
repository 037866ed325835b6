// The same expressions in double.
#include "../_lib/pick.cuh"

extern "C" __global__ void contractionF64(const float* x, unsigned long long n, double* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const double a = x[i % n] * 1.1, b = x[pick(i, 1) % n] / 3.0;
    const double c = x[pick(i, 2) % n] * 0.7, d = x[pick(i, 3) % n] / 7.0;
    out[i] = a * b + c * d;
    out[all + i] = ((a * 0.1 + b) * a + c) * a + d;
    out[2 * all + i] = a * c - b * d;
    out[3 * all + i] = a * a - b * b;
}
