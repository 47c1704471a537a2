#include "kernels/attention_unpacked.hpp"

#include "kernels/relative_weights.hpp"
#include "kernels/softmax.hpp"

namespace vla::VLA_ISA {
namespace {

// Keys whose scores become weights while they are in the first-level cache.
constexpr int64_t kStripKeys = 64;
// Dot products are of this many keys at a time; those of a strip may reach past its end.
constexpr int64_t kDotKeys = 4;
constexpr int64_t kDotsLd = kStripKeys + kDotKeys;

constexpr int kSums = kTileRows * kTileVecs;     // vectors of a register tile
constexpr int kPanelVecs = kSums >= 16 ? 4 : 2;  // of queries, as leave a tile four rows or more
// Keys in a tile of V vectors of queries; more than thirteen are no faster.
template <int V>
constexpr int kRowsOf = kSums / V < 13 ? kSums / V : 13;

// Some keys of a block.
struct Strip {
  const float* k;
  int64_t keys;
  float* scores;
  bool first;
  float (*dots)[kDotsLd];  // scores of queries without a lane, or their weights, before they join the others
};

// Scores of R keys with V vectors of queries.
template <int R, int V>
__attribute__((noinline)) void score_tile(const FewQueries& f, const float* k, const float* q, float* scores) {
  constexpr int64_t kWidth = Vec::kWidth;
  const int64_t apart = f.a.head_dim * kWidth;
  Rows<R, V> sums;
  sums.clear();
  for (int64_t c = 0; c < f.a.head_dim; c += 4, q += 4 * kWidth) {
    Quads<R> keys;
    keys.load(k + c, f.a.k_ld);
    Lanes<V> queries;
    queries.load(q, apart);
    sums.template multiply_add<0>(keys, queries);
    queries.load(q + kWidth, apart);
    sums.template multiply_add<1>(keys, queries);
    queries.load(q + 2 * kWidth, apart);
    sums.template multiply_add<2>(keys, queries);
    queries.load(q + 3 * kWidth, apart);
    sums.template multiply_add<3>(keys, queries);
  }
  sums.store(scores, f.scores_ld);
}

template <int R, int V>
VLA_INLINE void score_rows(int64_t rows, const FewQueries& f, const float* k, const float* q, float* scores) {
  if constexpr (R > 1) {
    if (rows != R) return score_rows<R - 1, V>(rows, f, k, q, scores);
  }
  score_tile<R, V>(f, k, q, scores);
}

template <int V>
VLA_INLINE void score_panel(int64_t vecs, int64_t rows, const FewQueries& f, const float* k, int64_t first, float* scores) {
  if constexpr (V > 1) {
    if (vecs != V) return score_panel<V - 1>(vecs, rows, f, k, first, scores);
  }
  score_rows<kRowsOf<V>, V>(rows, f, k, f.in_lanes + first * f.a.head_dim, scores + first);
}

// Weights in place of the scores of V vectors of queries, from `first` on.
template <int V>
VLA_INLINE void weigh(const FewQueries& f, const Strip& strip, int64_t first) {
  Vec shifts[V], totals[V], strays[V];
  for (int i = 0; i < V; ++i) {
    const int64_t lane = first + i * Vec::kWidth;
    if (strip.first) store(f.shifts + lane, shift_for(load(strip.scores + lane)));
    shifts[i] = load(f.shifts + lane);
    totals[i] = strip.first ? zero() : load(f.totals + lane);
    strays[i] = strip.first ? zero() : load(f.strays + lane);
  }
  float* scores = strip.scores + first;
  for (int64_t j = 0; j < strip.keys; ++j, scores += f.scores_ld) {
    for (int i = 0; i < V; ++i) {
      const Vec weight = relative_weight(load(scores + i * Vec::kWidth), shifts[i], strays[i]);
      store(scores + i * Vec::kWidth, weight);
      totals[i] = totals[i] + weight;
    }
  }
  for (int i = 0; i < V; ++i) {
    store(f.totals + first + i * Vec::kWidth, totals[i]);
    store(f.strays + first + i * Vec::kWidth, strays[i]);
  }
}

template <int V>
VLA_INLINE void weigh_panel(int64_t vecs, const FewQueries& f, const Strip& strip, int64_t first) {
  if constexpr (V > 1) {
    if (vecs != V) return weigh_panel<V - 1>(vecs, f, strip, first);
  }
  weigh<V>(f, strip, first);
}

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
    for (int i = 0; i < D; ++i) sums_of_four(sums[i][0], sums[i][1], sums[i][2], sums[i][3], strip.dots[i] + key);
  }
}

// Turns the scores of the last D queries into weights, which join those of the others.
template <int D>
void weigh_dots(const FewQueries& f, const Strip& strip) {
  if constexpr (D > 1) {
    if (f.dots != D) return weigh_dots<D - 1>(f, strip);
  }
  for (int64_t i = 0; i < D; ++i) {
    float* const shift = f.shifts + f.lanes + i;
    float* const total = f.totals + f.lanes + i;
    if (strip.first) *shift = first_lane(shift_for(splat(strip.dots[i][0])));
    const float here = sum(weigh_row(strip.dots[i], strip.keys, broadcast(shift), zero()));
    *total = strip.first ? here : *total + here;
  }
  float* to = strip.scores + f.lanes;
  for (int64_t j = 0; j < strip.keys; ++j, to += f.scores_ld) {
    for (int64_t i = 0; i < D; ++i) to[i] = strip.dots[i][j];
  }
}

// The scores of a strip for all queries, in panels of V vectors or fewer.
template <int V>
void scores_of_strip(const FewQueries& f, const Strip& strip, const EvenShares& panels) {
  if constexpr (V > 1) {
    if (panels.size(0) < V) return scores_of_strip<V - 1>(f, strip, panels);
  }
  const EvenShares tiles(strip.keys, kRowsOf<V>);
  for (int64_t t = 0, key = 0; t < tiles.shares; key += tiles.size(t), ++t) {
    const float* const k = strip.k + key * f.a.k_ld;
    float* const scores = strip.scores + key * f.scores_ld;
    for (int64_t i = 0, first = 0; i < panels.shares; first += panels.size(i) * Vec::kWidth, ++i) {
      score_panel<V>(panels.size(i), tiles.size(t), f, k, first, scores);
    }
    if (f.dots > 0) dot_products<kMostDots>(f, strip, key, tiles.size(t));
  }
}

void weights_of_strip(const FewQueries& f, const Strip& strip) {
  const EvenShares panels(f.lanes / Vec::kWidth, kPanelVecs);
  scores_of_strip<kPanelVecs>(f, strip, panels);
  for (int64_t i = 0, first = 0; i < panels.shares; first += panels.size(i) * Vec::kWidth, ++i) {
    weigh_panel<kPanelVecs>(panels.size(i), f, strip, first);
  }
  if (f.dots > 0) weigh_dots<kMostDots>(f, strip);
}

// to[c][i] = from[i][c] * scale for a vector of rows i; those past the last are zero.
__attribute__((noinline)) void take_vector(const float* from, int64_t from_ld, int64_t dim, Vec scale, float* to) {
  constexpr int64_t kWidth = Vec::kWidth;
  for (int64_t c = 0; c < dim; c += kWidth, to += kWidth * kWidth) {
    transpose([&](int i) { return load(from + i * from_ld + c) * scale; }, to, kWidth);
  }
}
__attribute__((noinline)) void take_last_vector(const float* from, int64_t from_ld, int64_t rows, int64_t dim, Vec scale,
                                                float* to) {
  constexpr int64_t kWidth = Vec::kWidth;
  for (int64_t c = 0; c < dim; c += kWidth, to += kWidth * kWidth) {
    transpose([&](int i) { return i < rows ? load(from + i * from_ld + c) * scale : zero(); }, to, kWidth);
  }
}

}  // namespace

void scale_queries(const FewQueries& f) {
  const Vec scale = splat(f.a.scale * kLog2E);
  const int64_t dim = f.a.head_dim;
  for (int64_t i = 0; i < f.lanes; i += Vec::kWidth) {
    const int64_t rows = f.count() - i;
    if (rows >= Vec::kWidth) {
      take_vector(f.q(i), f.a.q_ld, dim, scale, f.in_lanes + i * dim);
    } else {
      take_last_vector(f.q(i), f.a.q_ld, rows, dim, scale, f.in_lanes + i * dim);
    }
  }
  for (int64_t i = 0; i < f.dots; ++i) {
    for (int64_t c = 0; c < dim; c += Vec::kWidth) store(f.for_dots + i * dim + c, load(f.q(f.lanes + i) + c) * scale);
  }
}

void weights_of_few(const FewQueries& f, const KeyBlock& block) {
  alignas(64) float dots[kMostDots][kDotsLd];
  const EvenShares strips(block.keys, kStripKeys);
  for (int64_t s = 0, key = 0; s < strips.shares; key += strips.size(s), ++s) {
    weights_of_strip(f, {block.k + key * f.a.k_ld, strips.size(s), f.scores + key * f.scores_ld, block.first && s == 0, dots});
  }
}

}  // namespace vla::VLA_ISA
