// Three kernels whose outcome is known before they run. See reprodb/canaries.py.

#define FIRST (blockIdx.x * blockDim.x + threadIdx.x)
#define STRIDE (gridDim.x * blockDim.x)

// Integers add up to the same in any order.
extern "C" __global__ void integerSum(const unsigned int* x, unsigned long long n, unsigned int* total)
{
    unsigned int sum = 0;
    for (unsigned int i = FIRST; i < n; i += STRIDE)
        sum += x[i];
    atomicAdd(total, sum);
}

// One rounding or two: the difference is all that is left.
extern "C" __global__ void productPlus(const float* x, const float* y, float* rest)
{
    rest[0] = x[0] * x[0] + y[0];
}

// Floating-point additions in the order in which they arrive.
extern "C" __global__ void arrivalSum(const float* x, unsigned long long n, float* total)
{
    for (unsigned int i = FIRST; i < n; i += STRIDE)
        atomicAdd(total, x[i]);
}

// Three numbers in two groupings, every addition an intrinsic: no flag and no compiler moves it.
extern "C" __global__ void twoGroupings(const float* x, float* left, float* right)
{
    left[0] = __fadd_rn(__fadd_rn(x[0], x[1]), x[2]);
    right[0] = __fadd_rn(x[0], __fadd_rn(x[1], x[2]));
}
