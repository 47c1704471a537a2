// The walk over the panels of quantized weights, whatever a channel's weights become in them.
#pragma once

#include "kernels/int8_quantize.hpp"
#include "kernels/int8_table.hpp"
#include "kernels/int8_tile.hpp"

namespace vla::VLA_ISA {

// Packs weights w [n][k] into panels of `groups` groups. pack(row, scale, j, weights) writes a channel's k weights into
// column j of its panel, which is zero, and returns where the channel's sums start.
template <typename Pack>
void pack_int8_panels(const float* w, int64_t n, int64_t k, int64_t groups, std::byte* packed, Range panels, Pack pack) {
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const Int8Panel panel(packed, groups, p);
    auto* scales = const_cast<float*>(panel.scales);
    auto* starts = const_cast<int32_t*>(panel.starts);
    auto* weights = const_cast<PackedWeight*>(panel.weights);
    for (int64_t i = 0; i < groups * kGroupWeights; ++i) weights[i] = 0;
    for (int64_t j = 0; j < kInt8TileCols; ++j) {
      const int64_t channel = p * kInt8TileCols + j;
      scales[j] = 0.0f;
      starts[j] = 0;
      if (channel >= n) continue;
      const float* row = w + channel * k;
      scales[j] = int8_scale(int8_largest(row, {0, k}));
      starts[j] = pack(row, scales[j], j, weights);
    }
  }
}

}  // namespace vla::VLA_ISA
