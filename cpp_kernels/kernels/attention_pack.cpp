#include "kernels/attention_pack.hpp"

#include "kernels/table.hpp"

namespace vla::VLA_ISA {

int64_t attention_packed_size(const AttentionArgs& a) { return packed_k_size(a) + packed_v_size(a); }

void attention_pack(const AttentionArgs& a, int64_t kv_head, float* packed) {
  const float* k = a.k + kv_head * a.head_dim;
  for (int64_t j = 0; j < a.keys; j += kTileCols) {
    pack_transposed(k + j * a.k_ld, a.k_ld, min_of(kTileCols, a.keys - j), a.head_dim, packed + j * a.head_dim);
  }
  packed += packed_k_size(a);
  const float* v = a.v + kv_head * a.head_dim;
  for (int64_t c = 0; c < a.head_dim; c += kTileCols) {
    pack_straight(v + c, a.v_ld, min_of(kTileCols, a.head_dim - c), a.keys, packed + c * a.keys);
  }
}

}  // namespace vla::VLA_ISA
