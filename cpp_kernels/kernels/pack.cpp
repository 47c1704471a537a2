#include "kernels/pack.hpp"

#include "kernels/table.hpp"

namespace vla::VLA_ISA {

void pack_transposed(const float* w, int64_t w_ld, int64_t rows, int64_t k, float* panel) {
  constexpr int64_t kWidth = Vec::kWidth;
  const int64_t whole_k = k / kWidth * kWidth;
  for (int64_t j0 = 0; j0 < kTileCols; j0 += kWidth) {
    const int64_t here = max_of(0, min_of(kWidth, rows - j0));
    const float* from = w + j0 * w_ld;
    float* to = panel + j0;
    if (here == kWidth) {
      for (int64_t i = 0; i < whole_k; i += kWidth) transpose(from + i, w_ld, to + i * kTileCols, kTileCols);
    }
    for (int64_t i = here == kWidth ? whole_k : 0; i < k; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) to[i * kTileCols + j] = j < here ? from[j * w_ld + i] : 0.0f;
    }
  }
}

void pack_straight(const float* w, int64_t w_ld, int64_t cols, int64_t k, float* panel) {
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < kTileCols; j += Vec::kWidth) {
      const int64_t here = max_of(0, min_of(Vec::kWidth, cols - j));
      store(panel + i * kTileCols + j, here > 0 ? load_first(w + i * w_ld + j, here) : zero());
    }
  }
}

int64_t packed_size(int64_t n, int64_t k) { return round_up(n, kTileCols) * k; }

void pack_weights(const float* w, int64_t n, int64_t k, float* packed, Range panels) {
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const int64_t first = p * kTileCols;
    pack_transposed(w + first * k, k, min_of(kTileCols, n - first), k, packed + first * k);
  }
}

}  // namespace vla::VLA_ISA
