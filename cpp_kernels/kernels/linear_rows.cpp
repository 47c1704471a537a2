// A linear layer on weights that are kept row by row: a product of a row of x and a row of w is summed along k in the
// lanes of one vector, for a few rows of either at a time. No columns are padded and nothing is packed, so it is for
// layers that would leave half of a register tile's columns empty, as an action head of six or seven columns does.
#include "kernels/table.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int kRows = 4;        // of x at a time, by kRowTileCols rows of w
constexpr int kBlockRows = 64;  // whose sums are complete before what follows the product begins

// One vector for each of C rows of w, as nested members for the reason that those of a tile are.
template <int C>
struct Columns {
  Columns<C - 1> before;
  Vec last;

  VLA_INLINE void clear() {
    before.clear();
    last = zero();
  }
  template <typename W, typename Part>
  VLA_INLINE void load(const W* w, int64_t w_ld, Part part) {
    before.load(w, w_ld, part);
    last = vla::VLA_ISA::load(w + (C - 1) * w_ld, part);
  }
  VLA_INLINE void multiply_add(Vec x, const Columns& w) {
    before.multiply_add(x, w.before);
    vla::VLA_ISA::multiply_add(last, x, w.last);
  }
  // The I-th, or zero past the last.
  template <int I>
  VLA_INLINE Vec at() const {
    if constexpr (I == C - 1) return last;
    if constexpr (I < C - 1) return before.template at<I>();
    return zero();
  }
  // to[i] = the sum of the lanes of the i-th, for whole groups of four.
  template <int First = 0>
  VLA_INLINE void store_sums(float* to) const {
    if constexpr (First + 4 <= C) {
      sums_of_four(at<First>(), at<First + 1>(), at<First + 2>(), at<First + 3>(), to + First);
      store_sums<First + 4>(to);
    }
  }
};

template <>
struct Columns<0> {
  VLA_INLINE void clear() {}
  template <typename W, typename Part>
  VLA_INLINE void load(const W*, int64_t, Part) {}
  VLA_INLINE void multiply_add(Vec, const Columns&) {}
  template <int I>
  VLA_INLINE Vec at() const {
    return zero();
  }
};

template <int R, int C>
struct Sums {
  Sums<R - 1, C> above;
  Columns<C> row;

  VLA_INLINE void clear() {
    above.clear();
    row.clear();
  }
  template <typename Part>
  VLA_INLINE void multiply_add(const float* x, int64_t x_ld, const Columns<C>& w, Part part) {
    above.multiply_add(x, x_ld, w, part);
    row.multiply_add(load(x + (R - 1) * x_ld, part), w);
  }
  // The I-th of row J, or zero past the last row.
  template <int J, int I>
  VLA_INLINE Vec at() const {
    if constexpr (J == R - 1) return row.template at<I>();
    if constexpr (J < R - 1) return above.template at<J, I>();
    return zero();
  }
  VLA_INLINE void store_fours(float* to) const {
    above.store_fours(to);
    row.store_sums(to + (R - 1) * kTileCols);
  }
  // The columns left over, numbered row by row, from the First-th on.
  template <int First = 0>
  VLA_INLINE void store_rest(float* to) const {
    constexpr int kRest = C % 4, kFours = C - kRest;
    if constexpr (kRest > 0 && First < R * kRest) {
      float four[4];
      sums_of_four(at<First / kRest, kFours + First % kRest>(), at<(First + 1) / kRest, kFours + (First + 1) % kRest>(),
                   at<(First + 2) / kRest, kFours + (First + 2) % kRest>(),
                   at<(First + 3) / kRest, kFours + (First + 3) % kRest>(), four);
      for (int i = First; i < min_of(First + 4, R * kRest); ++i) {
        to[i / kRest * kTileCols + kFours + i % kRest] = four[i - First];
      }
      store_rest<First + 4>(to);
    }
  }
  VLA_INLINE void store(float* to) const {
    store_fours(to);
    store_rest(to);
  }
};

template <int C>
struct Sums<0, C> {
  VLA_INLINE void clear() {}
  template <typename Part>
  VLA_INLINE void multiply_add(const float*, int64_t, const Columns<C>&, Part) {}
  template <int J, int I>
  VLA_INLINE Vec at() const {
    return zero();
  }
  VLA_INLINE void store_fours(float*) const {}
};

template <typename W>
struct RowTile {
  const float* x;
  int64_t x_ld;
  const W* w;
  int64_t k;
  float* sums;  // [rows][kTileCols]
};

template <int R, int C, typename W>
__attribute__((noinline)) void multiply(const RowTile<W>& t) {
  Sums<R, C> sums;
  sums.clear();
  // Not over_columns: sums that a closure refers to would be kept in memory.
  int64_t i = 0;
  for (; i + Vec::kWidth <= t.k; i += Vec::kWidth) {
    Columns<C> w;
    w.load(t.w + i, t.k, Whole{});
    sums.multiply_add(t.x + i, t.x_ld, w, Whole{});
  }
  if (i < t.k) {
    const First part{t.k - i};
    Columns<C> w;
    w.load(t.w + i, t.k, part);
    sums.multiply_add(t.x + i, t.x_ld, w, part);
  }
  sums.store(t.sums);
}

template <int R, int C, typename W>
VLA_INLINE void dispatch_cols(int64_t cols, const RowTile<W>& t) {
  if constexpr (C > 1) {
    if (cols != C) return dispatch_cols<R, C - 1>(cols, t);
  }
  multiply<R, C>(t);
}

template <int R, typename W>
VLA_INLINE void dispatch(int64_t rows, int64_t cols, const RowTile<W>& t) {
  if constexpr (R > 1) {
    if (rows != R) return dispatch<R - 1>(rows, cols, t);
  }
  dispatch_cols<R, kRowTileCols>(cols, t);
}

// A block of rows of the output, in the columns of a panel.
template <typename W>
void block(const LinearArgs& g, Range rows, int64_t panel) {
  const int64_t first_col = panel * kTileCols, cols = min_of(kTileCols, g.n - first_col);
  const W* w = reinterpret_cast<const W*>(g.packed) + first_col * g.k;
  float sums[kBlockRows * kTileCols];
  const EvenShares tiles(rows.end - rows.begin, kRows), groups(cols, kRowTileCols);
  for (int64_t i = 0, row = 0; i < tiles.shares; row += tiles.size(i), ++i) {
    for (int64_t j = 0, col = 0; j < groups.shares; col += groups.size(j), ++j) {
      const RowTile<W> t = {g.x + (rows.begin + row) * g.x_ld, g.x_ld, w + col * g.k, g.k, sums + row * kTileCols + col};
      dispatch<kRows>(tiles.size(i), groups.size(j), t);
    }
  }
  TileArgs rest = {};
  rest.y = g.y + rows.begin * g.y_ld + first_col;
  rest.y_ld = g.y_ld;
  rest.cols = cols;
  set_epilogue(rest, g.epilogue, rows.begin, first_col);
  finish_in_memory(sums, rows.end - rows.begin, rest);
}

}  // namespace

void linear_rows(const LinearArgs& g, Range rows, Range panels) {
  const auto block_of = g.bf16 ? block<Bf16> : block<float>;
  const EvenShares blocks(rows.end - rows.begin, kBlockRows);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    for (int64_t i = 0, row = rows.begin; i < blocks.shares; row += blocks.size(i), ++i) {
      block_of(g, {row, row + blocks.size(i)}, panel);
    }
  }
}

}  // namespace vla::VLA_ISA
