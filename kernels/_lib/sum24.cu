// a + b + c with a = 2^24, b = 1, c = -2^24: four ways to add up three numbers, two answers. Each addition is
// an intrinsic that no compiler regroups, contracts or drops, whatever the flags.

extern "C" __global__ void sumLeft(const float* x, float* total)
{
    total[0] = __fadd_rn(__fadd_rn(x[0], x[1]), x[2]);
}

extern "C" __global__ void sumRight(const float* x, float* total)
{
    total[0] = __fadd_rn(x[0], __fadd_rn(x[1], x[2]));
}

extern "C" __global__ void sumWidened(const float* x, double* total)
{
    total[0] = (double)__fadd_rn(__fadd_rn(x[0], x[1]), x[2]);
}

extern "C" __global__ void sumFloat64(const float* x, double* total)
{
    total[0] = __dadd_rn(__dadd_rn((double)x[0], (double)x[1]), (double)x[2]);
}
