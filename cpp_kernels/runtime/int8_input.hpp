// Where the quantized input of an INT8 operation lies in the shared scratch memory: scales, then values.
#pragma once

#include "kernels/int8.hpp"
#include "runtime/partition.hpp"

namespace vla {

// Floats for this many scales, so that what follows starts on a cache line.
inline int64_t int8_scale_floats(int64_t scales) { return ceil_div(scales, 16) * 16; }

inline Int8Input int8_input(float* shared, int64_t scales) {
  return {reinterpret_cast<std::byte*>(shared + int8_scale_floats(scales)), shared};
}

}  // namespace vla
