// Results that lie below the smallest normal number by less than half a last place: 2^-126 * (1 - 2^-2k).
// Rounded with an unbounded exponent they are normal; judged before rounding they are not.
#define TWO(op, k, a, b) asm(op " %0, %1, %2;" : "=f"(r[k]) : "f"(a), "f"(b))
#define THREE(op, k, a, b, c) asm(op " %0, %1, %2, %3;" : "=f"(r[k]) : "f"(a), "f"(b), "f"(c))
extern "C" __global__ void ftzTininess(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const unsigned m = __float_as_uint(x[i % n]);
    const unsigned k = 8u + i % 16u;                                         // 8 … 23
    const unsigned sign = m & 0x80000000u;
    const float above = __uint_as_float(sign | (0x00800000u + (1u << (23u - k))));  // 2^-126 * (1 + 2^-k)
    const float below = __uint_as_float(0x3f800000u - (1u << (24u - k)));           // 1 - 2^-k
    const float least = __uint_as_float(sign | 0x00800000u);
    const float wide = __uint_as_float(0x40000000u - (1u << (24u - k)));            // 2 * (1 - 2^-(k+1)) …
    float r[RESULTS];
    TWO("mul.rn.ftz.f32", 0, above, below);
    TWO("mul.rz.ftz.f32", 1, above, below);
    TWO("mul.rp.ftz.f32", 2, above, below);
    TWO("mul.rm.ftz.f32", 3, above, below);
    TWO("mul.rn.f32", 4, above, below);
    THREE("fma.rn.ftz.f32", 5, above, below, 0.0f);
    THREE("fma.rp.ftz.f32", 6, above, below, 0.0f);
    THREE("fma.rn.f32", 7, above, below, 0.0f);
    // The sum of a product and a normal number: 2^-125 * wide part minus 2^-126 and a little.
    THREE("fma.rn.ftz.f32", 8, least, wide, __uint_as_float(sign ^ 0x80800000u));
    THREE("fma.rn.ftz.f32", 9, above, __uint_as_float(0x3f800000u + (m & 7u)), __uint_as_float(sign ^ 0x80800000u ^ (m & 0x100u)));
    // Quotients: 2^-126 * (1 - 2^-k) / (1 - 2^-k + 2^-23), and by one last place more or less.
    const float part = __uint_as_float((sign | 0x00ffffffu) - (m & 15u));    // just below 2^-125
    TWO("div.rn.ftz.f32", 10, part, __uint_as_float(0x40000000u));
    TWO("div.rn.ftz.f32", 11, part, __uint_as_float(0x40000000u - 1u - (m >> 4 & 15u)));
    TWO("div.rn.f32", 12, part, __uint_as_float(0x40000000u - 1u - (m >> 4 & 15u)));
    TWO("div.rp.ftz.f32", 13, part, __uint_as_float(0x40000000u - 1u - (m >> 4 & 15u)));
    TWO("mul.rn.ftz.sat.f32", 14, above, below);
    TWO("sub.rn.ftz.f32", 15, __uint_as_float(0x01000000u + (m & 3u)), __uint_as_float(0x00800000u + (m >> 8 & 7u)));
    for (int j = 0; j < RESULTS; ++j) out[j * all + i] = r[j];
}
