#include "kernels/attention_tile.hpp"

namespace vla::VLA_ISA {
namespace {

// Of each row so far.
struct Gathered {
  float largest[kTileRows];
  float total[kTileRows];
};

// Turns scores into weights, and what each row gathered so far to its new largest score.
void weigh(const QueryTile& t, Gathered& g, int64_t first_key, int64_t keys) {
  float before[kTileRows];
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* bias = t.a.bias ? t.a.bias + t.head * t.a.bias_head + t.query[r] * t.a.keys + first_key : nullptr;
    const float here = biased_max(t.scores + r * t.scores_ld, bias, keys);
    before[r] = g.largest[r];
    if (!(here <= before[r])) g.largest[r] = here;  // NaN is kept
  }
  for (int64_t r = 0; r < t.rows; ++r) {
    const float sum = exponentials(t.scores + r * t.scores_ld, g.largest[r], keys);
    if (first_key == 0) {
      g.total[r] = sum;
      continue;
    }
    if (before[r] == g.largest[r]) {  // the factor would be one
      g.total[r] += sum;
      continue;
    }
    const Vec rescale = exp2_of_negative(splat(before[r] - g.largest[r]));
    g.total[r] = first_lane(fma(splat(g.total[r]), rescale, splat(sum)));
    float* gathered = t.sums + r * t.sums_ld;
    for (int64_t c = 0; c < t.sums_ld; c += Vec::kWidth) store(gathered + c, load(gathered + c) * rescale);
  }
}

}  // namespace

void attend_online(const QueryTile& t) {
  Gathered g = {};
  // Finite, so that a row that meets only masked keys has no inf - inf.
  for (int64_t r = 0; r < t.rows; ++r) g.largest[r] = -__FLT_MAX__;
  const int64_t dim = t.a.head_dim;
  for (int64_t first = 0; first < t.a.keys; first += t.scores_ld) {
    const int64_t keys = min_of(t.scores_ld, t.a.keys - first);
    run_panels(t.rows, {t.q, dim, dim, t.k + first * dim, t.scores, t.scores_ld, keys});
    weigh(t, g, first, keys);
    add_values(t, first, keys);
  }
  float factors[kTileRows];
  for (int64_t r = 0; r < t.rows; ++r) factors[r] = 1.0f / g.total[r];
  store_results(t, factors);
}

}  // namespace vla::VLA_ISA
