// Warp-wide integer reductions in one instruction.
extern "C" __global__ void redux(const unsigned* x, unsigned long long n, unsigned* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS, full = 0xffffffffu;
    const unsigned v = x[i % n];
    out[i] = __reduce_add_sync(full, v);
    out[all + i] = __reduce_min_sync(full, v);
    out[2 * all + i] = __reduce_max_sync(full, v);
    out[3 * all + i] = (unsigned)__reduce_min_sync(full, (int)v);
    out[4 * all + i] = (unsigned)__reduce_max_sync(full, (int)v);
    out[5 * all + i] = __reduce_and_sync(full, v | 0x00ff0000u);
    out[6 * all + i] = __reduce_or_sync(full, v & 0x10101010u);
    out[7 * all + i] = __reduce_xor_sync(full, v);
}
