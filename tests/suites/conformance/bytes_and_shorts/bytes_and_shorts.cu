// Arithmetic of 8- and 16-bit integers: sign and zero extension, truncation, 16-bit products.
#include "../_lib/pick.cuh"

extern "C" __global__ void bytesAndShorts(const unsigned char* x, unsigned long long n, short* out, unsigned char* low, int* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const signed char a = (signed char)x[i % n];
    const unsigned char b = x[pick(i, 1) % n];
    const short s = *(const short*)(x + 2 * (i % (n / 2)));
    const unsigned short u = *(const unsigned short*)(x + 2 * ((i * 5u + 3u) % (n / 2)));
    out[i] = (short)(a * b);
    out[all + i] = (short)(s * (short)u + a);
    out[2 * all + i] = (short)(s >> (b & 15));
    out[3 * all + i] = (short)(u / ((b & 15) + 1)) - (short)(s % 13);
    low[i] = (unsigned char)(a + b);
    low[all + i] = (unsigned char)((s < (short)u ? s : u) >> 4);
    low[2 * all + i] = (unsigned char)(a < 0 ? -a : a);
    short m;
    asm("mul.hi.s16 %0, %1, %2;" : "=h"(m) : "h"(s), "h"((short)u));
    wide[i] = m;
    int w;
    asm("mul.wide.u16 %0, %1, %2;" : "=r"(w) : "h"(s), "h"(u));
    wide[all + i] = w;
    asm("mad.wide.s16 %0, %1, %2, %3;" : "=r"(w) : "h"(s), "h"((short)u), "r"((int)a));
    wide[2 * all + i] = w;
    asm("mad.lo.u16 %0, %1, %2, %3;" : "=h"(m) : "h"(s), "h"((short)u), "h"((short)b));
    wide[3 * all + i] = m;
}
