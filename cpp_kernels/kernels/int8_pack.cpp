#include "kernels/int8_pack.hpp"

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
  const int64_t groups = runs.runs * groups_of(runs.run);
  pack_int8_panels(w, n, runs.runs * runs.run, groups, packed, panels,
                   [&](const float* row, float scale, int64_t j, PackedWeight* weights) {
                     // Inputs are off by the zero point, and every sum by that times its weights. Sums wrap, so only
                     // the final value needs to fit.
                     const int64_t excess = kZeroPoint * pack_channel(row, runs, scale, j, weights);
                     return static_cast<int32_t>(-excess);
                   });
}

}  // namespace vla::VLA_ISA
