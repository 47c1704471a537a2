#include "kernels/int8_quantize.hpp"
#include "kernels/int8_table.hpp"
#include "kernels/int8_tile.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kPiece = 256;  // weights that are quantized at a time
static_assert(kPiece % kGroup == 0);

// Writes the weights of one channel into column `j` of a panel, and returns their sum.
int64_t pack_channel(const float* w, Int8Runs runs, float scale, int64_t j, PackedWeight* panel) {
  Quantized piece[kPiece];
  PackedWeight* column = panel + j / Vec::kWidth * Vec::kWidth * kGroup;
  const int64_t lane = j % Vec::kWidth;
  int64_t sum = 0;
  for (int64_t i = 0; i < runs.runs; ++i) {
    for (int64_t at = 0; at < runs.run; at += kPiece) {
      const int64_t count = min_of(kPiece, runs.run - at);
      int8_quantize(w + i * runs.run + at, count, scale, piece);
      PackedWeight* to = column + at / kGroup * kGroupWeights;
      for (int64_t k = 0; k < count; ++k) {
        const int value = piece[k] - kZeroPoint;
        to[k / kGroup * kGroupWeights + weight_place(lane, k % kGroup)] = static_cast<PackedWeight>(value);
        sum += value;
      }
    }
    column += groups_of(runs.run) * kGroupWeights;
  }
  return sum;
}

}  // namespace

int64_t int8_packed_bytes(int64_t n, Int8Runs runs) {
  return ceil_div(n, kInt8TileCols) * Int8Panel::bytes(runs.runs * groups_of(runs.run));
}

void int8_pack(const float* w, int64_t n, Int8Runs runs, std::byte* packed, Range panels) {
  const int64_t k = runs.runs * runs.run, groups = runs.runs * groups_of(runs.run);
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
      // Inputs are off by the zero point, and every sum by that times its weights. Sums wrap, so only the final
      // value needs to fit.
      const int64_t excess = kZeroPoint * pack_channel(row, runs, scales[j], j, weights);
      starts[j] = static_cast<int32_t>(-excess);
    }
  }
}

}  // namespace vla::VLA_ISA
