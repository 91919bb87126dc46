// The kernel of a GPU on the CPU, compiled after `warp.h` and the kernel's source.

static const void *const *at;
static const int *sizes;

static void lane() {
    auto reals = [](int i) { return (real *)at[i]; };
    auto flags = [](int i) { return (bool *)at[i]; };
    auto places = [](int i) { return (const int *)at[i]; };
    project(reals(0), flags(1), reals(2), reals(3), places(4), reals(5), places(6), reals(7),
            sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], reals(8), reals(9),
            flags(10), reals(11), reals(12), reals(13), flags(14), flags(15), reals(16), reals(17),
            reals(18));
    is_done[threadIdx.x] = true;
}

extern "C" void run(int n_instances, int n_numbers, const void *const *addresses, const int *given) {
    at = addresses, sizes = given;
    for (int instance = 0; instance < n_instances; instance++) {
        std::vector<double> numbers(n_numbers, NAN);  // as a GPU leaves them: not zeros
        memory = numbers.data(), blockIdx.x = instance;
        run_warp(lane);
    }
}
