// Attention to a state. K and V lie in it as attention reads them, so nothing is packed before a product: of each
// key-value head K as panels of keys, and of each V as panels of head columns.
//
// The keys are met in blocks whose limits are the same for every query, and a query leaves out those past its own
// position: the sums of a row are those that it would have alone, in the same order, however many rows there are.
#include "kernels/pack.hpp"
#include "kernels/softmax.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kBlockKeys = 256;
static_assert(kBlockKeys % kTileCols == 0);

// Of one key-value head.
VLA_INLINE int64_t keys_size(const KeyValueShape& s) { return panels_size(s.rows, s.head_dim); }
VLA_INLINE int64_t values_size(const KeyValueShape& s) { return panels_size(s.head_dim, s.rows); }
VLA_INLINE int64_t keys_at(const KeyValueShape& s, int64_t kv_head) { return kv_head * keys_size(s); }
VLA_INLINE int64_t values_at(const KeyValueShape& s, int64_t kv_head) {
  return s.kv_heads * keys_size(s) + kv_head * values_size(s);
}

// A tile of units of one key-value head while it meets the keys.
struct UnitTile {
  const CachedAttentionArgs& a;
  const float* k;
  const float* v;
  int64_t rows;
  int64_t sums_ld;
  float* q;       // [rows][head_dim], scaled
  float* scores;  // [rows][kBlockKeys]
  float* sums;    // [rows][sums_ld], the weighted sum of V
  int64_t seen[kTileRows];  // keys that the unit attends to
  float largest[kTileRows];
  float total[kTileRows];
};

// Column of a unit's head in q and y, and its row.
VLA_INLINE int64_t row_of(const CachedAttentionArgs& a, int64_t unit) { return unit / a.heads_per_kv(); }
VLA_INLINE int64_t column_of(const CachedAttentionArgs& a, int64_t kv_head, int64_t unit) {
  return (kv_head * a.heads_per_kv() + unit % a.heads_per_kv()) * a.shape.head_dim;
}

// Returns the most keys that a unit of the tile attends to.
int64_t begin_tile(UnitTile& t, int64_t kv_head, int64_t first) {
  const Vec scale = splat(t.a.scale * kLog2E);
  const int64_t dim = t.a.shape.head_dim;
  int64_t most = 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t row = row_of(t.a, first + r);
    const float* q = t.a.q + row * t.a.q_ld + column_of(t.a, kv_head, first + r);
    over_columns(dim, [&](int64_t c, auto part) { store(t.q + r * dim + c, load(q + c, part) * scale, part); });
    t.seen[r] = int64_t{t.a.positions[row]} + 1;
    t.largest[r] = -__FLT_MAX__;
    t.total[r] = 0.0f;
    most = max_of(most, t.seen[r]);
  }
  return most;
}

// Turns the scores of one unit, of which it attends to `own`, into weights, the others' into zero, and what it gathered so
// far to its new largest score.
void weigh(UnitTile& t, int64_t r, bool first, int64_t own, int64_t keys) {
  float* scores = t.scores + r * kBlockKeys;
  if (own > 0) {
    const float before = t.largest[r];
    const float here = biased_max(scores, nullptr, own);
    if (!(here <= before)) t.largest[r] = here;  // NaN is kept
    const float sum = exponentials(scores, t.largest[r], own);
    if (first || before == t.largest[r]) {
      t.total[r] += sum;
    } else {
      const Vec rescale = exp2_of_negative(splat(before - t.largest[r]));
      t.total[r] = first_lane(fma(splat(t.total[r]), rescale, splat(sum)));
      float* gathered = t.sums + r * t.sums_ld;
      for (int64_t c = 0; c < t.sums_ld; c += Vec::kWidth) store(gathered + c, load(gathered + c) * rescale);
    }
  }
  for (int64_t j = own; j < keys; ++j) scores[j] = 0.0f;
}

void add_values(UnitTile& t, int64_t first_key, int64_t keys) {
  for (int64_t c = 0; c < t.sums_ld; c += kTileCols) {
    TileArgs product = {};
    product.a = t.scores;
    product.a_ld = kBlockKeys;
    product.runs = 1;
    product.run = keys;
    product.b = t.v + c * t.a.shape.rows + first_key * kTileCols;
    product.y = t.sums + c;
    product.y_ld = t.sums_ld;
    product.cols = kTileCols;
    product.accumulate = first_key > 0;
    product.upcoming = product.b + keys * kTileCols;
    product.upcoming_lines = 1;
    run_tile(t.rows, product);
  }
}

void store_result(const UnitTile& t, int64_t kv_head, int64_t first) {
  for (int64_t r = 0; r < t.rows; ++r) {
    float* y = t.a.y + row_of(t.a, first + r) * t.a.y_ld + column_of(t.a, kv_head, first + r);
    const Vec total = splat(t.total[r]);
    over_columns(t.a.shape.head_dim,
                 [&](int64_t c, auto part) { store(y + c, load(t.sums + r * t.sums_ld + c) / total, part); });
  }
}

}  // namespace

int64_t key_value_size(const KeyValueShape& s) { return s.kv_heads * (keys_size(s) + values_size(s)); }

void append(const AppendArgs& a, Range rows) {
  const KeyValueShape& s = a.shape;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t position = a.positions[row];
    for (int64_t head = 0; head < s.kv_heads; ++head) {
      const float* k = a.k + row * a.k_ld + head * s.head_dim;
      float* panel = a.state + keys_at(s, head) + position / kTileCols * kTileCols * s.head_dim + position % kTileCols;
      for (int64_t c = 0; c < s.head_dim; ++c) panel[c * kTileCols] = k[c];
      const float* v = a.v + row * a.v_ld + head * s.head_dim;
      float* values = a.state + values_at(s, head) + position * kTileCols;
      for (int64_t c0 = 0; c0 < s.head_dim; c0 += kTileCols) {
        over_columns(min_of(kTileCols, s.head_dim - c0), [&](int64_t c, auto part) {
          store(values + c0 * s.rows + c, load(v + c0 + c, part), part);
        });
      }
    }
  }
}

int64_t cached_attention_scratch(const CachedAttentionArgs& a) {
  return kTileRows * (round_up(a.shape.head_dim, 16) + kBlockKeys + round_up(a.shape.head_dim, kTileCols));
}

void cached_attention(const CachedAttentionArgs& a, int64_t kv_head, Range units, float* scratch) {
  const int64_t dim = a.shape.head_dim;
  float* const scores = scratch + kTileRows * round_up(dim, 16);
  const EvenShares tiles(units.end - units.begin, kTileRows);
  for (int64_t i = 0, unit = units.begin; i < tiles.shares; unit += tiles.size(i), ++i) {
    UnitTile t = {a, a.state + keys_at(a.shape, kv_head), a.state + values_at(a.shape, kv_head), tiles.size(i),
                  round_up(dim, kTileCols), scratch, scores, scores + kTileRows * kBlockKeys, {}, {}, {}};
    const int64_t most = begin_tile(t, kv_head, unit);
    for (int64_t first = 0; first < most; first += kBlockKeys) {
      const int64_t keys = min_of(kBlockKeys, most - first);
      run_panels(t.rows, {t.q, dim, dim, t.k + first * dim, t.scores, kBlockKeys, keys});
      for (int64_t r = 0; r < t.rows; ++r) {
        weigh(t, r, first == 0, max_of(0, min_of(keys, t.seen[r] - first)), keys);
      }
      add_values(t, first, keys);
    }
    store_result(t, kv_head, unit);
  }
}

}  // namespace vla::VLA_ISA
