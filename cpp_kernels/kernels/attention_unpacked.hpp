// Attention of few queries to keys and values where they lie: packing them would take longer than it saves.
//
// Queries are in the lanes of a vector and keys are the rows of a tile, so that the left operand of both products is read
// one value at a time, in any order: a row of scores has all queries of one key, and so has a row of weights. Queries that
// would leave most of a vector empty have their scores from dot products instead.
#pragma once

#include "kernels/lanes.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

// Of these a vector of their own takes longer than dot products.
constexpr int kMostDots = Vec::kWidth / 4;

// The queries of one call, those in lanes first.
struct FewQueries {
  const AttentionArgs& a;
  int64_t head;
  Range queries;
  int64_t lanes;      // a multiple of the width; the last may be without a query
  int64_t dots;       // queries after those in lanes
  int64_t scores_ld;  // a multiple of the width
  float* in_lanes;    // [lanes / width][head_dim][width], scaled
  float* for_dots;    // [dots][head_dim], scaled
  float* scores;      // [keys of a block][scores_ld], or the weights
  float* sums;        // [queries][head_dim], the weighted sums of V over earlier blocks
  float* shifts;      // [scores_ld], of each query's scores, see relative_weights.hpp
  float* totals;      // [scores_ld], of weights
  float* strays;      // [lanes]
  float* factors;     // [scores_ld], one over the totals

  VLA_INLINE int64_t count() const { return queries.end - queries.begin; }
  VLA_INLINE const float* q(int64_t query) const { return a.q + (queries.begin + query) * a.q_ld + head * a.head_dim; }
  VLA_INLINE float* y(int64_t query) const { return a.y + (queries.begin + query) * a.y_ld + head * a.head_dim; }
};

// Keys that are met together.
struct KeyBlock {
  const float* k;
  const float* v;
  int64_t keys;
  bool first, last;
};

void scale_queries(const FewQueries& few);
// The weights of a block for all queries, and what they add to the totals.
void weights_of_few(const FewQueries& few, const KeyBlock& block);
// Weighted sums of V: into `sums`, or after the last block into y.
void values_of_few(const FewQueries& few, const KeyBlock& block);

}  // namespace vla::VLA_ISA
