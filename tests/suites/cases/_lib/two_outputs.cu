// Two result buffers. ODD is the element of the second that comes out one ULP high, or -1.
extern "C" __global__ void sumsAndSquares(const float* x, float* sums, float* squares)
{
    int i = threadIdx.x;
    float sum = 0.0f, square = 0.0f;
    for (int k = 0; k < 16; ++k) {
        float value = x[i * 16 + k];
        sum += value;
        square += value * value;
    }
    sums[i] = sum;
    squares[i] = i == ODD ? __uint_as_float(__float_as_uint(square) + 1u) : square;
}
