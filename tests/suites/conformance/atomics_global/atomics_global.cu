// Integer atomics in global memory. Sums, extrema and logic do not depend on the order of arrival;
// exchange, compare-and-swap and wrap-around counting are used where each thread has its own word.
extern "C" __global__ void atomicsGlobal(const unsigned* x, unsigned long long n, unsigned* out, unsigned long long* wide, unsigned* own)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const unsigned v = x[i % n], slot = v % 8u;
    atomicAdd(out + slot, v);
    atomicSub(out + 8 + slot, v);
    atomicMin(out + 16 + slot, v);
    atomicMax(out + 24 + slot, v);
    atomicMin((int*)out + 32 + slot, (int)v);
    atomicMax((int*)out + 40 + slot, (int)v);
    atomicAnd(out + 48 + slot, v | 0xff00u);
    atomicOr(out + 56 + slot, v & 0x10110u);
    atomicXor(out + 64 + slot, v);
    atomicInc(out + 72 + slot, 4u);
    atomicDec(out + 80 + slot, 6u);
    atomicAdd(wide + slot, (unsigned long long)v * v);
    atomicMax(wide + 8 + slot, (unsigned long long)v << 20);
    atomicMin((long long*)wide + 16 + slot, (long long)v - 0x80000000ll);
    atomicXor(wide + 24 + slot, (unsigned long long)v << 13 | v);
    unsigned* mine = own + i;
    *mine = v;
    unsigned r = atomicExch(mine, v + 1u);
    r = r * 3u + atomicCAS(mine, v + 1u, v ^ 0xffu);
    r = r * 3u + atomicCAS(mine, v + 1u, 17u);
    r = r * 3u + atomicInc(mine, v & 0xffffu);
    r = r * 3u + atomicDec(mine, 9u);
    r = r * 3u + atomicAdd(mine, r);
    own[all + i] = r;
}
