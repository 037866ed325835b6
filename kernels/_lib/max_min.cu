// The largest and the smallest of each row of eight, four of x and four of y, folded by one fixed tree in two
// ways: with the instructions max and min, or (SELECT) with a comparison that keeps the left side unless the
// right one is greater. Numbers alone would not tell the two apart; NaNs and zeros of both signs do.

static __device__ __forceinline__ float larger(float a, float b)
{
#if SELECT
    return b > a ? b : a;
#else
    return fmaxf(a, b);
#endif
}

static __device__ __forceinline__ float smaller(float a, float b)
{
#if SELECT
    return b < a ? b : a;
#else
    return fminf(a, b);
#endif
}

// One row a group of eight lanes: lanes 0 to 3 hold x[4r .. 4r+3], lanes 4 to 7 hold y[4r .. 4r+3]. Lane l meets
// lane l + 4, then l + 2, then l + 1.
extern "C" __global__ void maxMinRows(const float* x, const float* y, unsigned long long n, float* largest,
                                      float* smallest)
{
    unsigned long long row = ((unsigned long long)blockIdx.x * THREADS + threadIdx.x) / 8;
    unsigned int lane = threadIdx.x % 8;
    bool there = row < n / 4;
    float value = there ? (lane < 4 ? x : y)[row * 4 + lane % 4] : 0.0f;
    float most = value, least = value;
    for (unsigned int step = 4; step > 0; step /= 2) {
        most = larger(most, __shfl_down_sync(0xffffffffu, most, step, 8));
        least = smaller(least, __shfl_down_sync(0xffffffffu, least, step, 8));
    }
    if (there && lane == 0) {
        largest[row] = most;
        smallest[row] = least;
    }
}
