#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

// Independent accumulators, nested so that each stays in a register.
template <int N>
struct Chains {
  Chains<N - 1> others;
  Vec value;
  VLA_INLINE void start(Vec seed) {
    others.start(seed + splat(1.0f));
    value = seed;
  }
  VLA_INLINE void advance(Vec factor, Vec term) {
    others.advance(factor, term);
    value = fma(value, factor, term);
  }
  VLA_INLINE Vec total() const { return others.total() + value; }
};

template <>
struct Chains<0> {
  VLA_INLINE void start(Vec) {}
  VLA_INLINE void advance(Vec, Vec) {}
  VLA_INLINE Vec total() const { return zero(); }
};

}  // namespace

double fma_peak(int64_t iterations) {
  volatile float factor = 0.5f, term = 1.0f;  // unknown to the compiler; the values settle at two
  Chains<kPeakAccumulators> chains;
  chains.start(splat(term));
  const Vec f = splat(factor), t = splat(term);
  for (int64_t i = 0; i < iterations; ++i) {
    chains.advance(f, t);
    chains.advance(f, t);
  }
  volatile float used = sum(chains.total());
  static_cast<void>(used);
  return 2.0 * 2.0 * static_cast<double>(kPeakAccumulators * Vec::kWidth) * static_cast<double>(iterations);
}

}  // namespace vla::VLA_ISA
