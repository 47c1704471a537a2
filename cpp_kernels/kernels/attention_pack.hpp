// The layout of K and V that both methods of attention read: of each key-value head K as panels of keys, then V as
// panels of head columns.
#pragma once

#include "kernels/pack.hpp"

namespace vla::VLA_ISA {

VLA_INLINE int64_t packed_k_size(const AttentionArgs& a) { return panels_size(a.keys, a.head_dim); }
VLA_INLINE int64_t packed_v_size(const AttentionArgs& a) { return panels_size(a.head_dim, a.keys); }

}  // namespace vla::VLA_ISA
