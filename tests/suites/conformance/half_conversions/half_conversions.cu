// float to half and bfloat16 in the roundings PTX has, and back through an addition.
#include "../_lib/pick.cuh"

typedef unsigned short u16;
#define TO16(op, d, a) asm(op " %0, %1;" : "=h"(d) : "f"(a))
__device__ float fromHalf(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
extern "C" __global__ void halfConversions(const float* x, unsigned long long n, u16* out, unsigned* pairs, float* back)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float v = x[i % n], w = x[pick(i, 1) % n];
    // Scaled so that most land in the range of half, its subnormals included.
    const float a = (i & 1) ? v : __uint_as_float((__float_as_uint(v) & 0x87ffffffu) | 0x30000000u);
    u16 r[RESULTS];
    TO16("cvt.rn.f16.f32", r[0], a);
    TO16("cvt.rz.f16.f32", r[1], a);
    TO16("cvt.rm.f16.f32", r[2], a);
    TO16("cvt.rp.f16.f32", r[3], a);
    TO16("cvt.rn.ftz.f16.f32", r[4], a);
    TO16("cvt.rn.sat.f16.f32", r[5], a);
    TO16("cvt.rn.bf16.f32", r[6], v);
    TO16("cvt.rz.bf16.f32", r[7], v);
    TO16("cvt.rn.relu.f16.f32", r[8], a);
    TO16("cvt.rn.relu.bf16.f32", r[9], v);
    asm("cvt.rn.f16.s32 %0, %1;" : "=h"(r[10]) : "r"(__float_as_int(v) >> (i & 31u)));
    asm("cvt.rn.f16.u16 %0, %1;" : "=h"(r[11]) : "h"((u16)__float_as_uint(v)));
    for (int k = 0; k < RESULTS; ++k) out[k * all + i] = r[k];
    unsigned d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(a), "f"(w));
    pairs[i] = d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(v), "f"(w));
    pairs[all + i] = d;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(a), "f"(w));
    pairs[2 * all + i] = d;
    back[i] = fromHalf(r[0]) + 1.0f;
    back[all + i] = fromHalf((u16)__float_as_uint(v)) * 0.5f;
    back[2 * all + i] = __uint_as_float((unsigned)r[6] << 16) + fromHalf(r[1]);
    int whole;
    asm("cvt.rni.s32.f16 %0, %1;" : "=r"(whole) : "h"(r[0]));
    back[3 * all + i] = (float)whole;
}
