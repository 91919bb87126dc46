// What the source of a kernel takes from CUDA, for one thread of a CPU.
//
// The 32 lanes of a warp run in turns, each up to the next point where they wait for each other. In
// the reverse order they find the same, unless lanes read what others write without waiting.

#include <cmath>
#include <cstring>
#include <ucontext.h>
#include <vector>

using std::expm1, std::fabs, std::fmax, std::fmin, std::log1p, std::sqrt;

#define __device__
#define __global__
#define __shared__

constexpr int LANES = 32, STACK = 1 << 17;

struct Index {
    int x;
};

static Index threadIdx, blockIdx;
static double *memory, passed[LANES];
static ucontext_t turns, lanes[LANES];
static bool is_done[LANES], is_reversed;

static void __syncwarp() { swapcontext(&lanes[threadIdx.x], &turns); }

static double __shfl_xor_sync(unsigned, double x, int lane) {
    passed[threadIdx.x] = x;
    __syncwarp();
    double other = passed[threadIdx.x ^ lane];
    __syncwarp();
    return other;
}

static double __longlong_as_double(long long bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Run `work` in all lanes.
static void run_warp(void (*work)()) {
    static std::vector<char> stacks(LANES * STACK);
    for (int lane = 0; lane < LANES; lane++) {
        is_done[lane] = false;
        getcontext(&lanes[lane]);
        lanes[lane].uc_stack.ss_sp = stacks.data() + lane * STACK;
        lanes[lane].uc_stack.ss_size = STACK;
        lanes[lane].uc_link = &turns;
        makecontext(&lanes[lane], work, 0);
    }
    for (bool is_running = true; is_running;) {
        is_running = false;
        for (int turn = 0; turn < LANES; turn++) {
            const int lane = is_reversed ? LANES - 1 - turn : turn;
            if (is_done[lane]) continue;
            threadIdx.x = lane;
            swapcontext(&turns, &lanes[lane]);
            is_running = is_running || !is_done[lane];
        }
    }
}
