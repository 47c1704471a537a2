// The weights of keys, some panels at a time as soon as their scores are summed: one pass over what the first-level cache
// holds.
#pragma once

#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

// A softmax divides by the sum of its weights, so that they may be relative to anything: to the largest score, which is
// known when all are, or to that of the first key, rounded to a whole power of two, which is known at once. For floats
// the one is as exact as the other while no weight is too large for them.
struct Weighing {
  // Sums of weights, by lane; of as many rows as can be added up four at a time.
  static constexpr int64_t kRows = (kTileRows + 3) / 4 * 4;
  alignas(64) float totals[kRows * Vec::kWidth];
  // What each query's weights are relative to, 2^m, in the form that they are computed with.
  float to_exponent[kTileRows];  // kToExponent - m
  float lowest[kTileRows];       // m - 127, below which a weight is zero
  float highest[kTileRows];      // m + 128, from which on it is infinite
};

// weights[r][j] = 2^(q[r] . k[j] - m[r]), rows of whole panels of keys; what is written past the last key has no meaning.
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
