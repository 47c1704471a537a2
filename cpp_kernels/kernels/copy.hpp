// Moving values as they are.
#pragma once

#include "simd/vec.hpp"

namespace vla::VLA_ISA {

VLA_INLINE void copy(const float* from, int64_t count, float* to) {
  over_columns(count, [&](int64_t i, auto part) { store(to + i, load(from + i, part), part); });
}

VLA_INLINE void clear(float* to, int64_t count) {
  over_columns(count, [&](int64_t i, auto part) { store(to + i, zero(), part); });
}

}  // namespace vla::VLA_ISA
