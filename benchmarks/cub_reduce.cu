// CUB's device-wide sum of floats in its three determinism modes: with temporary storage that the caller lends, so
// that no allocation is timed, and as people call it.
#include <cub/device/device_reduce.cuh>
#include <cuda/execution>
#include <cuda/std/execution>
#include <cuda/stream_ref>

// A memory resource that hands out one block which somebody else owns, and notes how much was wanted.
struct Lent {
    void* memory;
    std::size_t size;
    std::size_t* wanted;

    void* give(std::size_t bytes)
    {
        *wanted = bytes;
        return bytes <= size ? memory : nullptr;
    }
    void* allocate(cuda::stream_ref, std::size_t bytes, std::size_t = 0) { return give(bytes); }
    void* allocate_sync(std::size_t bytes, std::size_t = 0) { return give(bytes); }
    void deallocate(cuda::stream_ref, void*, std::size_t, std::size_t = 0) noexcept {}
    void deallocate_sync(void*, std::size_t, std::size_t = 0) noexcept {}
    bool operator==(const Lent& other) const { return memory == other.memory; }
    bool operator!=(const Lent& other) const { return memory != other.memory; }
    friend void get_property(const Lent&, cuda::mr::device_accessible) noexcept {}
};

// As its callers write it: CUB allocates its own storage, stream-ordered, in every call.
template <typename Mode>
static int called(Mode mode, const float* x, unsigned long long n, float* total, cudaStream_t stream)
{
    auto environment = cuda::std::execution::env{
        cuda::execution::require(mode),
        cuda::std::execution::prop{cuda::get_stream, cuda::stream_ref{stream}}};
    return cub::DeviceReduce::Sum(x, total, n, environment);
}

template <typename Mode>
static int sum(Mode mode, const float* x, unsigned long long n, float* total, Lent lent, cudaStream_t stream)
{
    auto environment = cuda::std::execution::env{
        cuda::execution::require(mode),
        cuda::std::execution::prop{cuda::get_stream, cuda::stream_ref{stream}},
        cuda::std::execution::prop{cuda::mr::get_memory_resource, lent}};
    return cub::DeviceReduce::Sum(x, total, n, environment);
}

// mode: 0 not_guaranteed, 1 run_to_run, 2 gpu_to_gpu. Without `memory` CUB allocates. Returns the CUDA error.
extern "C" int cub_sum(int mode, const float* x, unsigned long long n, float* total, void* memory, std::size_t size,
                       std::size_t* wanted, cudaStream_t stream)
{
    namespace determinism = cuda::execution::determinism;
    if (memory == nullptr)
        switch (mode) {
        case 0: return called(determinism::not_guaranteed, x, n, total, stream);
        case 1: return called(determinism::run_to_run, x, n, total, stream);
        case 2: return called(determinism::gpu_to_gpu, x, n, total, stream);
        }
    Lent lent{memory, size, wanted};
    switch (mode) {
    case 0: return sum(determinism::not_guaranteed, x, n, total, lent, stream);
    case 1: return sum(determinism::run_to_run, x, n, total, lent, stream);
    case 2: return sum(determinism::gpu_to_gpu, x, n, total, lent, stream);
    }
    return cudaErrorInvalidValue;
}
