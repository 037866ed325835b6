// Remainders of division. They are exact, but compilers reach them through an approximate quotient that a
// correction repairs: PTX does not pin that instruction's bits, so the model refuses by name.
extern "C" __global__ void remainders(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float a = x[i % n] * 16.0f, b = x[(i + 1) % n] + 0.5f;
    out[i] = fmodf(a, b);
    out[all + i] = remainderf(a, b);
    out[2 * all + i] = (float)fmod((double)a, (double)b);
}
