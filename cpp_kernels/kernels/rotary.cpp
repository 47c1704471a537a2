#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

void rotate_pairs(const float* x, const float* cosines, const float* sines, int64_t pairs, float* y) {
  for (int64_t c = 0; c < pairs; ++c) {
    const float a = x[2 * c], b = x[2 * c + 1];
    y[2 * c] = a * cosines[c] - b * sines[c];
    y[2 * c + 1] = b * cosines[c] + a * sines[c];
  }
}

}  // namespace

void rotary(const RotaryArgs& g, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* cosines = g.cos + row * g.cos_ld;
    const float* sines = g.sin + row * g.sin_ld;
    for (int64_t head = 0; head < g.heads; ++head) {
      const float* x = g.x + row * g.x_ld + head * 2 * g.half;
      float* y = g.y + row * g.y_ld + head * 2 * g.half;
      if (g.interleaved) {
        rotate_pairs(x, cosines, sines, g.half, y);
        continue;
      }
      over_columns(g.half, [&](int64_t c, auto part) {
        const Vec a = load(x + c, part), b = load(x + g.half + c, part);
        const Vec cosine = load(cosines + c, part), sine = load(sines + c, part);
        store(y + c, fma(a, cosine, -(b * sine)), part);
        store(y + g.half + c, fma(b, cosine, a * sine), part);
      });
    }
  }
}

}  // namespace vla::VLA_ISA
