#include "kernels/narrow.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int kRows = 4;         // of a tile
constexpr int kBlockRows = 16;  // whose sums are complete before what follows the product begins

// Sums of one row with columns C - 1 .. 0, as nested members for the reason that those of a tile are.
template <int C>
struct Columns {
  Columns<C - 1> before;
  Vec last;

  VLA_INLINE void clear() {
    before.clear();
    last = zero();
  }
  template <typename Part>
  VLA_INLINE void load(const float* w, int64_t w_ld, Part part) {
    before.load(w, w_ld, part);
    last = vla::VLA_ISA::load(w + (C - 1) * w_ld, part);
  }
  VLA_INLINE void multiply_add(Vec x, const Columns& w) {
    before.multiply_add(x, w.before);
    vla::VLA_ISA::multiply_add(last, x, w.last);
  }
};

template <>
struct Columns<0> {
  VLA_INLINE void clear() {}
  template <typename Part>
  VLA_INLINE void load(const float*, int64_t, Part) {}
  VLA_INLINE void multiply_add(Vec, const Columns&) {}
};

// Stores the sums of four rows in sums[row][column].
template <int C>
VLA_INLINE void store_sums(const Columns<C>& r0, const Columns<C>& r1, const Columns<C>& r2, const Columns<C>& r3,
                           float* sums) {
  if constexpr (C > 0) {
    float four[kRows];
    sums_of_four(r0.last, r1.last, r2.last, r3.last, four);
    for (int r = 0; r < kRows; ++r) sums[r * kTileCols + C - 1] = four[r];
    store_sums(r0.before, r1.before, r2.before, r3.before, sums);
  }
}

struct NarrowTile {
  const float* x;
  int64_t x_ld;
  const float* w;
  int64_t k;
};

// kRows rows, of which the last may be the same ones, with C columns.
template <int C>
__attribute__((noinline)) void multiply(const NarrowTile& t, const int64_t (&row)[kRows], float* sums) {
  const float *x0 = t.x + row[0] * t.x_ld, *x1 = t.x + row[1] * t.x_ld;
  const float *x2 = t.x + row[2] * t.x_ld, *x3 = t.x + row[3] * t.x_ld;
  Columns<C> r0, r1, r2, r3;
  r0.clear();
  r1.clear();
  r2.clear();
  r3.clear();
  int64_t k = 0;
  for (; k + Vec::kWidth <= t.k; k += Vec::kWidth) {
    Columns<C> w;
    w.load(t.w + k, t.k, Whole{});
    r0.multiply_add(load(x0 + k), w);
    r1.multiply_add(load(x1 + k), w);
    r2.multiply_add(load(x2 + k), w);
    r3.multiply_add(load(x3 + k), w);
  }
  if (k < t.k) {
    const First part{t.k - k};
    Columns<C> w;
    w.load(t.w + k, t.k, part);
    r0.multiply_add(load(x0 + k, part), w);
    r1.multiply_add(load(x1 + k, part), w);
    r2.multiply_add(load(x2 + k, part), w);
    r3.multiply_add(load(x3 + k, part), w);
  }
  store_sums(r0, r1, r2, r3, sums);
}

template <int C>
VLA_INLINE void dispatch(int64_t cols, const NarrowTile& t, const int64_t (&row)[kRows], float* sums) {
  if constexpr (C > 1) {
    if (cols != C) return dispatch<C - 1>(cols, t, row, sums);
  }
  multiply<C>(t, row, sums);
}

}  // namespace

void linear_narrow(const LinearArgs& g, Range rows, const float* weights) {
  const EvenShares groups(g.n, kNarrowTileCols);
  for (int64_t block = rows.begin; block < rows.end; block += kBlockRows) {
    float sums[kBlockRows * kTileCols];
    const int64_t end = min_of(block + kBlockRows, rows.end);
    for (int64_t first = block; first < end; first += kRows) {
      const int64_t last = end - first - 1;
      const int64_t row[kRows] = {0, min_of(1, last), min_of(2, last), min_of(3, last)};
      for (int64_t i = 0, col = 0; i < groups.shares; col += groups.size(i), ++i) {
        const NarrowTile t = {g.x + first * g.x_ld, g.x_ld, weights + col * g.k, g.k};
        dispatch<kNarrowTileCols>(groups.size(i), t, row, sums + (first - block) * kTileCols + col);
      }
    }
    TileArgs rest = {};
    rest.y = g.y + block * g.y_ld;
    rest.y_ld = g.y_ld;
    rest.cols = g.n;
    set_epilogue(rest, g.epilogue, block, 0);
    finish_in_memory(sums, end - block, rest);
  }
}

}  // namespace vla::VLA_ISA
