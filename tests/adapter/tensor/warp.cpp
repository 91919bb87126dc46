// The kernel of a GPU on the CPU: 32 threads take the place of a warp, and wait for each other
// wherever its lanes do. It is compiled after the kernel's source, see test_fused.py.

extern "C" void run(int n_instances, int n_numbers, const void *const *at, const int *sizes) {
    for (int instance = 0; instance < n_instances; instance++) {
        std::vector<double> numbers(n_numbers, NAN);  // as a GPU leaves them: not zeros
        memory = numbers.data();
        std::vector<std::thread> lanes;
        for (int lane = 0; lane < 32; lane++)
            lanes.emplace_back([=] {
                threadIdx.x = lane, blockIdx.x = instance;
                auto reals = [&](int i) { return (real *)at[i]; };
                auto flags = [&](int i) { return (bool *)at[i]; };
                auto places = [&](int i) { return (const int *)at[i]; };
                project(reals(0), flags(1), reals(2), reals(3), places(4), reals(5), places(6),
                        reals(7), sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5],
                        reals(8), reals(9), flags(10), reals(11), reals(12), reals(13), flags(14),
                        flags(15), reals(16), reals(17), reals(18));
            });
        for (auto &lane : lanes) lane.join();
    }
}
