// A normal number and the tail of a product: a*b is a subnormal number, the sum is not.
extern "C" __global__ void tail(const float* a, const float* b, const float* c, unsigned long long n, float* o)
{
    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        o[i] = a[i] * b[i] + c[i];
}
