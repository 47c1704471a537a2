#include "kernels/attention_unpacked.hpp"

namespace vla::VLA_ISA {
namespace {

// Sums over this many keys are put aside, as in other products.
constexpr int64_t kStretchKeys = 4 * kStretchSteps;
constexpr int64_t kLineFloats = kLineBytes / static_cast<int64_t>(sizeof(float));

// Adds the values of a key, weighted, and goes on to the next.
template <int R, int V>
VLA_INLINE void add_key(Rows<R, V>& sums, const FewQueries& f, const float*& weights, const float*& v) {
  Lanes<V> values;
  values.load(v);
  sums.multiply_add(weights, 1, values);
  weights += f.scores_ld;
  v += f.a.v_ld;
}

// What the next head begins with, fetched into the first-level cache meanwhile: with every key a line of its queries, and
// one of where these will be in lanes.
struct NextHead {
  const float* q;
  int64_t q_ld;
  const float* in_lanes;
  int64_t in_lanes_ld;
};

// For the last tiles, as many as a query has lines; the others fetch nothing new, nor do more keys than there are queries.
NextHead next_head(const FewQueries& f, const KeyBlock& block, int64_t tiles_left) {
  const int64_t line = f.a.head_dim / kLineFloats - tiles_left;
  if (line < 0 || f.head + 1 == f.a.heads || block.keys > f.count()) return {f.q(0), 0, f.in_lanes, 0};
  const float* const in_lanes = f.in_lanes + line * block.keys * kLineFloats;
  return {f.q(0) + f.a.head_dim + line * kLineFloats, f.a.q_ld, in_lanes, kLineFloats};
}

// Weighted sums of V vectors of head columns for R queries, over all keys at once.
template <int R, int V>
__attribute__((noinline)) void whole_value_tile(const FewQueries& f, const KeyBlock& block, int64_t query, int64_t col,
                                                NextHead next) {
  Rows<R, V> sums;
  sums.clear();
  const float* weights = f.scores + query;
  const float* v = block.v + col;
  for (int64_t left = block.keys; left > 0; --left) {
    add_key(sums, f, weights, v);
    prefetch_near(next.q);
    prefetch_to_write(next.in_lanes);
    next.q += next.q_ld;
    next.in_lanes += next.in_lanes_ld;
  }
  sums.store_scaled(f.factors + query, f.y(query) + col, f.a.y_ld);
}

// The same over a part of the keys, or so many that sums are put aside.
template <int R, int V>
__attribute__((noinline)) void value_tile(const FewQueries& f, const KeyBlock& block, int64_t query, int64_t col) {
  constexpr int kCols = V * Vec::kWidth;
  Rows<R, V> sums;
  sums.clear();
  alignas(64) float aside[R * kCols];
  bool any_aside = false;
  const float* weights = f.scores + query;
  const float* v = block.v + col;
  for (int64_t first = 0; first < block.keys; first += kStretchKeys) {
    if (first > 0) {
      if (any_aside) sums.add_from(aside, kCols);
      sums.store(aside, kCols);
      sums.clear();
      any_aside = true;
    }
    for (int64_t left = min_of(kStretchKeys, block.keys - first); left > 0; --left) add_key(sums, f, weights, v);
  }
  if (any_aside) sums.add_from(aside, kCols);
  float* const gathered = f.sums + query * f.a.head_dim + col;
  if (!block.first) sums.add_from(gathered, f.a.head_dim);
  if (!block.last) return sums.store(gathered, f.a.head_dim);
  sums.store_scaled(f.factors + query, f.y(query) + col, f.a.y_ld);
}

// `tiles_left` counts this one.
template <int R, int V>
VLA_INLINE void value_rows(int64_t rows, const FewQueries& f, const KeyBlock& block, int64_t query, int64_t col,
                           int64_t tiles_left) {
  if constexpr (R > 1) {
    if (rows != R) return value_rows<R - 1, V>(rows, f, block, query, col, tiles_left);
  }
  if (block.first && block.last && block.keys <= kStretchKeys) {
    whole_value_tile<R, V>(f, block, query, col, next_head(f, block, tiles_left));
  } else {
    value_tile<R, V>(f, block, query, col);
  }
}

template <int V>
VLA_INLINE void value_panel(int64_t vecs, const FewQueries& f, const KeyBlock& block, int64_t col, int64_t panels_left) {
  if constexpr (V > 1) {
    if (vecs != V) return value_panel<V - 1>(vecs, f, block, col, panels_left);
  }
  const EvenShares tiles(f.count(), kTileRows);
  for (int64_t i = 0, query = 0; i < tiles.shares; query += tiles.size(i), ++i) {
    value_rows<kTileRows, V>(tiles.size(i), f, block, query, col, panels_left * tiles.shares - i);
  }
}

}  // namespace

void values_of_few(const FewQueries& f, const KeyBlock& block) {
  const EvenShares panels(f.a.head_dim / Vec::kWidth, kTileVecs);
  for (int64_t i = 0, col = 0; i < panels.shares; col += panels.size(i) * Vec::kWidth, ++i) {
    value_panel<kTileVecs>(panels.size(i), f, block, col, panels.shares - i);
  }
}

}  // namespace vla::VLA_ISA
