// Loops whose lanes run different numbers of rounds, with breaks, continues and nesting.
extern "C" __global__ void divergentLoops(const unsigned* x, unsigned long long n, unsigned* out, float* sums)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    unsigned v = x[i % n] % 97u + 1u, steps = 0, peak = v;
    while (v != 1u) {                       // Collatz
        v = v & 1u ? 3u * v + 1u : v / 2u;
        if (v > peak) peak = v;
        ++steps;
    }
    out[i] = steps * 65536u + peak;
    float s = 0.0f;
#pragma unroll 1
    for (unsigned a = 0; a < i % 7u; ++a) {
#pragma unroll 1
        for (unsigned b = a; b < 9u; ++b) {
            if ((a * b + i) % 4u == 1u) continue;
            s = s * 0.75f + (float)(a + b);
            if (s > 20.0f) break;
        }
        do { s *= 0.5f; } while (s > 3.0f);
    }
    sums[i] = s;
    unsigned a = x[i % n] | 1u, b = x[(i + 5u) % n] % 1000u;
    a %= 1000u;
    while (b) { const unsigned r = a % b; a = b; b = r; }   // Euclid
    out[BLOCKS * THREADS + i] = a;
}
