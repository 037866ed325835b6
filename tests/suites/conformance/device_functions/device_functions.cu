// Calls that stay calls: scalars, structs by value, pointers, several results.
struct Complex { float re, im; };
__device__ __noinline__ Complex times(Complex a, Complex b)
{
    Complex r;
    r.re = a.re * b.re - a.im * b.im;
    r.im = a.re * b.im + a.im * b.re;
    return r;
}
__device__ __noinline__ double mean(const float* p, int count)
{
    double s = 0.0;
    for (int k = 0; k < count; ++k) s += p[k];
    return s / count;
}
__device__ __noinline__ void divide(int a, int b, int* quotient, int* rest) { *quotient = a / b; *rest = a % b; }
extern "C" __global__ void deviceFunctions(const float* x, unsigned long long n, float* out, int* whole)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    Complex z = {x[i % n], x[(i + 1) % n]}, c = z;
    for (unsigned k = 0; k < 1 + i % 3; ++k) z = times(z, c);
    out[i] = z.re;
    out[all + i] = z.im;
    out[2 * all + i] = (float)mean(x + i % (n - 5), 1 + (int)(i % 5));
    int q, r;
    divide((int)(i * 7919u) - 3000, 1 + (int)(i % 17), &q, &r);
    whole[i] = q;
    whole[all + i] = r;
    whole[2 * all + i] = q * 31 + r;
}
