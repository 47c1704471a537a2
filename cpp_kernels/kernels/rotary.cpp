#include "kernels/table.hpp"

namespace vla::VLA_ISA {

void rotary(const RotaryArgs& g, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* cosines = g.cos + row * g.cos_ld;
    const float* sines = g.sin + row * g.sin_ld;
    for (int64_t head = 0; head < g.heads; ++head) {
      const float* x = g.x + row * g.x_ld + head * 2 * g.half;
      float* y = g.y + row * g.y_ld + head * 2 * g.half;
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
