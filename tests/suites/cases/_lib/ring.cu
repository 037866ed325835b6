// Four ranks' buffers of n/4 elements are summed as a ring all-reduce would: chunk c starts at rank c mod 4 and
// goes round. So the order of an element's sum follows from the chunk that it falls into.
extern "C" __global__ void ringSum(const float* ranks, unsigned long long n, unsigned int* arrivals, float* sums)
{
    unsigned int elements = (unsigned int)(n / 4);
    unsigned int i = blockIdx.x * THREADS + threadIdx.x;
    unsigned int start = i / CHUNK;
#if VARYING
    __shared__ unsigned int arrival;
    if (threadIdx.x == 0)
        arrival = atomicAdd(arrivals, 1u);
    __syncthreads();
    start = arrival;
#endif
    if (i < elements) {
        float sum = ranks[(start % 4) * elements + i];
        for (unsigned int hop = 1; hop < 4; ++hop)
            sum += ranks[((start + hop) % 4) * elements + i];
        sums[i] = sum;
    }
}
