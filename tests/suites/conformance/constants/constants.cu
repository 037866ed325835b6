// Constant memory with a varying index, initialised and zero-initialised global variables.
__constant__ float weights[9] = {1.0f, -2.5f, 0.3333333f, 1e-40f, 3e38f, -0.0f, 7.0f, 0.1f, -1e10f};
__constant__ double scales[3] = {1.0, 1e-300, -3.14159265358979};
__constant__ short offsets[5] = {-3, 2, 11, -32768, 255};
__device__ float table[6] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
__device__ unsigned char label[12] = "fixed order";
__device__ float scratch[BLOCKS * THREADS];
struct Pair { char tag; float value; };
__constant__ Pair records[3] = {{1, 2.0f}, {-7, 0.25f}, {100, -8.0f}};

extern "C" __global__ void constants(const float* x, unsigned long long n, float* out, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const float v = x[i % n];
    const int pick = (int)(__float_as_uint(v) >> 9);
    float sum = 0.0f;
    for (int k = 0; k < 9; ++k) sum += v * weights[k % 5];
    out[i] = sum;
    out[all + i] = weights[pick % 9] + (float)offsets[pick % 5];
    out[2 * all + i] = table[pick % 6] * (float)label[pick % 11];
    scratch[i] = v * 2.0f;
    __threadfence();
    out[3 * all + i] = scratch[i] + records[pick % 3].value * (float)records[pick % 3].tag;
    wide[i] = scales[pick % 3] * (double)pick;
}

extern "C" __global__ void readGlobals(float* out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    out[4 * all + i] = scratch[all - 1 - i];   // what the stage before left there
}
