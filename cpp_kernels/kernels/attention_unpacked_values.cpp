#include "kernels/attention_unpacked.hpp"

namespace vla::VLA_ISA {
namespace {

// Sums over this many keys are put aside, as in other products.
constexpr int64_t kStretchKeys = 4 * kStretchSteps;

// Weighted sums of V vectors of head columns for R queries.
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
    for (int64_t left = min_of(kStretchKeys, block.keys - first); left > 0; --left) {
      Lanes<V> values;
      values.load(v);
      sums.multiply_add(weights, 1, values);
      weights += f.scores_ld;
      v += f.a.v_ld;
    }
  }
  if (any_aside) sums.add_from(aside, kCols);
  float* const gathered = f.sums + query * f.a.head_dim + col;
  if (!block.first) sums.add_from(gathered, f.a.head_dim);
  if (!block.last) return sums.store(gathered, f.a.head_dim);
  sums.scale(f.factors + query);
  sums.store(f.y(query) + col, f.a.y_ld);
}

template <int R, int V>
VLA_INLINE void value_rows(int64_t rows, const FewQueries& f, const KeyBlock& block, int64_t query, int64_t col) {
  if constexpr (R > 1) {
    if (rows != R) return value_rows<R - 1, V>(rows, f, block, query, col);
  }
  value_tile<R, V>(f, block, query, col);
}

template <int V>
VLA_INLINE void value_panel(int64_t vecs, const FewQueries& f, const KeyBlock& block, int64_t col) {
  if constexpr (V > 1) {
    if (vecs != V) return value_panel<V - 1>(vecs, f, block, col);
  }
  const EvenShares tiles(f.count(), kTileRows);
  for (int64_t i = 0, query = 0; i < tiles.shares; query += tiles.size(i), ++i) {
    value_rows<kTileRows, V>(tiles.size(i), f, block, query, col);
  }
}

}  // namespace

void values_of_few(const FewQueries& f, const KeyBlock& block) {
  const EvenShares panels(f.a.head_dim / Vec::kWidth, kTileVecs);
  for (int64_t i = 0, col = 0; i < panels.shares; col += panels.size(i) * Vec::kWidth, ++i) {
    value_panel<kTileVecs>(panels.size(i), f, block, col);
  }
}

}  // namespace vla::VLA_ISA
