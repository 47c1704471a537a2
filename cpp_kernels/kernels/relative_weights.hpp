// Weights of a softmax relative to a power of two that is known before all scores are.
//
// A softmax divides by the sum of its weights, so that they may be relative to anything: to the largest score, which is
// known when all are, or to that of the first key, rounded to a whole power of two, which is known at once. For floats
// the one is as exact as the other while all weights are numbers between 2^-64 and 2^63. A score that would give another
// weight marks its lane: such queries are for attend_online.
#pragma once

#include "kernels/math.hpp"

namespace vla::VLA_ISA {

constexpr float kWeightBias = 64.0f;
constexpr float kWeightScale = 0x1p64f;
// Added to a number it leaves the whole part in the last bits.
constexpr float kToWhole = 0x1.8p23f;
constexpr float kWeightPowers = 128.0f;  // as many as seven bits tell apart
// Up to here numbers subtracted from kToWhole leave the last place for ones.
constexpr float kLargestShift = 0x1.0p21f;

// What scores are shifted by, for weights relative to that of `first`. NaN is kept.
VLA_INLINE Vec shift_for(Vec first) {
  const Vec m = round_to_even(min(splat(kLargestShift), max(splat(-kLargestShift), first)));
  return splat(kToWhole - kWeightBias) - m;
}

// 2^(score - m). The bits of `strays` beyond the lowest seven tell whether that was out of bounds.
VLA_INLINE Vec relative_weight(Vec score, Vec shift, Vec& strays) {
  const Vec shifted = score + shift;
  strays = differing_bits(strays, shifted, splat(kToWhole - kWeightPowers));
  return times_power_of_lowest_bits(exp2_of_fraction(score - (shifted - shift), kWeightScale), shifted);
}

// NaN where a lane of the sum of weights has strays.
VLA_INLINE Vec without_strays(Vec total, Vec strays) {
  return select(beyond_seven_bits(strays), splat(__builtin_nanf("")), total);
}

// Weights in place of a row of scores, and their sum by lane added to `total`: NaN where one was out of bounds.
VLA_INLINE Vec weigh_row(float* scores, int64_t keys, Vec shift, Vec total) {
  Vec strays = zero();
  int64_t c = 0;
  for (; c + Vec::kWidth <= keys; c += Vec::kWidth) {
    const Vec weight = relative_weight(load(scores + c), shift, strays);
    store(scores + c, weight);
    total = total + weight;
  }
  if (c < keys) {  // lanes past the last key have scores that nobody asked for
    Vec strays_here = zero();
    const Vec weight = keep_first(relative_weight(load(scores + c), shift, strays_here), keys - c);
    store(scores + c, weight);
    total = total + weight;
    strays = differing_bits(strays, keep_first(strays_here, keys - c), zero());
  }
  return without_strays(total, strays);
}

// Relative to the first key's, weights are at least 2^-1/2 together. They are used up to this sum, beyond which their
// products with large values of V might not be finite.
VLA_INLINE bool is_usable(float total) { return (0.5f < total) & (total < 0x1.0p60f); }

}  // namespace vla::VLA_ISA
