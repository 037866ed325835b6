// Three-dimensional grids and blocks: every index of both, linearised, and a stencil across threads.
extern "C" __global__ void grid3d(const float* x, unsigned long long n, float* out, unsigned* where)
{
    __shared__ float cell[BZ][BY][BX];
    const unsigned tx = threadIdx.x, ty = threadIdx.y, tz = threadIdx.z;
    const unsigned thread = (tz * blockDim.y + ty) * blockDim.x + tx;
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    cell[tz][ty][tx] = x[i % n];
    __syncthreads();
    out[i] = cell[tz][ty][(tx + 1) % BX] + cell[tz][(ty + 1) % BY][tx] * 0.5f - cell[(tz + 1) % BZ][ty][tx];
    unsigned lane, warp, size;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(size));
    warp = thread / 32u;
    where[i] = (blockIdx.x + 2u * blockIdx.y + 10u * blockIdx.z) * 1000u + tx + 10u * ty + 100u * tz + lane * 100000u + warp * 7u + __popc(size);
}
