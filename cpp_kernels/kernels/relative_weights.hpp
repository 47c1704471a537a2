// Weights of a softmax relative to a power of two that is known before all scores are.
//
// A softmax divides by the sum of its weights, so that they may be relative to anything: to the largest score, which is
// known when all are, or to that of the first key, rounded to a whole power of two, which is known at once. For floats
// the one is as exact as the other while all weights are numbers between 2^-64 and 2^64. A score that would give another
// weight marks its lane: such queries are for attend_online.
#pragma once

#include "kernels/math.hpp"

namespace vla::VLA_ISA {

constexpr float kWeightBias = 64.0f;
constexpr float kWeightScale = 0x1p64f;
// A power is that of a multiple of 2^-kTableBits, which is in the last bits of a sum, times that of the rest.
static_assert(kTableBits == 0 || kTableBits == 4);
// Added to a number it leaves such a multiple in the last bits.
constexpr float kToMultiple = 0x1.8p23f / (1 << kTableBits);
constexpr int kWeightPowerBits = 7;  // of as many powers of two; of more weights are out of bounds
constexpr float kWeightPowers = 1 << kWeightPowerBits;
// Up to here numbers subtracted from kToMultiple leave the last place for such multiples.
constexpr float kLargestShift = 0x1.0p21f / (1 << kTableBits);

// What weights are computed with, together in memory for code whose registers hold other things.
struct WeightNumbers {
  uint32_t powers[16];       // as floats 2^(i / 16) kWeightScale, less what the bits of i add to the exponent's field
  float twist, bend, slope;  // 2^x is within 1.6e-9 of 1 + slope x + bend x^2 + twist x^3 for |x| <= 1/32
  float bound;               // has the bits beyond the last that all weights in bounds have
};
alignas(64) constexpr WeightNumbers kWeightNumbers = {
    {0x5f800000, 0x5f7daac3, 0x5f7b95c2, 0x5f79c3d3, 0x5f7837f0, 0x5f76f532, 0x5f75fed7, 0x5f75583f,
     0x5f7504f3, 0x5f7508a4, 0x5f75672a, 0x5f76248c, 0x5f7744fd, 0x5f78ccdf, 0x5f7ac0c7, 0x5f7d257d},
    0x1.c6ac6ap-5f,
    0x1.ebfff4p-3f,
    0x1.62e43p-1f,
    kToMultiple - kWeightPowers};

// What scores are shifted by, for weights relative to that of `first`. NaN is kept.
VLA_INLINE Vec shift_for(Vec first) {
  const Vec m = round_to_even(min(splat(kLargestShift), max(splat(-kLargestShift), first)));
  return splat(kToMultiple - kWeightBias) - m;
}

// 2^rest times the power of two that the last bits of `shifted` name. A template, because only who has a table has look_up.
template <typename V>
VLA_INLINE V power_beside_table(V rest, V shifted, const WeightNumbers& n) {
  const V near = times_power_of_lowest_bits<kTableBits>(look_up(n.powers, shifted), shifted);
  const V bend = fma(broadcast(&n.twist), rest, broadcast(&n.bend));
  return fma(near * rest, fma(bend, rest, broadcast(&n.slope)), near);
}

// 2^(score - m). The bits of `strays` beyond the lowest tell whether that was out of bounds.
VLA_INLINE Vec relative_weight(Vec score, Vec shift, Vec& strays, const WeightNumbers& n = kWeightNumbers) {
  const Vec shifted = score + shift;
  strays = differing_bits(strays, shifted, broadcast(&n.bound));
  const Vec rest = score - (shifted - shift);
  if constexpr (kTableBits == 0) {
    return times_power_of_lowest_bits<0>(exp2_of_fraction(rest, kWeightScale), shifted);
  } else {
    return power_beside_table(rest, shifted, n);
  }
}

// NaN where a lane of the sum of weights has strays.
VLA_INLINE Vec without_strays(Vec total, Vec strays) {
  return select(beyond_bits<kWeightPowerBits + kTableBits>(strays), splat(__builtin_nanf("")), total);
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
constexpr float kLeastTotal = 0.5f, kLargestTotal = 0x1.0p60f;
VLA_INLINE bool is_usable(float total) { return (kLeastTotal < total) & (total < kLargestTotal); }
VLA_INLINE Mask is_usable(Vec total) {
  return less(splat(kLeastTotal), select(less(total, splat(kLargestTotal)), total, zero()));
}

}  // namespace vla::VLA_ISA
