// Small kernels whose builds differ in ways that a trace has to see through.

// A helper that is inlined: the fused multiply-add joins what stands on two lines.
static __device__ __forceinline__ float square(float v)
{
    return v * v;
}

extern "C" __global__ void throughHelper(const float* x, unsigned long long n, float* out)
{
    unsigned int i = blockIdx.x * THREADS + threadIdx.x;
    out[i] = x[i] * 0.75f + square(x[i]);
}

// Two stages, the first one's results nowhere recorded.
extern "C" __global__ void terms(const float* x, unsigned long long n, float* squares)
{
    unsigned int i = (blockIdx.y * gridDim.x + blockIdx.x) * THREADS + threadIdx.y * blockDim.x + threadIdx.x;
    squares[i] = x[i] * x[i] + 0.25f;
}

extern "C" __global__ void gather(const float* squares, double* total)
{
    double sum = 0.0;
#pragma unroll 1
    for (unsigned int i = 0; i < BLOCKS * THREADS; ++i)
        sum += squares[i];
    total[0] = sum;
}

// A warp's sum by shuffles, of doubles, which travel in halves.
extern "C" __global__ void byShuffles(const float* x, unsigned long long n, double* out)
{
    unsigned int i = blockIdx.x * THREADS + threadIdx.x;
    double v = x[i] * x[i] + 0.25f;
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0)
        out[i / 32] = v;
}

// Under -DPAIRS no line with arithmetic is one of the other build's.
extern "C" __global__ void inOrder(const float* x, unsigned long long n, float* out)
{
    float sum = 0.0f;
    unsigned int first = (blockIdx.x * THREADS + threadIdx.x) * 8;
#ifdef PAIRS
    for (unsigned int i = first; i < first + 8; i += 2)
        sum += x[i] + x[i + 1];
    out[first / 8] = sum;
#else
    for (unsigned int i = first; i < first + 8; ++i)
        sum += x[i];
    out[first / 8] = sum;
#endif
}
