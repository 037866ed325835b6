// The logits of a batch of requests: a block a word and request. The block neither knows nor asks how many
// requests there are, and so their number cannot move a bit.
#include "../_lib/rank.cuh"
#include "../_lib/row_logits.cuh"

extern "C" __global__ void rowLogitsBatched(const float* weights, const float* requests, float* logits)
{
    unsigned int word = blockIdx.x;
    unsigned long long request = blockIdx.y;
    float logit = rowLogit(weights + (unsigned long long)word * WIDTH, requests + request * WIDTH, WIDTH);
    if (threadIdx.x == 0)
        logits[request * WORDS + word] = logit;
}

extern "C" __global__ void rankBatched(const float* logits, unsigned int* ranked)
{
    rankWords(logits, ranked);
}
