// The steps of a softmax over one row of scores, which are kept as powers of two: what e is raised to, times log2(e).
#pragma once

#include "kernels/math.hpp"

namespace vla::VLA_ISA {

constexpr float kLog2E = 1.44269504f;

// The largest of some scores, of which `at(column, Whole or First)` gives a vector and leaves it in s.
template <typename At>
VLA_INLINE float largest_of(const float* s, int64_t keys, At at) {
  Vec m0 = splat(-__builtin_inff()), m1 = m0, m2 = m0, m3 = m0;
  int64_t j = 0;
  for (; j + 4 * Vec::kWidth <= keys; j += 4 * Vec::kWidth) {
    m0 = max(m0, at(j, Whole{}));
    m1 = max(m1, at(j + Vec::kWidth, Whole{}));
    m2 = max(m2, at(j + 2 * Vec::kWidth, Whole{}));
    m3 = max(m3, at(j + 3 * Vec::kWidth, Whole{}));
  }
  for (; j + Vec::kWidth <= keys; j += Vec::kWidth) m0 = max(m0, at(j, Whole{}));
  if (j < keys) at(j, First{keys - j});
  float largest = max_lane(max(max(m0, m1), max(m2, m3)));
  for (; j < keys; ++j) {
    if (!(s[j] <= largest)) largest = s[j];
  }
  return largest;
}

// Adds the bias and returns the largest score.
VLA_INLINE float biased_max(float* s, const float* bias, int64_t keys) {
  if (!bias) return largest_of(s, keys, [&](int64_t j, auto) { return load(s + j); });
  const Vec to_log2 = splat(kLog2E);
  return largest_of(s, keys, [&](int64_t j, auto part) {
    const Vec biased = fma(load(bias + j, part), to_log2, load(s + j));
    store(s + j, biased);
    return biased;
  });
}

// Replaces scores by 2^(score - largest) and returns their sum.
VLA_INLINE float exponentials(float* s, float largest, int64_t keys) {
  const Vec m = splat(largest);
  Vec sum0 = zero(), sum1 = zero();
  int64_t j = 0;
  for (; j + 2 * Vec::kWidth <= keys; j += 2 * Vec::kWidth) {
    const Vec e0 = exp2_of_negative(load(s + j) - m), e1 = exp2_of_negative(load(s + j + Vec::kWidth) - m);
    store(s + j, e0);
    store(s + j + Vec::kWidth, e1);
    sum0 = sum0 + e0;
    sum1 = sum1 + e1;
  }
  for (; j < keys; j += Vec::kWidth) {
    const Vec e = keep_first(exp2_of_negative(load(s + j) - m), min_of(Vec::kWidth, keys - j));
    store(s + j, e);
    sum0 = sum0 + e;
  }
  return sum(sum0 + sum1);
}

}  // namespace vla::VLA_ISA
