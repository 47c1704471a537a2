// What follows a convolution by Winograd's method, a vector of channels of one pixel at a time.
#pragma once

#include "kernels/math.hpp"

namespace vla::VLA_ISA {

// Whether an activation is cheap enough to be part of a transform's code.
VLA_INLINE bool is_cheap(Activation activation) {
  return activation == Activation::kNone || activation == Activation::kRelu;
}

// An epilogue at some channels; Part is Whole or First.
template <typename Part>
struct Finish {
  const Epilogue& e;
  int64_t channel;
  Part part;
  Vec bias, scale, shift, least;

  VLA_INLINE Finish(const Epilogue& epilogue, int64_t first, Part columns)
      : e(epilogue),
        channel(first),
        part(columns),
        bias(e.bias ? load(e.bias + channel, part) : zero()),
        scale(e.gamma ? load(e.gamma + channel, part) + splat(1.0f) : zero()),
        shift(e.gamma ? load(e.beta + channel, part) : zero()),
        least(splat(e.activation == Activation::kRelu ? 0.0f : -__builtin_inff())) {}

  // The result of `sum`, for an activation that is cheap; `pixel` is a row of the residual.
  VLA_INLINE Vec cheap(Vec sum, int64_t pixel) const { return modulated(max(least, before(sum, pixel))); }
  // The same for any.
  VLA_INLINE Vec any(Vec sum, int64_t pixel) const { return modulated(activate(before(sum, pixel), e.activation)); }

 private:
  VLA_INLINE Vec before(Vec sum, int64_t pixel) const {
    const Vec v = sum + bias;
    return e.residual ? v + load(e.residual + pixel * e.residual_ld + channel, part) : v;
  }
  VLA_INLINE Vec modulated(Vec v) const { return e.gamma ? fma(v, scale, shift) : v; }
};

template <typename Part>
Finish(const Epilogue&, int64_t, Part) -> Finish<Part>;

}  // namespace vla::VLA_ISA
