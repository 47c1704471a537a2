// The weights of keys, some panels at a time as soon as their scores are summed: one pass over what the first-level cache
// holds.
#pragma once

#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

// What a tile of queries keeps from one block of keys to the next.
struct Weighing {
  // Sums of weights, by lane; of as many rows as can be added up four at a time. NaN where a weight was out of bounds.
  static constexpr int64_t kRows = (kTileRows + 3) / 4 * 4;
  alignas(64) float totals[kRows * Vec::kWidth];
  float shifts[kTileRows];  // of each query's scores, see relative_weights.hpp
};

// weights[r][j] of the score q[r] . k[j], rows of whole panels of keys; what is written past the last key has no meaning.
struct WeightsArgs {
  const float* q;  // [rows][head_dim], scaled by log2(e)
  int64_t head_dim;
  const float* k;  // panels
  float* weights;
  int64_t weights_ld;
  int64_t keys;
  bool first;  // the first of these keys says what the weights are relative to; else Weighing does
  Weighing& weighing;
};

// rows is 1 .. kTileRows. The weights of a query do not depend on the others.
void attention_weights(int64_t rows, const WeightsArgs& args);

}  // namespace vla::VLA_ISA
