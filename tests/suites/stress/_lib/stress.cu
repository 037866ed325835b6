// Three kernels of 64 elements: one reads a word that nothing wrote, one lets an address into its result, and one
// does neither.

// rest is written at 0 … 62 alone, and total adds all 64 up as whole numbers.
extern "C" __global__ void fillRest(const unsigned int* x, unsigned int* rest)
{
    if (threadIdx.x < 63)
        rest[threadIdx.x] = x[threadIdx.x];
}

extern "C" __global__ void addUp(const unsigned int* rest, unsigned int* total)
{
    unsigned int sum = 0;
    for (int i = 0; i < 64; i++)
        sum += rest[i];
    total[0] = sum;
}

extern "C" __global__ void withAddress(const unsigned int* x, unsigned int* total)
{
    total[0] = x[0] + (unsigned int)((unsigned long long)x >> 8 & 0xfff);
}

extern "C" __global__ void steady(const unsigned int* x, unsigned int* total)
{
    total[0] = x[0] + x[63];
}
