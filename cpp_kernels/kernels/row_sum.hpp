#pragma once

#include "simd/vec.hpp"

namespace vla::VLA_ISA {

// The sum of f(value) over a row, in two chains.
template <typename F>
VLA_INLINE float row_sum(const float* x, int64_t cols, F f) {
  Vec s0 = zero(), s1 = zero();
  int64_t c = 0;
  for (; c + 2 * Vec::kWidth <= cols; c += 2 * Vec::kWidth) {
    s0 = s0 + f(load(x + c));
    s1 = s1 + f(load(x + c + Vec::kWidth));
  }
  over_columns(cols - c, [&](int64_t i, auto part) { s0 = s0 + keep(f(load(x + c + i, part)), part); });
  return sum(s0 + s1);
}

}  // namespace vla::VLA_ISA
