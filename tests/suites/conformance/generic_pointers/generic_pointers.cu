// One pointer that means shared, global, constant or local memory, lane by lane.
__constant__ float fixed[32] = {3.0f, 1.0f, 4.0f, 1.5f, 9.0f, 2.0f, 6.0f, 5.0f};
__device__ __noinline__ float fetch(const float* p, int step) { return p[0] * 2.0f + p[step]; }
__device__ __noinline__ void add(float* p, float v) { *p += v; }
extern "C" __global__ void genericPointers(const float* x, unsigned long long n, float* out)
{
    __shared__ float tile[THREADS];
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    float own[4] = {x[i % n], 1.0f, 2.0f, 3.0f};
    tile[t] = x[(i * 3u) % n];
    __syncthreads();
    const unsigned which = __float_as_uint(x[i % n]) >> 11;
    const float* p = which % 4 == 0   ? tile + (t & ~1u)
                     : which % 4 == 1 ? x + (i & ~1u) % (n - 1)
                     : which % 4 == 2 ? fixed + (which >> 3) % 31
                                      : own + (which >> 4) % 3;
    out[i] = fetch(p, 1);
    __syncthreads();
    add(which % 2 ? tile + t : own + 1, 0.5f);
    out[BLOCKS * THREADS + i] = tile[t] + own[1] + own[which % 4];
    unsigned shared;
    asm("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(shared) : "l"(p));
    out[2 * BLOCKS * THREADS + i] = (float)shared;
}
