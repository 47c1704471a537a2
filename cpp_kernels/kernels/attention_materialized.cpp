// Attention in three steps over a matrix of all scores in memory: the product of queries and keys, a softmax of its
// rows, and the product with V. Both products are those of a linear layer, of which K or V are the weights.
#include "kernels/attention_pack.hpp"
#include "kernels/softmax.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kFloatsPerLine = 16;

VLA_INLINE int64_t scores_ld(const AttentionArgs& a) { return round_up(a.keys, kFloatsPerLine); }

}  // namespace

int64_t attention_scores_size(const AttentionArgs& a) { return a.queries * scores_ld(a); }

void attention_scores(const AttentionArgs& a, int64_t head, Range queries, const float* packed, float* scores) {
  LinearArgs product;
  product.x = a.q + head * a.head_dim;
  product.x_ld = a.q_ld;
  product.packed = packed;
  product.y = scores;
  product.y_ld = scores_ld(a);
  product.m = a.queries;
  product.n = a.keys;
  product.k = a.head_dim;
  linear(product, queries, {0, ceil_div(a.keys, kTileCols)});
}

void attention_softmax(const AttentionArgs& a, int64_t head, Range queries, float* scores) {
  const Vec scale = splat(a.scale * kLog2E);
  for (int64_t row = queries.begin; row < queries.end; ++row) {
    float* s = scores + row * scores_ld(a);
    over_columns(a.keys, [&](int64_t j, auto part) { store(s + j, load(s + j, part) * scale, part); });
    const float* bias = a.bias ? a.bias + head * a.bias_head + row * a.keys : nullptr;
    const float here = biased_max(s, bias, a.keys);
    const float largest = here < -__FLT_MAX__ ? -__FLT_MAX__ : here;  // no inf - inf where all keys are masked
    const Vec total = splat(exponentials(s, largest, a.keys));
    over_columns(a.keys, [&](int64_t j, auto part) { store(s + j, load(s + j, part) / total, part); });
  }
}

void attention_values(const AttentionArgs& a, int64_t head, Range queries, const float* packed, const float* scores) {
  LinearArgs product;
  product.x = scores;
  product.x_ld = scores_ld(a);
  product.packed = packed + packed_k_size(a);
  product.y = a.y + head * a.head_dim;
  product.y_ld = a.y_ld;
  product.m = a.queries;
  product.n = a.head_dim;
  product.k = a.keys;
  linear(product, queries, {0, ceil_div(a.head_dim, kTileCols)});
}

}  // namespace vla::VLA_ISA
