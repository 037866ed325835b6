// Loads and stores of two and four elements at a time, of every width.
extern "C" __global__ void vectors(const float4* x, unsigned long long n, float4* quads, double2* pairs, uchar4* bytes, short2* shorts)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const float4 v = x[i % (n / 4)];
    const float2 w = ((const float2*)x)[(i * 7u + 3u) % (n / 2)];
    const uchar4 c = ((const uchar4*)x)[(i * 5u + 1u) % n];
    const short4 s = ((const short4*)x)[(i * 3u + 2u) % (n / 2)];
    const int2 k = ((const int2*)x)[i % (n / 2)];
    quads[i] = make_float4(v.w + w.x, v.z * w.y, v.y - v.x, v.x + v.z);
    pairs[i] = make_double2((double)k.x * 0.5, (double)k.y + (double)s.w);
    bytes[i] = make_uchar4(c.w, c.x + c.y, c.z ^ 0x5a, (unsigned char)(s.x >> 4));
    shorts[i] = make_short2((short)(s.y + s.z), (short)(c.x * 257 - s.x));
}
