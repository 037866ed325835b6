// ldexpf: exact, but some compiler versions multiply by powers of two that an approximate instruction makes,
// which the model refuses, and others by powers made of bits, which it predicts.
extern "C" __global__ void scaling(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    out[i] = ldexpf(x[i % n], (int)(i * 3u % 331u) - 165);
}
