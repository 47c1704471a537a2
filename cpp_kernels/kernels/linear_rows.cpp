// A linear layer on weights as they are given: each product of a row of x and a row of w is summed along k, in the
// lanes of one vector. Reads the weights once for every few rows of x and needs no packing, so it is for layers of
// few rows, whose time is that of reading the weights.
#include "kernels/table.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int kDots = 4;  // rows of w at a time

// Sums of the products of one row of x with kDots rows of w.
struct Sums {
  Vec s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();

  VLA_INLINE void add(Vec x, Vec w0, Vec w1, Vec w2, Vec w3) {
    s0 = fma(x, w0, s0);
    s1 = fma(x, w1, s1);
    s2 = fma(x, w2, s2);
    s3 = fma(x, w3, s3);
  }
  VLA_INLINE void store(float* to) const {
    to[0] = sum(s0);
    to[1] = sum(s1);
    to[2] = sum(s2);
    to[3] = sum(s3);
  }
};

// Two rows of x, which may be the same, with kDots rows of w.
VLA_INLINE void dots(const float* x0, const float* x1, const float* const w[kDots], int64_t k, float* y0, float* y1) {
  Sums a, b;
  over_columns(k, [&](int64_t i, auto part) {
    const Vec w0 = load(w[0] + i, part), w1 = load(w[1] + i, part);
    const Vec w2 = load(w[2] + i, part), w3 = load(w[3] + i, part);
    a.add(load(x0 + i, part), w0, w1, w2, w3);
    b.add(load(x1 + i, part), w0, w1, w2, w3);
  });
  a.store(y0);
  b.store(y1);
}

// `count` rows of the output, one or two, in the columns of a panel.
void panel_rows(const LinearArgs& g, int64_t row, int64_t count, int64_t panel) {
  TileArgs t;
  const int64_t col = panel * kTileCols;
  t.y = g.y + row * g.y_ld + col;
  t.y_ld = g.y_ld;
  t.cols = min_of(kTileCols, g.n - col);
  t.accumulate = false;
  set_epilogue(t, g.epilogue, row, col);
  const float* x0 = g.x + row * g.x_ld;
  const float* x1 = x0 + (count - 1) * g.x_ld;
  float sums[2 * kTileCols];
  for (int64_t c = 0; c < t.cols; c += kDots) {
    const float* w[kDots];
    for (int64_t i = 0; i < kDots; ++i) w[i] = g.packed + min_of(col + c + i, g.n - 1) * g.k;
    dots(x0, x1, w, g.k, sums + c, sums + kTileCols + c);
  }
  finish_in_memory(sums, count, t);
}

}  // namespace

void linear_rows(const LinearArgs& g, Range rows, Range panels) {
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    for (int64_t row = rows.begin; row < rows.end; row += 2) {
      panel_rows(g, row, min_of(2, rows.end - row), panel);
    }
  }
}

}  // namespace vla::VLA_ISA
