// Integers of every width to float and double in every rounding.
#include "../_lib/pick.cuh"

typedef unsigned long long u64;
extern "C" __global__ void intToFloat(const u64* x, u64 n, float* out, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const u64 a = x[i % n] >> (i & 31u);
    const int s = (int)x[pick(i, 1) % n];
    const unsigned u = (unsigned)s;
    float r[16];
    r[0] = __int2float_rn(s);
    r[1] = __int2float_rz(s);
    r[2] = __int2float_rd(s);
    r[3] = __int2float_ru(s);
    r[4] = __uint2float_rn(u);
    r[5] = __uint2float_rd(u);
    r[6] = __uint2float_ru(u);
    r[7] = __ll2float_rn((long long)a);
    r[8] = __ll2float_rz(-(long long)a);
    r[9] = __ll2float_rd(-(long long)a);
    r[10] = __ull2float_rn(a);
    r[11] = __ull2float_ru(a);
    r[12] = (float)(short)s;
    r[13] = (float)(unsigned char)s;
    r[14] = (float)(signed char)(s >> 3);
    r[15] = (float)(unsigned short)(s >> 5);
    for (int k = 0; k < 16; ++k) out[k * all + i] = r[k];
    wide[i] = __int2double_rn(s);
    wide[all + i] = __ll2double_rn((long long)x[i % n]);
    wide[2 * all + i] = __ll2double_rd((long long)x[i % n]);
    wide[3 * all + i] = __ull2double_ru(x[i % n]);
    wide[4 * all + i] = __ull2double_rz(x[i % n]);
    wide[5 * all + i] = __uint2double_rn(u);
}
