// Queries that would leave most of a vector empty: their scores from dot products, and their weights.
#pragma once

#include "kernels/attention_unpacked.hpp"
#include "kernels/relative_weights.hpp"

namespace vla::VLA_ISA {

// Keys whose scores become weights while they are in the first-level cache.
constexpr int64_t kStripKeys = 64;
// Dot products are of this many keys at a time: a strip's last may be of fewer keys, a whole strip's are not.
constexpr int64_t kDotKeys = 4;
static_assert(kStripKeys % kDotKeys == 0 && kStripKeys % Vec::kWidth == 0);
constexpr int64_t kDotsSize = kStripKeys * kMostDots;
// Values from one key to the next where there are scores of D queries: as many go into a vector without a rest.
template <int D>
constexpr int kDotsApart = D <= 2 ? D : 4;

// Some keys of a block.
struct Strip {
  const float* k;
  int64_t keys;
  float* scores;
  bool first;
  float* dots;  // [keys][kDotsApart], scores of queries without a lane, or their weights, before they join the others
};

// Scores of the last D queries with some keys.
template <int D>
VLA_INLINE void dot_products(const FewQueries& f, const Strip& strip, int64_t key, int64_t keys) {
  if constexpr (D > 1) {
    if (f.dots != D) return dot_products<D - 1>(f, strip, key, keys);
  }
  for (const int64_t end = key + keys; key < end; key += kDotKeys) {
    const float* rows[kDotKeys];
    for (int j = 0; j < kDotKeys; ++j) rows[j] = strip.k + min_of(key + j, end - 1) * f.a.k_ld;
    Vec sums[D][kDotKeys];
    for (auto& of_query : sums) {
      for (Vec& sum : of_query) sum = zero();
    }
    for (int64_t c = 0; c < f.a.head_dim; c += Vec::kWidth) {
      Vec queries[D];
      for (int i = 0; i < D; ++i) queries[i] = load(f.for_dots + i * f.a.head_dim + c);
      for (int j = 0; j < kDotKeys; ++j) {
        const Vec row = load(rows[j] + c);
        for (int i = 0; i < D; ++i) multiply_add(sums[i][j], queries[i], row);
      }
    }
    constexpr int kApart = kDotsApart<D>;
    const auto sum_at = [&](int at) { return sums[at % kApart < D ? at % kApart : 0][at / kApart]; };
    for (int i = 0; i < kDotKeys * kApart; i += 4) {
      sums_of_four(sum_at(i), sum_at(i + 1), sum_at(i + 2), sum_at(i + 3), strip.dots + key * kApart + i);
    }
  }
}

// Turns the scores of the last D queries into weights, which join those of the others.
template <int D>
VLA_INLINE void weigh_dots(const FewQueries& f, const Strip& strip) {
  if constexpr (D > 1) {
    if (f.dots != D) return weigh_dots<D - 1>(f, strip);
  }
  constexpr int kApart = kDotsApart<D>;
  float* const shifts = f.shifts + f.lanes;
  float* const totals = f.totals + f.lanes;
  alignas(64) float by_lane[Vec::kWidth];
  if (strip.first) {
    for (int i = 0; i < D; ++i) shifts[i] = first_lane(shift_for(splat(strip.dots[i])));
  }
  for (int i = 0; i < Vec::kWidth; ++i) by_lane[i] = shifts[i % kApart < D ? i % kApart : 0];
  const Vec here = weigh_row(strip.dots, strip.keys * kApart, load(by_lane), zero());
  store(by_lane, here);
  for (int i = 0; i < D; ++i) {
    float total = strip.first ? 0.0f : totals[i];
    for (int lane = i; lane < Vec::kWidth; lane += kApart) total += by_lane[lane];
    totals[i] = total;
  }
  float* to = strip.scores + f.lanes;
  for (int64_t j = 0; j < strip.keys; ++j, to += f.scores_ld) {
    __builtin_memcpy(to, strip.dots + j * kApart, kApart * sizeof(float));
  }
}

}  // namespace vla::VLA_ISA
