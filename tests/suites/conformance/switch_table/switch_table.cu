// A dense switch, which compilers turn into a table of branch targets, inside a loop.
extern "C" __global__ void switchTable(const unsigned* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    unsigned code = x[i % n];
    float v = 1.0f + (float)(i % 13u);
#pragma unroll 1
    for (int k = 0; k < 8; ++k, code >>= 4) {
        switch (code & 15u) {
        case 0: v += 1.5f; break;
        case 1: v *= 1.25f; break;
        case 2: v = v - 7.0f; break;
        case 3: v = 1.0f - v; break;
        case 4: v = v * v * 0.125f; break;
        case 5: v = fabsf(v); // falls through
        case 6: v += 0.1f; break;
        case 7: v = fminf(v, 3.0f); break;
        case 8: v = fmaxf(v, -2.0f); break;
        case 9: v = floorf(v); break;
        case 10: out[BLOCKS * THREADS + i] = v; v += 2.0f; break;
        case 11: if (v > 0.0f) return; v = 5.0f; break;
        default: v *= 0.9f;
        }
    }
    out[i] = v;
}
