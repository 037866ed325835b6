// CUB's device-wide sum of floats. MODE is the guarantee: not_guaranteed, run_to_run or gpu_to_gpu.
// A program: reads n raw floats, sums them so often, and writes every total.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cub/device/device_reduce.cuh>
#include <cuda/__execution/determinism.h>
#include <cuda/__execution/require.h>
#include <cuda/std/functional>

static void check(cudaError_t status, const char* what)
{
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
        std::exit(1);
    }
}

int main(int count, char** words)
{
    if (count != 5)
        return 2;
    const int n = std::atoi(words[2]);  // gpu_to_gpu takes no 64-bit count
    const int repetitions = std::atoi(words[3]);
    std::vector<float> x(n), totals(repetitions);
    std::FILE* in = std::fopen(words[1], "rb");
    if (!in || std::fread(x.data(), sizeof(float), x.size(), in) != x.size())
        return 3;
    std::fclose(in);
    float *input = nullptr, *output = nullptr;
    check(cudaMalloc(&input, sizeof(float) * x.size()), "cudaMalloc");
    check(cudaMalloc(&output, sizeof(float) * totals.size()), "cudaMalloc");
    check(cudaMemcpy(input, x.data(), sizeof(float) * x.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    auto guarantee = cuda::execution::require(cuda::execution::determinism::MODE);
    for (int r = 0; r < repetitions; r++)
        check(cub::DeviceReduce::Reduce(input, output + r, n, cuda::std::plus<float>{}, 0.0f, guarantee), "Reduce");
    check(cudaMemcpy(totals.data(), output, sizeof(float) * totals.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::FILE* out = std::fopen(words[4], "wb");
    if (!out || std::fwrite(totals.data(), sizeof(float), totals.size(), out) != totals.size())
        return 4;
    return std::fclose(out) == 0 ? 0 : 4;
}
