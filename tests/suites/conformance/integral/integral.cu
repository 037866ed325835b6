// Rounding to whole numbers within float and double. Adding -0.0 changes nothing but gives a NaN its one form.
extern "C" __global__ void integral(const float* x, unsigned long long n, float* out, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float raw = x[i % n];
    const float v = (i & 1) ? raw : __uint_as_float((__float_as_uint(raw) & 0x87ffffffu) | 0x40000000u) * 0.5f;
    out[i] = __fadd_rn(rintf(v), -0.0f);
    out[all + i] = __fadd_rn(floorf(v), -0.0f);
    out[2 * all + i] = __fadd_rn(ceilf(v), -0.0f);
    out[3 * all + i] = __fadd_rn(truncf(v), -0.0f);
    out[4 * all + i] = __fadd_rn(roundf(v), -0.0f);
    out[5 * all + i] = v - floorf(v);
    const double d = v == v ? (double)v * 1.25 : 0.5;
    wide[i] = rint(d);
    wide[all + i] = floor(d);
    wide[2 * all + i] = ceil(d);
    wide[3 * all + i] = trunc(d);
    wide[4 * all + i] = round(d);
}
