// Minimum and maximum with NaN operands, signed zeros and subnormals; also the forms that propagate NaN.
#include "../_lib/pick.cuh"

extern "C" __global__ void minmax(const float* x, unsigned long long n, float* out, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float a = x[i % n], b = x[pick(i, 1) % n];
    out[i] = fminf(a, b);
    out[all + i] = fmaxf(a, b);
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    out[2 * all + i] = r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    out[3 * all + i] = r;
    asm("min.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    out[4 * all + i] = r;
    asm("max.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    out[5 * all + i] = r;
    out[6 * all + i] = fminf(0.0f * a, -0.0f);
    out[7 * all + i] = fmaxf(-0.0f, b == b ? 0.0f : -0.0f);
    const double da = a == a ? (double)a : 0.0, db = b == b ? (double)b : -0.0;
    wide[i] = fmin(da, db);
    wide[all + i] = fmax(da, db);
}
