// Ceilings of the machine, measured.
#pragma once

namespace vla {

struct KernelTable;

// Floating-point operations per second of the calling thread with these kernels' vectors: the best of several
// rounds within about `seconds`. Throws std::invalid_argument where `seconds` is not positive.
double fma_peak(const KernelTable& kernels, double seconds);

}  // namespace vla
