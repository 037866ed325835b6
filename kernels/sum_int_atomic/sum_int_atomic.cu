// Integers added up by atomics as threads arrive: the order is as open as that of any float atomic, and the sum
// modulo 2^32 is the same in all of them.
#include "../_lib/block_reduce.cuh"

extern "C" __global__ void sumIntAtomic(const unsigned int* x, unsigned long long n, unsigned int* total)
{
    unsigned int sum = 0;
    for (unsigned long long i = FIRST; i < n; i += STRIDE)
        sum += x[i];
    atomicAdd(total, sum);
}
