// The panel layout that every right-hand operand of a product has: kTileCols columns side by side for
// each k, columns past the last one zero.
#pragma once

#include "kernels/tile.hpp"

namespace vla::VLA_ISA {

VLA_INLINE int64_t panels_size(int64_t n, int64_t k) { return round_up(n, kTileCols) * k; }

// panel[k][j] = w[j][k] for j < rows.
void pack_transposed(const float* w, int64_t w_ld, int64_t rows, int64_t k, float* panel);
// panel[k][j] = w[k][j] for j < cols.
void pack_straight(const float* w, int64_t w_ld, int64_t cols, int64_t k, float* panel);

}  // namespace vla::VLA_ISA
