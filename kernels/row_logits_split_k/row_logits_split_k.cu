// The logits of a batch of requests, as libraries compute them that want to fill the device: few requests are
// too few blocks, so each row is cut into more parts the fewer requests there are, and the parts are added up
// at the end. Every launch of the same batch gives the same bits; another batch is another grouping.
#include "../_lib/rank.cuh"
#include "../_lib/row_logits.cuh"

static __device__ __forceinline__ unsigned int splitsOf(unsigned long long batch)
{
    return batch < 32 ? SPLITS : 1;
}

// Part z of a row, into parts[request][word][z]; blocks of parts that the batch does not ask for do nothing.
extern "C" __global__ void rowLogitsParts(const float* weights, const float* requests, float* parts,
                                          unsigned long long batch)
{
    unsigned int word = blockIdx.x, splits = splitsOf(batch), width = WIDTH / splits;
    unsigned long long request = blockIdx.y;
    if (blockIdx.z >= splits)
        return;
    float part = rowLogit(weights + (unsigned long long)word * WIDTH + blockIdx.z * width,
                          requests + request * WIDTH + blockIdx.z * width, width);
    if (threadIdx.x == 0)
        parts[(request * WORDS + word) * SPLITS + blockIdx.z] = part;
}

// One block a request and a thread a word: its parts from the first to the last.
extern "C" __global__ void joinParts(const float* parts, float* logits, unsigned long long batch)
{
    unsigned long long row = (unsigned long long)blockIdx.x * WORDS + threadIdx.x;
    float sum = parts[row * SPLITS];
    for (unsigned int z = 1; z < splitsOf(batch); z++)
        sum = __fadd_rn(sum, parts[row * SPLITS + z]);
    logits[row] = sum;
}

extern "C" __global__ void rankSplit(const float* logits, unsigned int* ranked)
{
    rankWords(logits, ranked);
}
