// A tile of queries of one head that meets packed keys, block by block. Scores and weights live in a scratch block of one
// tile's rows, never in memory proper. Scores are kept as powers of two: what e is raised to, times log2(e).
#pragma once

#include "kernels/attention_pack.hpp"
#include "kernels/softmax.hpp"

namespace vla::VLA_ISA {

struct QueryTile {
  const AttentionArgs& a;
  int64_t head;
  const float* k;  // packed, of this head
  const float* v;
  int64_t rows;
  int64_t query[kTileRows];
  int64_t scores_ld, sums_ld;
  float* q;       // [rows][head_dim], scaled
  float* scores;  // [rows][scores_ld], or the weights
  float* sums;    // [rows][sums_ld], the weighted sum of V

  VLA_INLINE float* y(int64_t row) const { return a.y + query[row] * a.y_ld + head * a.head_dim; }
};

// Meets all keys and stores the results, whatever the scores and with any bias: keeps for each query the largest score so
// far, the sum of the exponentials and the weighted sum of V, all relative to that score.
void attend_online(const QueryTile& tile);

// Keys per block: a multiple of the panel width, the blocks as even as that allows.
VLA_INLINE int64_t block_keys(const AttentionArgs& a) {
  constexpr int64_t kMostKeys = 1024;
  return round_up(ceil_div(a.keys, ceil_div(a.keys, kMostKeys)), kTileCols);
}

VLA_INLINE void load_queries(const QueryTile& t) {
  const Vec scale = splat(t.a.scale * kLog2E);
  const int64_t dim = t.a.head_dim;
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* q = t.a.q + t.query[r] * t.a.q_ld + t.head * dim;
    over_columns(dim, [&](int64_t c, auto part) { store(t.q + r * dim + c, load(q + c, part) * scale, part); });
  }
}

// The product of the weights of a block of keys with a panel of V, of head columns from `col` on.
VLA_INLINE TileArgs values_product(const QueryTile& t, int64_t first_key, int64_t keys, int64_t col) {
  TileArgs product;
  product.a = t.scores;
  product.a_ld = t.scores_ld;
  product.runs = 1;
  product.run = keys;
  product.run_stride = 0;
  product.b = t.v + col * t.a.keys + first_key * kTileCols;
  product.accumulate = first_key > 0;
  clear_epilogue(product);
  product.upcoming = product.b + keys * kTileCols;
  return product;
}

VLA_INLINE void add_values(const QueryTile& t, int64_t first_key, int64_t keys) {
  for (int64_t c = 0; c < t.sums_ld; c += kTileCols) {
    TileArgs product = values_product(t, first_key, keys, c);
    product.y = t.sums + c;
    product.y_ld = t.sums_ld;
    product.cols = kTileCols;
    run_tile(t.rows, product);
  }
}

// Results are the sums times `factors`, one for each query.
VLA_INLINE void store_results(const QueryTile& t, const float* factors) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const Vec factor = splat(factors[r]);
    over_columns(t.a.head_dim, [&](int64_t c, auto part) {
      store(t.y(r) + c, load(t.sums + r * t.sums_ld + c) * factor, part);
    });
  }
}

}  // namespace vla::VLA_ISA
