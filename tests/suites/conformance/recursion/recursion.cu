// Functions that call themselves, more than once on a path. The model puts every call's body in its place and
// refuses what has no end by name.
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned k)
{
    if (m == 0) return k + 1;
    if (k == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, k - 1));
}
__device__ __noinline__ float pairwise(const float* p, unsigned count)
{
    if (count == 1) return p[0];
    return pairwise(p, count / 2) + pairwise(p + count / 2, count - count / 2);
}
extern "C" __global__ void recursion(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    out[i] = pairwise(x + i % (n - 9), 1 + i % 9);
    out[BLOCKS * THREADS + i] = (float)ackermann(i % 3, i % 4);
}
