// Linear layers that would leave half of a register tile's columns empty: an action head has six or seven.
// They are summed along k in vectors, one for each of a few rows and columns, from weights kept row by row.
#pragma once

#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

constexpr int64_t kNarrowCols = kTileCols / 2;

VLA_INLINE bool is_narrow(int64_t n) { return n <= kNarrowCols; }

// The layer's columns all at once; `weights` is [n][k]. An element's value does not depend on how the rows are cut.
void linear_narrow(const LinearArgs& args, Range rows, const float* weights);

}  // namespace vla::VLA_ISA
