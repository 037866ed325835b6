// Row sums by a warp: a strided loop, then a shuffle tree, then the block's warps through shared memory.
extern "C" __global__ void warpTree(const float* x, unsigned long long n, float* rows, float* blocks)
{
    __shared__ float sums[THREADS / 32];
    const unsigned lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    const unsigned row = blockIdx.x * (THREADS / 32u) + warp;
    float s = 0.0f;
    for (unsigned k = lane; k < COLUMNS; k += 32u) {
        const float v = x[(row * COLUMNS + k) % n];
        s += v * v + 0.25f;
    }
    for (int step = 16; step > 0; step /= 2) s += __shfl_xor_sync(0xffffffffu, s, step);
    if (lane == 0) { rows[row] = s; sums[warp] = s; }
    __syncthreads();
    if (warp == 0) {
        float v = lane < THREADS / 32u ? sums[lane] : 0.0f;
        for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
        if (lane == 0) blocks[blockIdx.x] = v;
    }
}
