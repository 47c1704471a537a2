// Attention of some queries of one head, in tiles. Where there is no bias scores become weights while others are yet to be
// summed; the few queries whose scores that does not fit meet the keys a second time.
#include "kernels/attention_tile.hpp"
#include "kernels/attention_weights.hpp"
#include "kernels/relative_weights.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

void fetch_query(const float* q, int64_t dim) {
  for (int64_t c = 0; c < dim; c += 16) prefetch_far(q + c);
}

// The weighted sums of a single block of keys, which are finished where they are.
void store_values(const QueryTile& t, const float* factors) {
  for (int64_t c = 0; c < t.a.head_dim; c += kTileCols) {
    TileArgs product = values_product(t, 0, t.a.keys, c);
    product.y = t.y(0) + c;
    product.y_ld = t.a.y_ld;
    product.cols = min_of(kTileCols, t.a.head_dim - c);
    product.row_factors = factors;
    run_tile(t.rows, product);
  }
}

// The sum of each row's weights, and one over it.
void add_up(const Weighing& w, int64_t rows, float* totals, float* factors) {
  for (int64_t r = 0; r < rows; r += 4) {
    const float* lanes = w.totals + r * Vec::kWidth;
    sums_of_four(load(lanes), load(lanes + Vec::kWidth), load(lanes + 2 * Vec::kWidth), load(lanes + 3 * Vec::kWidth),
                 totals + r);
  }
  for (int64_t r = 0; r < rows; ++r) factors[r] = 1.0f / totals[r];
}

void attend(const QueryTile& t) {
  Weighing weighing;
  for (int64_t r = 0; r < Weighing::kRows; ++r) store(weighing.totals + r * Vec::kWidth, zero());
  const int64_t dim = t.a.head_dim;
  float totals[Weighing::kRows], factors[kTileRows];
  for (int64_t first = 0; first < t.a.keys; first += t.scores_ld) {
    const int64_t keys = min_of(t.scores_ld, t.a.keys - first);
    attention_weights(t.rows, {t.q, dim, t.k + first * dim, t.scores, t.scores_ld, keys, first == 0, weighing});
    if (t.a.keys > t.scores_ld) add_values(t, first, keys);
  }
  add_up(weighing, t.rows, totals, factors);
  if (t.a.keys > t.scores_ld) {
    store_results(t, factors);
  } else {
    store_values(t, factors);
  }
  QueryTile others = t;
  others.rows = 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    if (!is_usable(totals[r])) others.query[others.rows++] = t.query[r];
  }
  if (others.rows == 0) return;
  load_queries(others);
  attend_online(others);
}

}  // namespace

int64_t attention_scratch(const AttentionArgs& a) {
  return kTileRows * (round_up(a.head_dim, 16) + block_keys(a) + round_up(a.head_dim, kTileCols));
}

void attention(const AttentionArgs& a, int64_t head, Range queries, const float* packed, float* scratch) {
  const int64_t block = block_keys(a);
  float* const scores = scratch + kTileRows * round_up(a.head_dim, 16);
  const EvenShares tiles(queries.end - queries.begin, kTileRows);
  for (int64_t i = 0, query = queries.begin; i < tiles.shares; query += tiles.size(i), ++i) {
    QueryTile t = {a, head, packed, packed + packed_k_size(a), tiles.size(i), {}, block, round_up(a.head_dim, kTileCols),
                   scratch, scores, scores + kTileRows * block};
    for (int64_t r = 0; r < t.rows; ++r) t.query[r] = query + r;
    load_queries(t);
    const int64_t next = query + t.rows, fetched = i + 1 < tiles.shares ? tiles.size(i + 1) : 0;
    for (int64_t r = 0; r < fetched; ++r) fetch_query(a.q + (next + r) * a.q_ld + head * a.head_dim, a.head_dim);
    if (a.bias) {
      attend_online(t);
    } else {
      attend(t);
    }
  }
}

}  // namespace vla::VLA_ISA
