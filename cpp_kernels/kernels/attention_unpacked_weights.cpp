#include "kernels/attention_unpacked.hpp"

#include "kernels/attention_unpacked_dots.hpp"
#include "kernels/weighing_beside.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int kSums = kTileRows * kTileVecs;     // vectors of a register tile
constexpr int kPanelVecs = kSums >= 16 ? 4 : 2;  // of queries, as leave a tile four rows or more
// Whether the weights of one tile's scores are computed while the next tile's are summed. They use other execution units,
// but take six registers: where there are fewer, or a weight takes more, they wait for the strip.
constexpr bool kWeighsBeside = kTableBits > 0;
constexpr int kScoreSums = kWeighsBeside && kSums > 24 ? 24 : kSums;
// Keys in a tile of V vectors of queries; more than thirteen are no faster.
template <int V>
constexpr int kRowsOf = kScoreSums / V < 13 ? kScoreSums / V : 13;

// Scores of R keys with V vectors of queries, and weights of the scores before them.
template <int R, int V>
__attribute__((noinline)) void score_tile(const FewQueries& f, const float* k, const float* q, float* scores,
                                          const Part& before) {
  constexpr int64_t kWidth = Vec::kWidth;
  const int64_t apart = f.a.head_dim * kWidth;
  Rows<R, V> sums;
  sums.clear();
  WeighingBeside weighing(f, before);
  for (int64_t c = 0; c < f.a.head_dim; c += 4, q += 4 * kWidth) {
    Quads<R> keys;
    keys.load(k + c, f.a.k_ld);
    Lanes<V> queries;
    queries.load(q, apart);
    sums.template multiply_add<0>(keys, queries);
    queries.load(q + kWidth, apart);
    sums.template multiply_add<1>(keys, queries);
    if constexpr (kWeighsBeside) weighing.step_if_any();
    queries.load(q + 2 * kWidth, apart);
    sums.template multiply_add<2>(keys, queries);
    queries.load(q + 3 * kWidth, apart);
    sums.template multiply_add<3>(keys, queries);
    if constexpr (kWeighsBeside) weighing.step_if_any();
  }
  sums.store(scores, f.scores_ld);
  if constexpr (kWeighsBeside) weighing.finish();
}

template <int R, int V>
VLA_INLINE void score_rows(int64_t rows, const FewQueries& f, const float* k, const float* q, float* scores,
                           const Part& before) {
  if constexpr (R > 1) {
    if (rows != R) return score_rows<R - 1, V>(rows, f, k, q, scores, before);
  }
  score_tile<R, V>(f, k, q, scores, before);
}

template <int V>
VLA_INLINE void score_panel(const FewQueries& f, const float* k, const Part& part, const Part& before) {
  if constexpr (V > 1) {
    if (part.vecs != V) return score_panel<V - 1>(f, k, part, before);
  }
  score_rows<kRowsOf<V>, V>(part.keys, f, k, f.in_lanes + part.lane * f.a.head_dim, part.scores, before);
}

// Makes the weights of a part's queries relative to its first key.
void begin_weights(const FewQueries& f, const Part& part) {
  for (int64_t i = 0; i < part.vecs * Vec::kWidth; i += Vec::kWidth) {
    store(f.shifts + part.lane + i, shift_for(load(part.scores + i)));
    store(f.totals + part.lane + i, zero());
    store(f.strays + part.lane + i, zero());
  }
}

// Weights in place of the scores of a part.
template <int V>
VLA_INLINE void weigh(const FewQueries& f, const Part& part) {
  if constexpr (V > 1) {
    if (part.vecs != V) return weigh<V - 1>(f, part);
  }
  Vec shifts[V], totals[V], strays[V];
  for (int i = 0; i < V; ++i) {
    const int64_t lane = part.lane + i * Vec::kWidth;
    shifts[i] = load(f.shifts + lane);
    totals[i] = load(f.totals + lane);
    strays[i] = load(f.strays + lane);
  }
  float* scores = part.scores;
  for (int64_t j = 0; j < part.keys; ++j, scores += f.scores_ld) {
    for (int i = 0; i < V; ++i) {
      const Vec weight = relative_weight(load(scores + i * Vec::kWidth), shifts[i], strays[i]);
      store(scores + i * Vec::kWidth, weight);
      totals[i] = totals[i] + weight;
    }
  }
  for (int i = 0; i < V; ++i) {
    store(f.totals + part.lane + i * Vec::kWidth, totals[i]);
    store(f.strays + part.lane + i * Vec::kWidth, strays[i]);
  }
}

// The weights of a strip for all queries in lanes, in panels of V vectors or fewer, and the scores of the others.
template <int V>
void weights_of_panels(const FewQueries& f, const Strip& strip, const EvenShares& panels) {
  if constexpr (V > 1) {
    if (panels.size(0) < V) return weights_of_panels<V - 1>(f, strip, panels);
  }
  const EvenShares tiles(strip.keys, kRowsOf<V>);
  Part before = {};
  int64_t dots = 0;  // keys whose dot products are there
  for (int64_t t = 0, key = 0; t < tiles.shares; key += tiles.size(t), ++t) {
    const float* const k = strip.k + key * f.a.k_ld;
    for (int64_t i = 0, lane = 0; i < panels.shares; lane += panels.size(i) * Vec::kWidth, ++i) {
      const Part part = {strip.scores + key * f.scores_ld + lane, tiles.size(t), lane, panels.size(i)};
      score_panel<V>(f, k, part, before);
      if (strip.first && key == 0) begin_weights(f, part);
      if constexpr (kWeighsBeside) before = part;
    }
    if (f.dots > 0) {  // by whole groups of keys, as soon as these have been met
      const int64_t end = key + tiles.size(t), until = end < strip.keys ? end / kDotKeys * kDotKeys : end;
      dot_products<kMostDots>(f, strip, dots, until - dots);
      dots = until;
    }
  }
  if constexpr (kWeighsBeside) {
    if (before.vecs > 0) weigh<V>(f, before);
    return;
  }
  for (int64_t i = 0, lane = 0; i < panels.shares; lane += panels.size(i) * Vec::kWidth, ++i) {
    weigh<V>(f, {strip.scores + lane, strip.keys, lane, panels.size(i)});
  }
}

void weights_of_strip(const FewQueries& f, const Strip& strip) {
  weights_of_panels<kPanelVecs>(f, strip, EvenShares(f.lanes / Vec::kWidth, kPanelVecs));
  if (f.dots > 0) weigh_dots<kMostDots>(f, strip);
}

}  // namespace

void weights_of_few(const FewQueries& f, const KeyBlock& block) {
  alignas(64) float dots[kDotsSize];
  const EvenShares strips(block.keys, kStripKeys);
  for (int64_t s = 0, key = 0; s < strips.shares; key += strips.size(s), ++s) {
    const bool first = block.first && s == 0;
    weights_of_strip(f, {block.k + key * f.a.k_ld, strips.size(s), f.scores + key * f.scores_ld, first, dots});
  }
}

}  // namespace vla::VLA_ISA
