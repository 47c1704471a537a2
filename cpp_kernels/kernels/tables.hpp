// The kernel tables that this build holds. A getter returns null where the build's target has no such
// instruction set; whether the processor at hand can run a table is for the caller to find out.
#pragma once

#include "kernels/kernels.hpp"

namespace vla {

const KernelTable* portable_kernels();  // never null
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();
const KernelTable* neon_kernels();

}  // namespace vla
