// A kernel of a GPU on the CPU, compiled after `warp.h` and the kernel's source.

#include <tuple>
#include <utility>

static const void *const *at;
static const int *sizes;

// The arguments of the kernel: its pointers and its numbers, each in the order of the call.
template <class... Types> static std::tuple<Types...> given(void (*)(Types...)) {
    int address = 0, size = 0;
    return {[&] {
        if constexpr (std::is_pointer_v<Types>)
            return (Types)at[address++];
        else
            return (Types)sizes[size++];
    }()...};
}

static void lane() {
    std::apply(KERNEL, given(KERNEL));
    is_done[threadIdx.x] = true;
}

extern "C" void run(int n_instances, int n_numbers, const void *const *addresses, const int *numbers,
                    bool reversed) {
    at = addresses, sizes = numbers, is_reversed = reversed;
    for (int instance = 0; instance < n_instances; instance++) {
        std::vector<double> shared(n_numbers, NAN);  // as a GPU leaves them: not zeros
        memory = shared.data(), blockIdx.x = instance;
        run_warp(lane);
    }
}
