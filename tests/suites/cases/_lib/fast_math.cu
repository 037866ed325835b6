// Two things that fast math changes, each alone: what happens to subnormals, and how a division is done.
extern "C" __global__ void subnormalAdd(const unsigned int* bits, unsigned long long n, float* o)
{
    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        o[i] = __uint_as_float(bits[i]) + __uint_as_float(bits[n - 1 - i]);
}

extern "C" __global__ void scaledSum(const float* x, const float* y, unsigned long long n, float s, float* o)
{
    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        o[i] = x[i] / s + y[i] / s;
}
