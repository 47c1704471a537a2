#include "kernels/table.hpp"

namespace vla::VLA_ISA {

// Eight sums, so that no addition waits for the one before.
float read_all(const float* x, int64_t count, int64_t passes) {
  constexpr int64_t kStep = 8 * Vec::kWidth;
  Vec s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero(), s4 = zero(), s5 = zero(), s6 = zero(), s7 = zero();
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (int64_t i = 0; i + kStep <= count; i += kStep) {
      const float* p = x + i;
      s0 = s0 + load(p);
      s1 = s1 + load(p + Vec::kWidth);
      s2 = s2 + load(p + 2 * Vec::kWidth);
      s3 = s3 + load(p + 3 * Vec::kWidth);
      s4 = s4 + load(p + 4 * Vec::kWidth);
      s5 = s5 + load(p + 5 * Vec::kWidth);
      s6 = s6 + load(p + 6 * Vec::kWidth);
      s7 = s7 + load(p + 7 * Vec::kWidth);
    }
  }
  return sum(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)));
}

}  // namespace vla::VLA_ISA
