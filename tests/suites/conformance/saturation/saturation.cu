// Results clamped to [0, 1] or to an integer type's range.
#include "../_lib/pick.cuh"

extern "C" __global__ void saturation(const float* x, unsigned long long n, float* out, int* whole)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float raw = x[i % n], b = x[pick(i, 1) % n];
    const float a = (i & 1) ? raw : __uint_as_float((__float_as_uint(raw) & 0x80ffffffu) | 0x3f000000u);
    float r;
    out[i] = __saturatef(a);
    asm("add.sat.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    out[all + i] = r;
    asm("mul.rn.sat.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    out[2 * all + i] = r;
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(a), "f"(b));
    out[3 * all + i] = r;
    asm("fma.rm.ftz.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(a));
    out[4 * all + i] = r;
    asm("cvt.sat.f32.f32 %0, %1;" : "=f"(r) : "f"(b));
    out[5 * all + i] = r;
    const int s = __float_as_int(raw), t = __float_as_int(b);
    int d;
    asm("add.sat.s32 %0, %1, %2;" : "=r"(d) : "r"(s), "r"(t));
    whole[i] = d;
    asm("sub.sat.s32 %0, %1, %2;" : "=r"(d) : "r"(s), "r"(t));
    whole[all + i] = d;
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(d) : "r"(s >> (i & 31)));
    whole[2 * all + i] = d;
    asm("cvt.sat.u8.s32 %0, %1;" : "=r"(d) : "r"(s >> (i & 31)));
    whole[3 * all + i] = d;
    asm("cvt.sat.u16.s32 %0, %1;" : "=r"(d) : "r"(s >> (i & 15)));
    whole[4 * all + i] = d;
    asm("cvt.sat.s32.u32 %0, %1;" : "=r"(d) : "r"(t));
    whole[5 * all + i] = d;
}
