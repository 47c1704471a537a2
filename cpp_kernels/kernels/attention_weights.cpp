#include "kernels/attention_weights.hpp"

#include "kernels/math.hpp"

namespace vla::VLA_ISA {
namespace {

// Subtracted from kToExponent, numbers up to this one leave the last place of the difference for ones.
constexpr float kLargestShift = 0x1.0p21f;

// Makes the weights of every row relative to its first score.
void set_shifts(int64_t rows, const WeightsArgs& t) {
  Weighing& w = t.weighing;
  for (int64_t r = 0; r < rows; ++r) {
    const Vec score = splat(t.weights[r * t.weights_ld]);
    const Vec m = round_to_even(min(splat(kLargestShift), max(splat(-kLargestShift), score)));  // NaN is kept
    w.to_exponent[r] = first_lane(splat(kToExponent) - m);
    w.lowest[r] = first_lane(m - splat(127.0f));
    w.highest[r] = first_lane(m + splat(128.0f));
  }
}

// What all weights of a row are computed with.
struct Shift {
  Vec to_exponent, lowest, highest;
};

VLA_INLINE Vec weight(Vec score, const Shift& m) {
  const Vec clamped = min(m.highest, max(m.lowest, score));
  const Vec shifted = clamped + m.to_exponent;
  return exp2_of_parts(clamped - (shifted - m.to_exponent), shifted);
}

// Weights in place of the scores of the panel that begins at `scores`, of which `keys` columns count.
template <bool Whole>
VLA_INLINE void weigh_panel(int64_t rows, Weighing& w, float* scores, int64_t ld, int64_t keys) {
  for (int64_t r = 0; r < rows; ++r, scores += ld) {
    const Shift m = {broadcast(w.to_exponent + r), broadcast(w.lowest + r), broadcast(w.highest + r)};
    float* const total = w.totals + r * Vec::kWidth;
    Vec sum = load(total);
    for (int64_t c = 0; c < kTileCols; c += Vec::kWidth) {
      Vec here = weight(load(scores + c), m);
      if constexpr (!Whole) here = keep_first(here, max_of(0, min_of(Vec::kWidth, keys - c)));
      store(scores + c, here);
      sum = sum + here;
    }
    store(total, sum);
  }
}

}  // namespace

void attention_weights(int64_t rows, const WeightsArgs& t) {
  for (int64_t key = 0; key < t.keys; key += kTileCols) {
    const int64_t keys = min_of(kTileCols, t.keys - key);
    float* scores = t.weights + key;
    run_panels(rows, {t.q, t.head_dim, t.head_dim, t.k + key * t.head_dim, scores, t.weights_ld, keys});
    if (t.first && key == 0) set_shifts(rows, t);
    if (keys == kTileCols) {
      weigh_panel<true>(rows, t.weighing, scores, t.weights_ld, keys);
    } else {
      weigh_panel<false>(rows, t.weighing, scores, t.weights_ld, keys);
    }
  }
}

}  // namespace vla::VLA_ISA
