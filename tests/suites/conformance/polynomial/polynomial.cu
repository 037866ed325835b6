// Polynomials of a reduced argument, as math libraries evaluate them: no table, no approximate instruction.
extern "C" __global__ void polynomial(const float* x, unsigned long long n, float* out, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float v = x[i % n];
    const float k = rintf(v * 1.44269504f), r = v - k * 0.693147182f;
    float p = 1.9875691e-4f;
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665795e-2f;
    p = p * r + 1.6666666e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    out[i] = p * __int_as_float((127 + (int)k) << 23);
    const float even = (v * v * 0.0416f - 0.5f) * v * v + 1.0f, odd = v * (1.0f - v * v * 0.16666667f);
    out[all + i] = even * odd - odd / (2.0f + even * even);
    const double d = v;
    wide[i] = ((((d * 0.2 - 0.25) * d + 0.3333333333333333) * d - 0.5) * d + 1.0) * d;
}
