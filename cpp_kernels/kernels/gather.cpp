// Values and rows picked from tables by index.
#include "kernels/copy.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {

void lookup_u8(const uint8_t* x, const float* table, int64_t channels, float* y, Range pixels) {
  if (channels == 3) {  // colour, the usual case
    const float* green = table + 256;
    const float* blue = table + 512;
    for (int64_t i = 3 * pixels.begin; i < 3 * pixels.end; i += 3) {
      y[i] = table[x[i]];
      y[i + 1] = green[x[i + 1]];
      y[i + 2] = blue[x[i + 2]];
    }
    return;
  }
  for (int64_t p = pixels.begin; p < pixels.end; ++p) {
    for (int64_t c = 0; c < channels; ++c) y[p * channels + c] = table[c * 256 + x[p * channels + c]];
  }
}

void embedding(const EmbeddingArgs& a, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    copy(a.table + static_cast<int64_t>(a.ids[row]) * a.table_ld, a.cols, a.y + row * a.y_ld);
  }
}

}  // namespace vla::VLA_ISA
