// The choice of the variant of the INT8 kernels.
#pragma once

#include <string>
#include <vector>

#include "kernels/int8.hpp"

namespace vla {

// Variants that this build contains and this CPU has, best first.
std::vector<std::string> available_int8();

// The INT8 kernels `variant`; of the environment variable VLA_SIMD_INT8 where `variant` is empty; where that is unset
// too, the best available one with the vectors of `isa`, the instruction set of the fp32 kernels. Throws
// std::invalid_argument that says where the name came from and why it cannot be had.
const Int8Table& select_int8(const std::string& variant, const std::string& isa);

}  // namespace vla
