// A tile turned in shared memory by a two-dimensional block, ragged at the edges.
extern "C" __global__ void transpose(const float* x, unsigned long long n, float* out)
{
    __shared__ float tile[TILE][TILE + 1];
    const unsigned column = blockIdx.x * TILE + threadIdx.x;
    for (unsigned k = threadIdx.y; k < TILE; k += ROWS) {
        const unsigned row = blockIdx.y * TILE + k;
        if (row < HEIGHT && column < WIDTH) tile[k][threadIdx.x] = x[row * WIDTH + column];
    }
    __syncthreads();
    const unsigned across = blockIdx.y * TILE + threadIdx.x;
    for (unsigned k = threadIdx.y; k < TILE; k += ROWS) {
        const unsigned down = blockIdx.x * TILE + k;
        if (across < HEIGHT && down < WIDTH) out[down * HEIGHT + across] = tile[threadIdx.x][k] * 1.5f + 0.1f;
    }
}
