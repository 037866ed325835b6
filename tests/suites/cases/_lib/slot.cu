// Four values, of which slot 2 is given as bits.
extern "C" __global__ void fillSlot(float* values)
{
    values[threadIdx.x] = threadIdx.x == 2 ? __uint_as_float(SLOT) : (float)threadIdx.x;
}
