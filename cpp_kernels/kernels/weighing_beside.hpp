// Weights of scores that are there, computed while others are summed: one vector at a time, between the multiply-adds of a
// register tile. They use other execution units, and what they are computed with comes from memory, because the tile's
// sums fill the registers.
#pragma once

#include "kernels/attention_unpacked.hpp"
#include "kernels/relative_weights.hpp"

namespace vla::VLA_ISA {

// Scores of some keys for `vecs` vectors of queries, whose first lane is `lane`.
struct Part {
  float* scores;
  int64_t keys;
  int64_t lane, vecs;
};

// Weights in place of the scores of a part, one vector at a time.
class WeighingBeside {
 public:
  VLA_INLINE WeighingBeside(const FewQueries& f, const Part& part)
      : f_(f), column_(part.scores), keys_(part.keys), lane_(part.lane), vecs_(part.vecs) {
    if (vecs_ > 0) begin();
  }

  VLA_INLINE void step_if_any() {
    if (vecs_ > 0) step();
  }
  VLA_INLINE void finish() {
    while (vecs_ > 0) step();
  }

 private:
  VLA_INLINE void step() {
    // Not to be kept in registers, which hold a tile's sums.
    const WeightNumbers* numbers = &kWeightNumbers;
    __asm__("" : "+r"(numbers));
    const Vec weight = relative_weight(load(at_), load(f_.shifts + lane_), strays_, *numbers);
    store(at_, weight);
    total_ = total_ + weight;
    at_ += f_.scores_ld;
    if (--left_ == 0) end();
  }

  VLA_INLINE void begin() {
    at_ = column_;
    left_ = keys_;
    total_ = load(f_.totals + lane_);
    strays_ = load(f_.strays + lane_);
  }

  VLA_INLINE void end() {
    store(f_.totals + lane_, total_);
    store(f_.strays + lane_, strays_);
    column_ += Vec::kWidth;
    lane_ += Vec::kWidth;
    if (--vecs_ > 0) begin();
  }

  const FewQueries& f_;
  float* column_;
  int64_t keys_, lane_, vecs_;
  float* at_ = nullptr;
  int64_t left_ = 0;
  Vec total_, strays_;
};

}  // namespace vla::VLA_ISA
