// Shuffles, votes and reductions by some lanes of a warp while the others go another way.
extern "C" __global__ void partialMasks(const int* x, unsigned long long n, int* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const unsigned lane = threadIdx.x & 31u;
    const int v = x[i % n];
    int r = 0;
    if (lane % 3 == 0) {
        const unsigned mask = 0x49249249u;
        r = __shfl_sync(mask, v, (int)(lane * 2u % 33u / 3u * 3u));
        r ^= (int)__ballot_sync(mask, v < 0);
        r += __reduce_add_sync(mask, v);
    } else if (lane & 1) {
        const unsigned mask = 0xaaaaaaaau & ~0x49249249u;
        for (int k = 0; k < 3; ++k) r += __any_sync(mask, (v >> k) & 1) << k;
        r = r * 64 + __reduce_max_sync(mask, v) % 61;
    } else {
        const unsigned mask = 0x55555555u & ~0x49249249u;
        r = (int)__reduce_xor_sync(mask, (unsigned)v) + __all_sync(mask, v != 12345);
    }
    out[i] = r;
    // All lanes together again.
    out[all + i] = __shfl_xor_sync(0xffffffffu, r, 1);
}
