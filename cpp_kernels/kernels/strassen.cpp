// The product of a matrix with packed panels by Strassen's method: both operands and the result are cut into quarters,
// and seven products of sums of quarters take the place of eight of quarters. Sums of the weights' quarters are made
// when they are packed, those of the activations for a block of rows at a time; what a product adds to the result goes
// there from the registers of its tile.
//
// Rows r and r + m / 2 are computed together, a pair, and so are panels p and p + n / tile_cols / 2. The last one of
// an odd number of rows is computed from four of the packed sums.
#include "kernels/pack.hpp"
#include "kernels/table.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kLine = 16;  // floats

// As in a product without quarters: the part of k that is multiplied before the next panel is taken, and the pairs of
// rows, whose sums over it stay in the second-level cache.
constexpr int64_t kMostDepth = 512;
constexpr int64_t kBlockPairs = 12 * kTileRows;

// Quarters of a matrix row by row: upper left, upper right, lower left, lower right. Those of the weights are seen as
// [k][n].
constexpr int kNone = -1;
enum class Sign { kPlus, kMinus };

struct Quarters {
  int first;
  int second = kNone;
  Sign sign = Sign::kPlus;
};

// The product of x and w goes to the quarter y, and to the quarter `also` of the result too.
struct Product {
  Quarters x, w;
  int y;
  int also = kNone;
  Also how = Also::kNothing;
};

// In an order in which a quarter's first product can be stored, and its last one is its own.
constexpr int kProducts = 7;
constexpr Product kAll[kProducts] = {
    {{0, 3, Sign::kPlus}, {0, 3, Sign::kPlus}, 0, 3, Also::kStore},
    {{0}, {1, 3, Sign::kMinus}, 1, 3, Also::kAdd},
    {{2, 3, Sign::kPlus}, {0}, 2, 3, Also::kSubtract},
    {{3}, {2, 0, Sign::kMinus}, 2, 0, Also::kAdd},
    {{0, 1, Sign::kPlus}, {3}, 1, 0, Also::kSubtract},
    {{2, 0, Sign::kMinus}, {0, 1, Sign::kPlus}, 3},
    {{1, 3, Sign::kMinus}, {2, 3, Sign::kPlus}, 0},
};
constexpr int kFirstOnes = 3;  // products that are the first of their quarter y; those after them are the last
// Products whose weights are these.
constexpr int kRightDifference = 1, kUpperLeft = 2, kLowerDifference = 3, kLowerRight = 4;

// Where the packed sums are: panel by panel, part of k by part of k, product by product.
struct Layout {
  int64_t half, depth;  // of k

  explicit Layout(int64_t k) : half(k / 2), depth(round_up(ceil_div(half, ceil_div(half, kMostDepth)), kLine)) {}
  int64_t part(int64_t k0) const { return min_of(depth, half - k0); }
  int64_t at(int64_t panel, int product, int64_t k0) const {
    return (kProducts * (panel * half + k0) + product * part(k0)) * kTileCols;
  }
};

VLA_INLINE void combine(const float* a, const float* b, Sign sign, int64_t count, float* to) {
  over_columns(count, [&](int64_t i, auto part) {
    const Vec x = load(a + i, part), y = load(b + i, part);
    store(to + i, sign == Sign::kPlus ? x + y : x - y, part);
  });
}

class Runner {
 public:
  Runner(const LinearArgs& args, Range range, float* scratch)
      : g(args), panels(range), sums(scratch), layout(args.k), pairs(args.m / 2), all_panels(args.n / (2 * kTileCols)) {}

  void run(Range rows) const {
    const EvenShares blocks(rows.end - rows.begin, g.block_rows > 0 ? ceil_div(g.block_rows, 2) : kBlockPairs);
    for (int64_t i = 0, row = rows.begin; i < blocks.shares; row += blocks.size(i), ++i) {
      for (int64_t k0 = 0; k0 < layout.half; k0 += layout.depth) {
        for (int product = 0; product < kProducts; ++product) multiply({row, row + blocks.size(i)}, product, k0);
      }
    }
    if (g.m % 2 == 1 && rows.end == pairs) last_row();
  }

 private:
  const LinearArgs& g;
  Range panels;
  float* sums;
  Layout layout;
  int64_t pairs, all_panels;

  // Neighbouring rows of a sum lie an odd number of lines apart, so that they do not compete for the same set.
  int64_t sum_ld() const { return (layout.depth / kLine | 1) * kLine; }
  const float* x_at(int quarter, int64_t row) const {
    return g.x + (quarter / 2 * pairs + row) * g.x_ld + quarter % 2 * layout.half;
  }
  int64_t row_of(int quarter, int64_t row) const { return quarter / 2 * pairs + row; }
  int64_t col_of(int quarter, int64_t panel) const { return (quarter % 2 * all_panels + panel) * kTileCols; }
  float* y_at(int64_t row, int64_t col) const { return g.y + row * g.y_ld + col; }
  const float* weights(int64_t panel, int product, int64_t k0) const {
    return g.packed + layout.at(panel, product, k0);
  }

  // What is read after the weights of a panel.
  const float* after(int64_t panel, int product, int64_t k0) const {
    if (panel + 1 < panels.end) return weights(panel + 1, product, k0);
    if (product + 1 < kProducts) return weights(panels.begin, product + 1, k0);
    const int64_t next = k0 + layout.depth;
    return weights(panels.begin, 0, next < layout.half ? next : 0);
  }

  void multiply(Range rows, int product, int64_t k0) const {
    const Product& p = kAll[product];
    const int64_t depth = layout.part(k0);
    TileArgs t = {};
    t.a = x_at(p.x.first, rows.begin) + k0;
    t.a_ld = g.x_ld;
    t.runs = 1;
    t.run = depth;
    t.cols = kTileCols;
    t.y_ld = g.y_ld;
    t.accumulate = product >= kFirstOnes || k0 > 0;
    t.also = p.how == Also::kStore && k0 > 0 ? Also::kAdd : p.how;
    if (p.x.second != kNone) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        combine(x_at(p.x.first, row) + k0, x_at(p.x.second, row) + k0, p.x.sign, depth,
                sums + (row - rows.begin) * sum_ld());
      }
      t.a = sums;
      t.a_ld = sum_ld();
    }
    const bool last = product >= kFirstOnes && k0 + depth == layout.half;
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      t.b = weights(panel, product, k0);
      multiply_panel(rows, p, panel, t, after(panel, product, k0), last);
    }
  }

  void multiply_panel(Range rows, const Product& p, int64_t panel, TileArgs t, const float* next, bool last) const {
    const EvenShares tiles(rows.end - rows.begin, kTileRows);
    t.upcoming_lines = upcoming_lines_of<float>(tiles.shares);
    const int64_t col = col_of(p.y, panel);
    for (int64_t i = 0, row = rows.begin; i < tiles.shares; row += tiles.size(i), ++i) {
      t.y = y_at(row_of(p.y, row), col);
      if (p.also != kNone) t.also_y = y_at(row_of(p.also, row), col_of(p.also, panel));
      t.upcoming = upcoming_for(i, next, t.run, t.b, t.upcoming_lines);
      if (last) set_epilogue(t, g.epilogue, row_of(p.y, row), col);
      run_tile(tiles.size(i), t);
      t.a += tiles.size(i) * t.a_ld;
    }
  }

  // With its halves a and b it is (a + b) UL + b (LL - UL) on the left and (a + b) LR + a (UR - LR) on the right.
  void last_row() const {
    const float* a = g.x + (g.m - 1) * g.x_ld;
    const float* b = a + layout.half;
    combine(a, b, Sign::kPlus, layout.half, sums);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      last_row_panel(panel, 0, {sums, kUpperLeft}, {b, kLowerDifference});
      last_row_panel(panel, 1, {sums, kLowerRight}, {a, kRightDifference});
    }
  }

  // Half a row, and the product whose weights it meets.
  struct Factors {
    const float* x;
    int product;
  };

  void last_row_panel(int64_t panel, int right, const Factors& one, const Factors& other) const {
    const int64_t row = g.m - 1, col = col_of(right, panel);
    TileArgs t = {};
    t.runs = 1;
    t.cols = kTileCols;
    t.y = y_at(row, col);
    t.y_ld = g.y_ld;
    const Factors* const both[] = {&one, &other};
    for (const Factors* factors : both) {
      for (int64_t k0 = 0; k0 < layout.half; k0 += layout.depth) {
        t.a = factors->x + k0;
        t.run = layout.part(k0);
        t.b = weights(panel, factors->product, k0);
        t.upcoming = t.b;
        if (factors == &other && k0 + t.run == layout.half) set_epilogue(t, g.epilogue, row, col);
        run_tile(1, t);
        t.accumulate = true;
      }
    }
  }
};

}  // namespace

bool strassen_fits(int64_t n, int64_t k) { return n % (2 * kTileCols) == 0 && k % (2 * kLine) == 0; }

int64_t strassen_packed_size(int64_t n, int64_t k) { return kProducts * (n / 2) * (k / 2); }

void strassen_pack(const float* w, int64_t n, int64_t k, float* packed, Range panels) {
  constexpr int64_t kDepthAtOnce = 64;
  float sum[kTileCols * kDepthAtOnce];
  const Layout layout(k);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    // Rows of w are columns of the quarters.
    const auto column = [&](int quarter, int64_t i, int64_t at) {
      return w + (quarter % 2 * (n / 2) + panel * kTileCols + i) * k + quarter / 2 * layout.half + at;
    };
    const auto pack_sum = [&](const Quarters& q, int64_t at, int64_t count, float* to) {
      if (q.second == kNone) return pack_transposed(column(q.first, 0, at), k, kTileCols, count, to);
      for (int64_t i = 0; i < kTileCols; ++i) {
        combine(column(q.first, i, at), column(q.second, i, at), q.sign, count, sum + i * kDepthAtOnce);
      }
      pack_transposed(sum, kDepthAtOnce, kTileCols, count, to);
    };
    for (int64_t k0 = 0; k0 < layout.half; k0 += layout.depth) {
      const int64_t depth = layout.part(k0);
      for (int64_t i = 0; i < depth; i += kDepthAtOnce) {
        for (int product = 0; product < kProducts; ++product) {
          float* to = packed + layout.at(panel, product, k0) + i * kTileCols;
          pack_sum(kAll[product].w, k0 + i, min_of(kDepthAtOnce, depth - i), to);
        }
      }
    }
  }
}

int64_t strassen_scratch(const LinearArgs& g) {
  const Layout layout(g.k);
  const int64_t most = g.block_rows > 0 ? ceil_div(g.block_rows, 2) : kBlockPairs;
  const int64_t sums = min_of(most, max_of(g.m / 2, 1)) * (layout.depth + kLine);
  return max_of(sums, layout.half);
}

void strassen(const LinearArgs& g, Range rows, Range panels, float* scratch) { Runner(g, panels, scratch).run(rows); }

}  // namespace vla::VLA_ISA
