// Arrays of a thread's own, indexed at run time: insertion sort and histogram in local memory.
extern "C" __global__ void localArrays(const float* x, unsigned long long n, float* out, unsigned* counts)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    float v[9];
    unsigned char seen[16];
    for (int k = 0; k < 16; ++k) seen[k] = 0;
#pragma unroll 1
    for (int k = 0; k < 9; ++k) {
        const float w = x[(i * 9u + k) % n];
        seen[__float_as_uint(w) % 16u]++;
        int j = k;
        while (j > 0 && v[j - 1] > w) {
            v[j] = v[j - 1];
            --j;
        }
        v[j] = w;
    }
    out[i] = v[4];
    out[BLOCKS * THREADS + i] = v[8] - v[0];
    out[2 * BLOCKS * THREADS + i] = v[__float_as_uint(v[4]) % 9u];
    unsigned code = 0;
#pragma unroll 1
    for (int k = 0; k < 16; ++k) code = code * 5u + seen[(k * 7) % 16];
    counts[i] = code;
}
