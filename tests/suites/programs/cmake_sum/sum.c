// Adds n floats of a raw file up in STEP sums that take turns, then these in order; writes one raw float.
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** words)
{
    long n = count == 4 ? atol(words[2]) : -1;
    float* x = n > 0 ? malloc(sizeof(float) * (size_t)n) : NULL;
    FILE* in = x ? fopen(words[1], "rb") : NULL;
    if (!in || fread(x, sizeof(float), (size_t)n, in) != (size_t)n) {
        fprintf(stderr, "usage: sum INPUT N OUTPUT\n");
        return 2;
    }
    float sums[STEP] = {0};
    for (long i = 0; i < n; i++)
        sums[i % STEP] += x[i];
    float total = sums[0];
    for (int i = 1; i < STEP; i++)
        total += sums[i];
    FILE* out = fopen(words[3], "wb");
    return !out || fwrite(&total, sizeof total, 1, out) != 1 || fclose(out) != 0;
}
