// A structure with three bytes of padding that nothing writes.
struct Pair {
    char tag;
    float value;
};

extern "C" __global__ void writeFields(const float* x, Pair* pairs)
{
    pairs[threadIdx.x].tag = (char)(threadIdx.x % 3);
    pairs[threadIdx.x].value = x[threadIdx.x] + 1.0f;
}
