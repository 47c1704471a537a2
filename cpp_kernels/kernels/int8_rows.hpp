// How the quantized rows of a linear layer lie in memory.
#pragma once

#include "simd/int8.hpp"

namespace vla::VLA_ISA {

// Values from one row to the next: an odd number of cache lines, so that the rows of a tile do not compete for the
// same places of the first-level cache.
VLA_INLINE int64_t int8_rows_ld(int64_t k) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Quantized));
  return (ceil_div(round_up(k, kGroup), kLine) | 1) * kLine;
}

}  // namespace vla::VLA_ISA
