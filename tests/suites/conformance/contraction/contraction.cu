// Expressions whose bits depend on the fusing of a*b+c: what -fmad=false is for.
#include "../_lib/pick.cuh"

extern "C" __global__ void contraction(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float a = x[i % n], b = x[pick(i, 1) % n], c = x[pick(i, 2) % n], d = x[pick(i, 3) % n];
    out[i] = a * b + c * d;                                    // dot2
    out[all + i] = ((a * 0.25f + b) * a + c) * a + d;          // Horner
    out[2 * all + i] = a * c - b * d;                          // complex product, real part
    out[3 * all + i] = a * d + b * c;                          // and imaginary part
    out[4 * all + i] = a * a - b * b;
    out[5 * all + i] = a + b * c - d;
    out[6 * all + i] = (a + b) * (c - d) + a;
    out[7 * all + i] = a * b - a * b;
}
