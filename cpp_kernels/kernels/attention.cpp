// Attention over blocks of keys: a tile of queries meets one block after another, keeping for each query
// the largest score so far, the sum of the exponentials and the weighted sum of V, all relative to that
// score. Scores live in a scratch block of one tile's rows, never in memory proper, and are kept as powers
// of two: what e is raised to, times log2(e).
#include "kernels/attention_pack.hpp"
#include "kernels/softmax.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kMostKeys = 1024;  // in one block

// Keys per block: a multiple of the panel width, the blocks as even as that allows.
VLA_INLINE int64_t block_keys(const AttentionArgs& a) {
  return round_up(ceil_div(a.keys, ceil_div(a.keys, kMostKeys)), kTileCols);
}

// A tile of queries while it meets the keys.
struct QueryTile {
  const AttentionArgs& a;
  const float* k;     // packed, of this head
  const float* v;
  const float* bias;  // of the tile's first query, or null
  int64_t rows;
  int64_t scores_ld, sums_ld;
  const float* next_q;  // of the tile that comes after this one
  int64_t next_rows;
  float* q;       // [rows][head_dim], scaled
  float* scores;  // [rows][scores_ld]
  float* sums;    // [rows][sums_ld], the weighted sum of V
  float largest[kTileRows];
  float total[kTileRows];
};

VLA_INLINE TileArgs plain_product(const float* a, int64_t a_ld, int64_t depth, const float* b, float* y, int64_t y_ld) {
  TileArgs t;
  t.a = a;
  t.a_ld = a_ld;
  t.runs = 1;
  t.run = depth;
  t.run_stride = 0;
  t.b = b;
  t.y = y;
  t.y_ld = y_ld;
  t.cols = kTileCols;
  t.accumulate = false;
  clear_epilogue(t);
  t.upcoming = b + depth * kTileCols;
  return t;
}

void compute_scores(QueryTile& t, int64_t first_key, int64_t keys) {
  const int64_t dim = t.a.head_dim;
  run_panels(t.rows, {t.q, dim, dim, t.k + first_key * dim, t.scores, t.scores_ld, keys});
}

void fetch_query(const float* q, int64_t dim) {
  for (int64_t c = 0; c < dim; c += 16) prefetch_far(q + c);
}

// Turns scores into weights, and what each row gathered so far to its new largest score.
void weigh(QueryTile& t, int64_t first_key, int64_t keys) {
  float before[kTileRows];
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* bias = t.bias ? t.bias + r * t.a.keys + first_key : nullptr;
    if (r < t.next_rows) fetch_query(t.next_q + r * t.a.q_ld, t.a.head_dim);
    const float here = biased_max(t.scores + r * t.scores_ld, bias, keys);
    before[r] = t.largest[r];
    if (!(here <= before[r])) t.largest[r] = here;  // NaN is kept
  }
  for (int64_t r = 0; r < t.rows; ++r) {
    const float sum = exponentials(t.scores + r * t.scores_ld, t.largest[r], keys);
    if (first_key == 0) {
      t.total[r] = sum;
      continue;
    }
    if (before[r] == t.largest[r]) {  // the factor would be one
      t.total[r] += sum;
      continue;
    }
    const Vec rescale = exp2_of_negative(splat(before[r] - t.largest[r]));
    t.total[r] = first_lane(fma(splat(t.total[r]), rescale, splat(sum)));
    float* gathered = t.sums + r * t.sums_ld;
    for (int64_t c = 0; c < t.sums_ld; c += Vec::kWidth) store(gathered + c, load(gathered + c) * rescale);
  }
}

void add_values(QueryTile& t, int64_t first_key, int64_t keys) {
  for (int64_t c = 0; c < t.sums_ld; c += kTileCols) {
    const float* panel = t.v + c * t.a.keys + first_key * kTileCols;
    TileArgs product = plain_product(t.scores, t.scores_ld, keys, panel, t.sums + c, t.sums_ld);
    product.accumulate = first_key > 0;
    run_tile(t.rows, product);
  }
}

void load_queries(QueryTile& t, const float* q) {
  const Vec scale = splat(t.a.scale * kLog2E);
  const int64_t dim = t.a.head_dim;
  for (int64_t r = 0; r < t.rows; ++r) {
    over_columns(dim, [&](int64_t c, auto part) {
      store(t.q + r * dim + c, load(q + r * t.a.q_ld + c, part) * scale, part);
    });
    t.largest[r] = -__FLT_MAX__;  // finite, so that a row that meets only masked keys has no inf - inf
    t.total[r] = 0.0f;
  }
}

void store_result(const QueryTile& t, float* y) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const Vec total = splat(t.total[r]);
    over_columns(t.a.head_dim, [&](int64_t c, auto part) {
      store(y + r * t.a.y_ld + c, load(t.sums + r * t.sums_ld + c) / total, part);
    });
  }
}

}  // namespace

int64_t attention_scratch(const AttentionArgs& a) {
  return kTileRows * (round_up(a.head_dim, 16) + block_keys(a) + round_up(a.head_dim, kTileCols));
}

void attention(const AttentionArgs& a, int64_t head, Range queries, const float* packed, float* scratch) {
  const int64_t block = block_keys(a);
  const int64_t sums_ld = round_up(a.head_dim, kTileCols);
  float* const scores = scratch + kTileRows * round_up(a.head_dim, 16);
  const EvenShares tiles(queries.end - queries.begin, kTileRows);
  for (int64_t i = 0, row = queries.begin; i < tiles.shares; row += tiles.size(i), ++i) {
    const float* bias = a.bias ? a.bias + head * a.bias_head + row * a.keys : nullptr;
    const float* q = a.q + row * a.q_ld + head * a.head_dim;
    const int64_t next_rows = i + 1 < tiles.shares ? tiles.size(i + 1) : 0;
    QueryTile t = {a, packed, packed + packed_k_size(a), bias, tiles.size(i), block, sums_ld, q + tiles.size(i) * a.q_ld,
                   next_rows, scratch, scores, scores + kTileRows * block, {}, {}};
    load_queries(t, q);
    for (int64_t first = 0; first < a.keys; first += block) {
      const int64_t keys = min_of(block, a.keys - first);
      compute_scores(t, first, keys);
      weigh(t, first, keys);
      add_values(t, first, keys);
    }
    store_result(t, a.y + row * a.y_ld + head * a.head_dim);
  }
}

}  // namespace vla::VLA_ISA
