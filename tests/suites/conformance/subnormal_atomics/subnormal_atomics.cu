// atomicAdd on subnormals: global memory flushes them, shared memory keeps them, whatever -ftz says.
#include "../_lib/pick.cuh"

extern "C" __global__ void subnormalAtomics(const float* x, unsigned long long n, float* global, float* shared, float* doubleSum)
{
    __shared__ float own[THREADS];
    const unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    const unsigned a = __float_as_uint(x[i % n]), b = __float_as_uint(x[pick(i, 1) % n]);
    const unsigned start = a & 0x80ffffffu;                     // subnormal or barely normal
    const float step = __uint_as_float(b & 0x80ffffffu);
    ((unsigned*)global)[i] = start;
    ((unsigned*)own)[t] = start;
    atomicAdd(global + i, step);
    atomicAdd(own + t, step);
    shared[i] = own[t];
    ((unsigned long long*)doubleSum)[i] = (unsigned long long)(a & 0x801fffffu) << 32 | b;
    atomicAdd((double*)doubleSum + i, __hiloint2double((int)(b & 0x801fffffu), (int)a));
}
