// What the source of a kernel takes from CUDA, for 32 threads of a CPU.

#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

using std::expm1, std::fabs, std::fmax, std::fmin, std::log1p, std::sqrt;

#define __device__
#define __global__
#define __shared__

struct Index {
    int x;
};

static std::barrier<> meeting(32);
static thread_local Index threadIdx, blockIdx;
static double *memory, passed[32];

static void __syncwarp() { meeting.arrive_and_wait(); }

static double __shfl_xor_sync(unsigned, double x, int lane) {
    passed[threadIdx.x] = x;
    meeting.arrive_and_wait();
    double other = passed[threadIdx.x ^ lane];
    meeting.arrive_and_wait();
    return other;
}

static double __longlong_as_double(long long bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
