// Fused products whose exact value lies at, just above and just below the middle of two floats,
// at normal and at subnormal size. A product in double, added and cast, rounds twice and gets these wrong.
extern "C" __global__ void fmaHalfway(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const unsigned m = __float_as_uint(x[i % n]);
    const float odd = __uint_as_float(0x3f800001u | (m & 0x007ffffeu));   // 1.xxx, last bit set
    const float half = __uint_as_float(0x33800000u);                      // 2^-24
    const float tiny = __uint_as_float(0x0d800000u + ((m & 7u) << 20));   // far below any last place
    const float sign = (m & 0x100u) ? -1.0f : 1.0f;
    out[i] = fmaf(half, 1.0f + (float)(m & 3u) * 1.1920929e-7f, odd);
    out[all + i] = fmaf(odd, half, sign * odd);
    out[2 * all + i] = fmaf(odd, odd, sign * tiny);
    out[3 * all + i] = fmaf(odd, 5.9604645e-8f * sign, 1.0f);
    // Results in the subnormal range: the last place is 2^-149 whatever the operands' exponents are.
    const float small = __uint_as_float(0x00800000u | (m & 0x007fffffu)); // in [2^-126, 2^-125)
    out[4 * all + i] = fmaf(small, 0.5f, sign * __uint_as_float(m & 3u));
    out[5 * all + i] = fmaf(small, -0.25f, sign * __uint_as_float((m >> 3) & 0x007fffffu));
    out[6 * all + i] = fmaf(odd, __uint_as_float(0x1f800000u), -odd * 5.4210109e-20f);
    out[7 * all + i] = fmaf(__uint_as_float(0x7f000000u), odd, -__uint_as_float(0x7f7fffffu));
}
