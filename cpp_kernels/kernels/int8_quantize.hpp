// From fp32 values to INT8 ones and a scale.
#pragma once

#include "kernels/int8.hpp"
#include "simd/int8.hpp"

namespace vla::VLA_ISA {

// The scale for values of at most `largest`.
VLA_INLINE float int8_scale(float largest) { return largest / static_cast<float>(kInt8Limit); }

// to[i] = round(x[i] / scale), in the form that products take as input.
void int8_quantize(const float* x, int64_t count, float scale, Quantized* to);

}  // namespace vla::VLA_ISA
