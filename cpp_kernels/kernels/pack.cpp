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
    int64_t done = 0;  // of k
    if (here == kWidth) {
      for (; done < whole_k; done += kWidth) transpose(from + done, w_ld, to + done * kTileCols, kTileCols);
    } else {
      for (int64_t i = 0; i < k; ++i) store(to + i * kTileCols, zero());
    }
    for (int64_t j = 0; j < here; ++j) {
      for (int64_t i = done; i < k; ++i) to[i * kTileCols + j] = from[j * w_ld + i];
    }
  }
}

void pack_straight(const float* w, int64_t w_ld, int64_t cols, int64_t k, float* panel) {
  for (int64_t i = 0; i < k; ++i) {
    float* to = panel + i * kTileCols;
    over_columns(cols, [&](int64_t j, auto part) { store(to + j, load(w + i * w_ld + j, part)); });
    for (int64_t j = round_up(cols, Vec::kWidth); j < kTileCols; j += Vec::kWidth) store(to + j, zero());
  }
}

int64_t packed_size(int64_t n, int64_t k) { return panels_size(n, k); }

void pack_weights(const float* w, int64_t n, int64_t k, float* packed, Range panels) {
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const int64_t first = p * kTileCols;
    pack_transposed(w + first * k, k, min_of(kTileCols, n - first), k, packed + first * k);
  }
}

void pack_bf16(const float* w, int64_t n, int64_t k, uint16_t* packed, Range panels) {
  constexpr int64_t kDepthAtOnce = 64;
  float part[kDepthAtOnce * kTileCols];
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const int64_t first = p * kTileCols;
    for (int64_t k0 = 0; k0 < k; k0 += kDepthAtOnce) {
      const int64_t depth = min_of(kDepthAtOnce, k - k0);
      pack_transposed(w + first * k + k0, k, min_of(kTileCols, n - first), depth, part);
      uint16_t* to = packed + first * k + k0 * kTileCols;
      for (int64_t i = 0; i < depth * kTileCols; ++i) {
        uint32_t bits;
        __builtin_memcpy(&bits, part + i, sizeof bits);
        to[i] = static_cast<uint16_t>(bits >> 16);
      }
    }
  }
}

}  // namespace vla::VLA_ISA
