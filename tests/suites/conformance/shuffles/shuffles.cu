// All four shuffles, whole warps and segments, of 32 and 64 bits, with the predicate that says "in range".
extern "C" __global__ void shuffles(const float* x, unsigned long long n, float* out, unsigned* flags, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS, full = 0xffffffffu;
    const float v = x[i % n];
    const int lane = (int)(threadIdx.x & 31u);
    const int pick = (int)(__float_as_uint(v) >> 7) & 63;
    out[i] = __shfl_sync(full, v, pick);
    out[all + i] = __shfl_sync(full, v, lane * 3 + 1, 8);
    out[2 * all + i] = __shfl_up_sync(full, v, 3);
    out[3 * all + i] = __shfl_up_sync(full, v, 2, 16);
    out[4 * all + i] = __shfl_down_sync(full, v, 5);
    out[5 * all + i] = __shfl_down_sync(full, v, 1, 4);
    out[6 * all + i] = __shfl_xor_sync(full, v, 17);
    out[7 * all + i] = __shfl_xor_sync(full, v, 3, 2);
    wide[i] = __shfl_down_sync(full, (double)(lane * 3) + 0.1, 7) + __shfl_sync(full, (double)pick, 9, 16);
    unsigned r, f = 0;
#define SHUFFLE(mode, b, c, bit) \
    asm volatile("{ .reg .pred p; shfl.sync." mode ".b32 %0|p, %2, %3, %4, 0xffffffff; @p or.b32 %1, %1, " bit "; }" \
        : "=r"(r), "+r"(f) : "r"(__float_as_uint(v)), "r"(b), "r"(c)); \
    f ^= r << 4
    SHUFFLE("up", 5, 0x0800, "1");      // segments of 24 … as the mask field defines them
    SHUFFLE("down", 9, 0x181f, "2");
    SHUFFLE("bfly", 31, 0x0f, "4");
    SHUFFLE("idx", pick, 0x1c1f, "8");
    flags[i] = f;
}
