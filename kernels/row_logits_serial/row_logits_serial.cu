// The logits of one request a launch: a block a word. What every batch of requests has to agree with.
#include "../_lib/rank.cuh"
#include "../_lib/row_logits.cuh"

extern "C" __global__ void rowLogitsSerial(const float* weights, const float* request, float* logits)
{
    unsigned int word = blockIdx.x;
    float logit = rowLogit(weights + (unsigned long long)word * WIDTH, request, WIDTH);
    if (threadIdx.x == 0)
        logits[word] = logit;
}

extern "C" __global__ void rankSerial(const float* logits, unsigned int* ranked)
{
    rankWords(logits, ranked);
}
