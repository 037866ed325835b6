// Integer hashes and generators, 32 and 64 bits, and floats made of their bits.
typedef unsigned long long u64;
extern "C" __global__ void hashing(const unsigned* x, u64 n, u64* out, float* uniform)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    u64 s = 0xcbf29ce484222325ull;
    for (unsigned k = 0; k < 6; ++k) {
        const unsigned w = x[(i + k) % n];
        for (int byte = 0; byte < 4; ++byte) s = (s ^ (w >> 8 * byte & 255u)) * 0x100000001b3ull;
    }
    out[i] = s;
    unsigned h = x[i % n];
    h ^= h >> 16; h *= 0x85ebca6bu; h ^= h >> 13; h *= 0xc2b2ae35u; h ^= h >> 16;
    s += (u64)h * 6364136223846793005ull + 1442695040888963407ull;
    const unsigned mixed = (unsigned)(((s >> 18) ^ s) >> 27), turn = (unsigned)(s >> 59);
    const unsigned r = mixed >> turn | mixed << (-turn & 31u);
    out[BLOCKS * THREADS + i] = s ^ r;
    uniform[i] = (float)(r >> 8) * 5.9604645e-8f;
    uniform[BLOCKS * THREADS + i] = __uint_as_float(0x3f800000u | r >> 9) - 1.0f;
}
