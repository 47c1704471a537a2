// The product of a matrix with packed panels, blocked for the caches.
#pragma once

#include "kernels/kernels.hpp"
#include "simd/vec.hpp"

namespace vla::VLA_ISA {

// As `linear`, from panels whatever the number of columns.
void panel_product(const LinearArgs& args, Range rows, Range panels);

}  // namespace vla::VLA_ISA
