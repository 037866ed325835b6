// One mathematical function an element, FUNCTION of one or two arguments of type REAL.
extern "C" __global__ void apply1(const REAL* x, unsigned long long n, REAL* o)
{
#if ARGUMENTS == 1
    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        o[i] = FUNCTION(x[i]);
#endif
}

extern "C" __global__ void apply2(const REAL* x, const REAL* y, unsigned long long n, REAL* o)
{
#if ARGUMENTS == 2
    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        o[i] = FUNCTION(x[i], y[i]);
#endif
}
