#include "kernels/attention_weights.hpp"

#include "kernels/relative_weights.hpp"

namespace vla::VLA_ISA {
namespace {

// Keys whose scores become weights together, which are still in the first-level cache then: whole panels, and enough of
// them that what comes before each row counts little.
constexpr int64_t kKeysAtOnce = 256;
static_assert(kKeysAtOnce % kTileCols == 0);

// Makes the weights of every row relative to its first score.
void set_shifts(int64_t rows, const WeightsArgs& t) {
  for (int64_t r = 0; r < rows; ++r) {
    t.weighing.shifts[r] = first_lane(shift_for(splat(t.weights[r * t.weights_ld])));
  }
}

}  // namespace

void attention_weights(int64_t rows, const WeightsArgs& t) {
  for (int64_t key = 0; key < t.keys; key += kKeysAtOnce) {
    const int64_t keys = min_of(kKeysAtOnce, t.keys - key);
    float* scores = t.weights + key;
    run_panels(rows, {t.q, t.head_dim, t.head_dim, t.k + key * t.head_dim, scores, t.weights_ld, keys});
    if (t.first && key == 0) set_shifts(rows, t);
    for (int64_t r = 0; r < rows; ++r) {
      float* const total = t.weighing.totals + r * Vec::kWidth;
      store(total, weigh_row(scores + r * t.weights_ld, keys, broadcast(t.weighing.shifts + r), load(total)));
    }
  }
}

}  // namespace vla::VLA_ISA
