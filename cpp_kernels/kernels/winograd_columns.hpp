// Winograd's method along the columns of an image only, for 7x7 filters with stride 2; see winograd_columns.cpp. The
// functions are those of kernels.hpp.
#pragma once

#include "kernels/kernels.hpp"
#include "simd/vec.hpp"

namespace vla::VLA_ISA {

int64_t winograd_columns_packed_size(int64_t out_c, int64_t in_c);
void winograd_columns_pack(const float* w, int64_t out_c, int64_t in_c, float* packed, Range panels);
int64_t winograd_columns_scratch(const Conv2dArgs& args);
void winograd_columns(const Conv2dArgs& args, Range tiles, Range panels, float* scratch);

}  // namespace vla::VLA_ISA
