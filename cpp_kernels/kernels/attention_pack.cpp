#include "kernels/attention_pack.hpp"

#include "kernels/table.hpp"

namespace vla::VLA_ISA {

int64_t attention_packed_size(const AttentionArgs& a) { return packed_k_size(a) + packed_v_size(a); }

void attention_pack(const AttentionArgs& a, Range kv_heads, float* packed) {
  for (int64_t h = kv_heads.begin; h < kv_heads.end; ++h) {
    float* to = packed + h * attention_packed_size(a);
    const float* k = a.k + h * a.head_dim;
    for (int64_t j = 0; j < a.keys; j += kTileCols) {
      pack_transposed(k + j * a.k_ld, a.k_ld, min_of(kTileCols, a.keys - j), a.head_dim, to + j * a.head_dim);
    }
    to += packed_k_size(a);
    const float* v = a.v + h * a.head_dim;
    for (int64_t c = 0; c < a.head_dim; c += kTileCols) {
      pack_straight(v + c, a.v_ld, min_of(kTileCols, a.head_dim - c), a.keys, to + c * a.keys);
    }
  }
}

}  // namespace vla::VLA_ISA
