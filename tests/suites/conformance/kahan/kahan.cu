// Compensated sums, float and double-float, a row a thread: contraction and reassociation would break them.
extern "C" __global__ void kahan(const float* x, unsigned long long n, float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    float sum = 0.0f, lost = 0.0f, high = 0.0f, low = 0.0f;
    for (unsigned k = 0; k < LENGTH; ++k) {
        const float v = x[(i * 31u + k * 17u) % n];
        const float y = v - lost;
        const float t = sum + y;
        lost = (t - sum) - y;
        sum = t;
        // TwoProd and TwoSum: the exact product's two parts, folded in.
        const float p = v * v, e = fmaf(v, v, -p);
        const float s = high + p, b = s - high;
        low += ((high - (s - b)) + (p - b)) + e;
        high = s;
    }
    out[i] = sum;
    out[all + i] = lost;
    out[2 * all + i] = high;
    out[3 * all + i] = high + low;
}
