// Rough costs of one element, in floating-point operations of a matrix product that take as long. Most of it is the way
// from the caches of the thread that computed the element before.
#pragma once

#include <cstdint>

#include "kernels/kernels.hpp"

namespace vla {

constexpr int64_t kCopyCost = 64;
constexpr int64_t kTranscendentalCost = 128;

constexpr bool known(Activation activation) { return activation >= Activation::kNone && activation <= kLastActivation; }

constexpr int64_t pointwise_cost(Activation activation) {
  return activation > Activation::kRelu ? kTranscendentalCost : kCopyCost;
}

}  // namespace vla
