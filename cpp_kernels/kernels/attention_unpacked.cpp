#include "kernels/attention_unpacked.hpp"

#include "kernels/attention_tile.hpp"
#include "kernels/relative_weights.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kMostQueries = 128;
// Scores in memory at a time, which are to stay in the second-level cache together with keys and values.
constexpr int64_t kMostScores = 1 << 16;

int64_t kv_head_of(const AttentionArgs& a, int64_t head) { return head / (a.heads / a.kv_heads); }

int64_t lanes_of(int64_t queries) {
  const int64_t left = queries % Vec::kWidth;
  return left <= kMostDots ? queries - left : queries - left + Vec::kWidth;
}

int64_t most_keys(const AttentionArgs& a) {
  const int64_t row = round_up(a.queries, Vec::kWidth);
  if (a.keys * row <= kMostScores) return a.keys;
  return ceil_div(a.keys, ceil_div(a.keys, kMostScores / row));
}

int64_t few_queries_scratch(const AttentionArgs& a) {
  const int64_t row = round_up(a.queries, Vec::kWidth);
  return (row + kMostDots + a.queries) * a.head_dim + (most_keys(a) + 4) * row;
}

FewQueries few_queries(const AttentionArgs& a, int64_t head, Range queries, int64_t most_keys, float* scratch) {
  const int64_t count = queries.end - queries.begin, ld = round_up(count, Vec::kWidth), lanes = lanes_of(count);
  float* const for_dots = scratch + a.head_dim * lanes;
  float* const scores = for_dots + kMostDots * a.head_dim;
  float* const sums = scores + most_keys * ld;
  float* const shifts = sums + count * a.head_dim;
  return {a,      head, queries, lanes,       max_of(0, count - lanes), ld,             scratch, for_dots,
          scores, sums, shifts,  shifts + ld, shifts + 2 * ld,          shifts + 3 * ld};
}

// Returns whether all totals can be used.
bool finish_totals(const FewQueries& f) {
  Vec unusable = zero();
  for (int64_t i = 0; i < f.scores_ld; i += Vec::kWidth) {
    Vec total = load(f.totals + i);
    if (i < f.lanes) {
      total = without_strays(total, load(f.strays + i));
      store(f.totals + i, total);
    }
    store(f.factors + i, splat(1.0f) / total);
    const Vec here = select(is_usable(total), zero(), splat(1.0f));
    unusable = unusable + keep_first(here, min_of(Vec::kWidth, f.count() - i));
  }
  return sum(unusable) == 0.0f;
}

// The queries whose weights are not all in bounds meet the keys again, packed.
void attend_again(const FewQueries& f, float* scratch) {
  const AttentionArgs& a = f.a;
  float* const packed = scratch;
  attention_pack(a, kv_head_of(a, f.head), packed);
  float* const q = packed + packed_k_size(a) + packed_v_size(a);
  float* const scores = q + kTileRows * round_up(a.head_dim, 16);
  QueryTile tile = {a, f.head, packed, packed + packed_k_size(a), 0, {}, block_keys(a), round_up(a.head_dim, kTileCols),
                    q, scores, scores + kTileRows * block_keys(a)};
  for (int64_t i = 0; i < f.count(); ++i) {
    if (!is_usable(f.totals[i])) tile.query[tile.rows++] = f.queries.begin + i;
    if (tile.rows == 0 || (tile.rows < kTileRows && i + 1 < f.count())) continue;
    load_queries(tile);
    attend_online(tile);
    tile.rows = 0;
  }
}

}  // namespace

bool attention_unpacked_fits(const AttentionArgs& a) {
  return !a.bias && a.queries <= kMostQueries && a.head_dim % Vec::kWidth == 0;
}

int64_t attention_unpacked_scratch(const AttentionArgs& a) {
  return few_queries_scratch(a) + attention_packed_size(a) + attention_scratch(a);
}

void attention_unpacked(const AttentionArgs& a, int64_t head, Range queries, float* scratch) {
  const int64_t most = most_keys(a), col = kv_head_of(a, head) * a.head_dim;
  const FewQueries few = few_queries(a, head, queries, most, scratch);
  scale_queries(few);
  bool usable = true;
  for (int64_t key = 0; key < a.keys; key += most) {
    const int64_t keys = min_of(most, a.keys - key);
    const KeyBlock block = {a.k + key * a.k_ld + col, a.v + key * a.v_ld + col, keys, key == 0, key + keys == a.keys};
    weights_of_few(few, block);
    if (block.last) usable = finish_totals(few);
    values_of_few(few, block);
  }
  if (!usable) attend_again(few, scratch + few_queries_scratch(a));
}

}  // namespace vla::VLA_ISA
