// Where thread i finds its k-th operand: scattered, so that special values meet in many combinations,
// and in others for every other n.
__device__ __forceinline__ unsigned pick(unsigned i, unsigned k)
{
    unsigned h = (i * 4u + k) * 2654435761u;
    h ^= h >> 15;
    h *= 0x85ebca6bu;
    return h ^ (h >> 13);
}
