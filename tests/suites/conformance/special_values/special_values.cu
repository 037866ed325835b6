// NaN payloads, infinities and signed zeros through arithmetic and through every comparison.
#include "../_lib/pick.cuh"

extern "C" __global__ void specialValues(const float* x, unsigned long long n, float* out, unsigned* flags)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float a = x[i % n], b = x[pick(i, 1) % n];
    out[i] = a + b;
    out[all + i] = a - a;
    out[2 * all + i] = a * 0.0f;
    out[3 * all + i] = __fmaf_rn(a, b, a);
    out[4 * all + i] = (a == a ? copysignf(a, b) : 1.0f);
    out[5 * all + i] = __fmul_rn(a, 1.0f);
    out[6 * all + i] = a < b ? a + 0.0f : b + 0.0f;
    out[7 * all + i] = __fadd_rn(a, -0.0f);
    unsigned f = 0;
    f |= (a < b) << 0 | (a <= b) << 1 | (a == b) << 2 | (a != b) << 3 | (a > b) << 4 | (a >= b) << 5;
    f |= (unsigned)!(a < b) << 6 | (unsigned)!(a >= b) << 7;
    f |= (unsigned)(isnan(a) != 0) << 8 | (unsigned)(isinf(b) != 0) << 9 | (unsigned)(signbit(a) != 0) << 10;
#define FLAG(test, bit) asm("{ .reg .pred p; " test "; @p or.b32 %0, %0, " bit "; }" : "+r"(f) : "f"(a), "f"(b))
    FLAG("setp.ltu.f32 p, %1, %2", "0x800");
    FLAG("setp.equ.f32 p, %1, %2", "0x1000");
    FLAG("setp.neu.f32 p, %1, %2", "0x2000");
    FLAG("setp.num.f32 p, %1, %2", "0x4000");
    FLAG("setp.nan.f32 p, %1, %2", "0x8000");
    FLAG("setp.gtu.f32 p, %1, %2", "0x10000");
    FLAG("setp.leu.f32 p, %1, %2", "0x20000");
    FLAG("testp.finite.f32 p, %1", "0x40000");
    FLAG("testp.number.f32 p, %1", "0x80000");
    FLAG("testp.subnormal.f32 p, %1", "0x100000");
    FLAG("testp.normal.f32 p, %1", "0x200000");
    FLAG("testp.infinite.f32 p, %1", "0x400000");
    FLAG("testp.notanumber.f32 p, %1", "0x800000");
    flags[i] = f;
    unsigned s;
    asm("set.lt.u32.f32 %0, %1, %2;" : "=r"(s) : "f"(a), "f"(b));
    flags[all + i] = s;
}
