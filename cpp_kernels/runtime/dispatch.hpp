// The choice of the instruction set that the kernels use.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace vla {

// Instruction sets that this build contains and this CPU has, best first.
std::vector<std::string> available_isas();

// Why the kernels of `isa` cannot run here; empty where they can.
std::string why_not_isa(const std::string& isa);

// The kernels of `isa`; of the environment variable VLA_SIMD_ISA where `isa` is empty; of the best available
// one where that is unset too. Throws std::invalid_argument that says where the name came from and why
// it cannot be had.
const KernelTable& select_kernels(const std::string& isa);

// Throws std::invalid_argument: what `source` wants cannot be had for this reason, and what can.
[[noreturn]] void refuse_kernels(const std::string& source, const std::string& wanted, const std::string& reason,
                                 const std::vector<std::string>& available);

}  // namespace vla
