// The order of a sum by architecture: from sm_90 on the elements from first to last, before from last to first.
extern "C" __global__ void sumByArchitecture(const float* x, float* total)
{
    float sum = 0.0f;
    for (int i = 0; i < COUNT; ++i) {
#if __CUDA_ARCH__ >= 900
        sum += x[i];
#else
        sum += x[COUNT - 1 - i];
#endif
    }
    total[0] = sum;
}
