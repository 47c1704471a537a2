#include "kernels/attention_weights.hpp"

#include "kernels/math.hpp"

namespace vla::VLA_ISA {
namespace {

// Subtracted from kToExponent, numbers up to this one leave the last place of the difference for ones.
constexpr float kLargestShift = 0x1.0p21f;

// Keys whose scores become weights together, which are still in the first-level cache then: whole panels, and enough of
// them that what comes before each row counts little.
constexpr int64_t kKeysAtOnce = 256;
static_assert(kKeysAtOnce % kTileCols == 0);

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

// Weights in place of scores [rows][keys].
void weigh(int64_t rows, Weighing& w, float* scores, int64_t ld, int64_t keys) {
  for (int64_t r = 0; r < rows; ++r, scores += ld) {
    const Shift m = {broadcast(w.to_exponent + r), broadcast(w.lowest + r), broadcast(w.highest + r)};
    float* const total = w.totals + r * Vec::kWidth;
    Vec sum = load(total);
    int64_t c = 0;
    for (; c + Vec::kWidth <= keys; c += Vec::kWidth) {
      const Vec here = weight(load(scores + c), m);
      store(scores + c, here);
      sum = sum + here;
    }
    if (c < keys) {
      const Vec here = keep_first(weight(load(scores + c), m), keys - c);
      store(scores + c, here);
      sum = sum + here;
    }
    store(total, sum);
  }
}

}  // namespace

void attention_weights(int64_t rows, const WeightsArgs& t) {
  for (int64_t key = 0; key < t.keys; key += kKeysAtOnce) {
    const int64_t keys = min_of(kKeysAtOnce, t.keys - key);
    float* scores = t.weights + key;
    run_panels(rows, {t.q, t.head_dim, t.head_dim, t.k + key * t.head_dim, scores, t.weights_ld, keys});
    if (t.first && key == 0) set_shifts(rows, t);
    weigh(rows, t.weighing, scores, t.weights_ld, keys);
  }
}

}  // namespace vla::VLA_ISA
