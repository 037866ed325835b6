// What a reader of logits does with them: puts the words in the order of their logits.
#pragma once

// One block a request and a thread a word: ranked[request][r] is the word with the r-th largest logit, of equal
// logits the lower word first. Nothing is added up; every word finds its own place.
static __device__ __forceinline__ void rankWords(const float* logits, unsigned int* ranked)
{
    const float* mine = logits + (unsigned long long)blockIdx.x * WORDS;
    float own = mine[threadIdx.x];
    unsigned int place = 0;
#pragma unroll 1
    for (unsigned int other = 0; other < WORDS; other++)
        place += (mine[other] > own) | ((mine[other] == own) & (other < threadIdx.x));
    ranked[(unsigned long long)blockIdx.x * WORDS + place] = threadIdx.x;
}
