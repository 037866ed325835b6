// The published experiment's way: one program with the six kernels, every repetition copied back at once, a table
// printed for people. The benchmark builds it once a profile and runs it, as its readers did.
#include "../kernels/_lib/sum_squares.cu"
#include "../kernels/_lib/sum.cu"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <vector>

static void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

static void table(const char* name, float* total, const std::function<void()>& launch)
{
    constexpr int REPETITIONS = 100;
    std::set<std::uint32_t> distinct;
    std::uint64_t hash = 0xcbf29ce484222325ull;
    std::uint32_t first = 0;
    for (int repetition = 0; repetition < REPETITIONS; ++repetition) {
        std::uint32_t bits = 0;
        check(cudaMemset(total, 0, sizeof(float)));
        launch();
        check(cudaGetLastError());
        check(cudaMemcpy(&bits, total, sizeof bits, cudaMemcpyDeviceToHost));
        for (int byte = 0; byte < 4; ++byte)
            hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3ull;
        if (repetition == 0)
            first = bits;
        distinct.insert(bits);
    }
    std::printf("%-26s %3zu  0x%08x  0x%016llx\n", name, distinct.size(), first, (unsigned long long)hash);
}

int main()
{
    const unsigned long long squares = 4194915, plain = 4194304;
    std::vector<float> host(squares);
    for (unsigned long long i = 0; i < squares; ++i) {
        volatile float step = (float)(i % 1000) * 0.001f;  // rounded before it is added
        host[i] = 1.0f + step;
    }
    float *x = nullptr, *partials = nullptr, *total = nullptr;
    check(cudaMalloc(&x, squares * sizeof(float)));
    check(cudaMalloc(&partials, BLOCKS * sizeof(float)));
    check(cudaMalloc(&total, sizeof(float)));
    check(cudaMemcpy(x, host.data(), squares * sizeof(float), cudaMemcpyHostToDevice));
    table("sum_squares_atomic", total, [&] { sumSquaresAtomic<<<BLOCKS, THREADS>>>(x, squares, partials, total); });
    table("sum_squares_kahan_atomic", total,
          [&] { sumSquaresKahanAtomic<<<BLOCKS, THREADS>>>(x, squares, partials, total); });
    table("sum_squares_tree", total, [&] {
        sumSquaresPartials<<<BLOCKS, THREADS>>>(x, squares, partials);
        foldPartials<<<1, THREADS>>>(partials, total);
    });
    table("sum_global_atomic", total, [&] { sumGlobalAtomic<<<BLOCKS, THREADS>>>(x, plain, total); });
    table("sum_shared_atomic", total, [&] { sumSharedAtomic<<<BLOCKS, THREADS>>>(x, plain, partials, total); });
    table("sum_tree_atomic", total, [&] { sumTreeAtomic<<<BLOCKS, THREADS>>>(x, plain, partials, total); });
    return 0;
}
