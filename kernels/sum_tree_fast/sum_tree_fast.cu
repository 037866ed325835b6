// A fixed tree at the speed of memory: one launch, FLIGHT vector loads of each thread under way at once, and as many
// sums a thread as it loads floats, so that no addition waits for the one before. Grid, block and FLIGHT are the
// manifest's constants: the order of all additions follows from them and n alone.

#define STRIDE ((unsigned long long)BLOCKS * THREADS)  // quads that the whole grid takes at a time

static __device__ __forceinline__ void add(float4& sum, const float4& value)
{
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
}

// Sums the block's values, lanes first and then warps, in a fixed order. Thread 0 gets the sum.
static __device__ __forceinline__ float sumBlock(float sum, float* scratch)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < THREADS / 32 ? scratch[threadIdx.x] : 0.0f;
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, distance);
    }
    return sum;
}

__device__ unsigned int finished = 0;

extern "C" __global__ void __launch_bounds__(THREADS)
    sumTreeFast(const float* x, unsigned long long n, float* partials, float* total)
{
    __shared__ float scratch[32];
    __shared__ bool last;
    float4 sums[FLIGHT];
#pragma unroll
    for (int i = 0; i < FLIGHT; ++i)
        sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const unsigned long long first = blockIdx.x * (unsigned long long)THREADS + threadIdx.x;
    const unsigned long long quads = n / 4;
    const unsigned long long rounds = quads / (FLIGHT * STRIDE);
    const float4* mine = reinterpret_cast<const float4*>(x) + first;
    for (unsigned long long round = 0; round < rounds; ++round, mine += FLIGHT * STRIDE) {
        float4 loaded[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i)
            loaded[i] = __ldcs(mine + i * STRIDE);
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i)
            add(sums[i], loaded[i]);
    }
    // The quads that fill no round, and then the elements that fill no quad.
    for (unsigned long long quad = rounds * FLIGHT * STRIDE + first; quad < quads; quad += STRIDE)
        add(sums[0], __ldcs(reinterpret_cast<const float4*>(x) + quad));
    if (4 * quads + first < n)
        sums[0].x += x[4 * quads + first];
#pragma unroll
    for (int half = FLIGHT / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i)
            add(sums[i], sums[i + half]);
    float sum = sumBlock((sums[0].x + sums[0].z) + (sums[0].y + sums[0].w), scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
        __threadfence();  // the sum is there before the count says so
        last = atomicInc(&finished, BLOCKS - 1) == BLOCKS - 1;
    }
    __syncthreads();
    if (!last)
        return;
    // Other blocks wrote these while this one ran: they are read past this multiprocessor's cache.
    sum = 0.0f;
    for (unsigned int i = threadIdx.x; i < BLOCKS; i += THREADS)
        sum += __ldcg(partials + i);
    sum = sumBlock(sum, scratch);
    if (threadIdx.x == 0)
        total[0] = sum;
}
