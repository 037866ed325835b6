// Library functions that are exact or correctly rounded by construction.
#include "../_lib/pick.cuh"

extern "C" __global__ void exactMath(const float* x, unsigned long long n, float* out, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float a = x[i % n], b = x[pick(i, 1) % n];
    int e;
    out[i] = frexpf(a, &e);
    out[all + i] = (float)e;
    out[2 * all + i] = __int_as_float((107 + (int)(i % 41u)) << 23) * a;
    out[3 * all + i] = fdimf(a, b);
    out[4 * all + i] = nextafterf(a, b);
    out[5 * all + i] = (float)ilogbf(a) + logbf(a);
    float whole;
    const float part = modff(a * 8.0f, &whole);
    out[6 * all + i] = part + whole * 2.0f;
    out[7 * all + i] = (float)lrintf(a * 3.5f) + (float)llroundf(b * 2.5f);
    wide[i] = ldexp((double)b, (int)(i % 61u) - 30) + fabs((double)a);
}
