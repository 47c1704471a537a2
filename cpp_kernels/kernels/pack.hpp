// The panel layout that every right-hand operand of a product has: kTileCols columns side by side for
// each k, columns past the last one zero.
#pragma once

#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

// panel[k][j] = w[j][k] for j < rows.
void pack_transposed(const float* w, int64_t w_ld, int64_t rows, int64_t k, float* panel);
// panel[k][j] = w[k][j] for j < cols.
void pack_straight(const float* w, int64_t w_ld, int64_t cols, int64_t k, float* panel);

}  // namespace vla::VLA_ISA
