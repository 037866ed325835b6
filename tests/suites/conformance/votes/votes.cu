// Ballots, votes and matches.
extern "C" __global__ void votes(const unsigned* x, unsigned long long n, unsigned* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS, full = 0xffffffffu;
    const unsigned v = x[i % n];
    out[i] = __ballot_sync(full, v & 4u);
    out[all + i] = __any_sync(full, v % 64u == 0u) * 2u + __all_sync(full, v != 0x7fc00000u);
    out[2 * all + i] = __match_any_sync(full, v & 7u);
    out[3 * all + i] = __match_any_sync(full, (unsigned long long)(v & 3u) << 40);
    int same;
    unsigned lanes = __match_all_sync(full, (v >> 31) & (threadIdx.x >> 10), &same);
    out[4 * all + i] = lanes + (unsigned)same;
    lanes = __match_all_sync(full, v, &same);
    out[5 * all + i] = lanes + (unsigned)same;
    unsigned uniform;
    asm volatile("{ .reg .pred p, q; setp.lt.u32 p, %1, 0x80000000; vote.sync.uni.pred q, p, 0xffffffff; selp.u32 %0, 1, 0, q; }"
        : "=r"(uniform) : "r"(v & (blockIdx.x ? 0x7fffffffu : full)));
    out[6 * all + i] = uniform;
    const unsigned ahead = __ballot_sync(full, v & 1u) & ((1u << (threadIdx.x & 31u)) - 1u);
    out[7 * all + i] = __popc(ahead);
}
