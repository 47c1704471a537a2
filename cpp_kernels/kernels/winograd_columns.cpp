// 7x7 convolution with stride 2, as it begins an image backbone, by Winograd's method along the columns of the image:
// four output rows take 13 products per column of the filter where the direct sum takes 28. Along the rows the sum is
// direct: with few channels, adjacent pixels are what makes a matrix product deep enough.
//
// The even rows of the image meet the filter's four even rows, the odd ones its three odd rows; the products of both
// are summed at the same seven points. A tile is four output rows of one column.
#include "kernels/winograd_columns.hpp"

#include "kernels/tile.hpp"
#include "kernels/winograd_finish.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kLine = 16;  // floats
constexpr int kSide = 7;       // of the filter
constexpr int kStride = 2;
constexpr int kRows = 4;  // of the output, in a tile
constexpr int kInputs = (kRows - 1) * kStride + kSide;
constexpr int kPoints = 7;
constexpr int kFinite = 6;
constexpr int kValues = kPoints + kFinite;

// Tiles that are computed together: their products stay in the caches near the core.
constexpr int64_t kBlockTiles = 3 * kTileRows;

VLA_INLINE int64_t odd_lines(int64_t floats) { return (ceil_div(floats, kLine) | 1) * kLine; }

// Values are ordered by point, first that of the even rows; at infinity the odd rows have none.
constexpr int slot(int point, int phase) { return 2 * point + phase; }

// The points +-p for each of these, and infinity: of those whose transforms are exact in few bits, they round least.
constexpr float kA = 0.375f, kB = 0.875f, kC = 1.75f;
constexpr float kA2 = kA * kA, kB2 = kB * kB, kC2 = kC * kC;

// The polynomial's values at +-p, where q and r are the squares of the other points.
VLA_INLINE void at_pair(const Vec (&d)[kFinite], float p, float q, float r, Vec& plus, Vec& minus) {
  const Vec sum = splat(-(q + r)), product = splat(q * r);
  const Vec even = fma(product, d[0], fma(sum, d[2], d[4]));
  const Vec odd = fma(product, d[1], fma(sum, d[3], d[5]));
  plus = fma(splat(p), even, odd);
  minus = fma(splat(-p), even, odd);
}

VLA_INLINE void input(const Vec (&d)[kInputs], Vec (&v)[kValues]) {
  for (int phase = 0; phase < 2; ++phase) {
    const Vec line[kFinite] = {d[phase], d[2 + phase], d[4 + phase], d[6 + phase], d[8 + phase], d[10 + phase]};
    at_pair(line, kA, kB2, kC2, v[slot(0, phase)], v[slot(1, phase)]);
    at_pair(line, kB, kA2, kC2, v[slot(2, phase)], v[slot(3, phase)]);
    at_pair(line, kC, kA2, kB2, v[slot(4, phase)], v[slot(5, phase)]);
  }
  const Vec far = fma(splat(-(kA2 + kB2 + kC2)), d[8], d[12]);
  const Vec near = fma(splat(kA2 * kB2 + kA2 * kC2 + kB2 * kC2), d[4], far);
  v[slot(kFinite, 0)] = fma(splat(-(kA2 * kB2 * kC2)), d[0], near);
}

VLA_INLINE void output(const Vec (&m)[kPoints], Vec (&y)[kRows]) {
  const Vec even_a = m[0] + m[1], odd_a = m[0] - m[1];
  const Vec even_b = m[2] + m[3], odd_b = m[2] - m[3];
  const Vec even_c = m[4] + m[5], odd_c = m[4] - m[5];
  y[0] = even_a + (even_b + even_c);
  y[1] = fma(splat(kC), odd_c, fma(splat(kB), odd_b, splat(kA) * odd_a));
  y[2] = fma(splat(kC2), even_c, fma(splat(kB2), even_b, splat(kA2) * even_a));
  y[3] = fma(splat(kC2 * kC), odd_c, fma(splat(kB2 * kB), odd_b, fma(splat(kA2 * kA), odd_a, m[6])));
}

// Of the values g[0], g[step], .. g[6 * step], in double precision.
void filter(const float* g, int64_t step, double (&u)[kValues]) {
  constexpr double kAt[kFinite] = {kA, -kA, kB, -kB, kC, -kC};
  const auto tap = [&](int i) { return static_cast<double>(g[i * step]); };
  for (int i = 0; i < kFinite; ++i) {
    double divisor = 1.0;
    for (int j = 0; j < kFinite; ++j) divisor *= j == i ? 1.0 : kAt[i] - kAt[j];
    u[slot(i, 0)] = (tap(0) + kAt[i] * (tap(2) + kAt[i] * (tap(4) + kAt[i] * tap(6)))) / divisor;
    u[slot(i, 1)] = (tap(1) + kAt[i] * (tap(3) + kAt[i] * tap(5))) / divisor;
  }
  u[slot(kFinite, 0)] = tap(6);
}

// Where things are in the scratch memory: a row of zeros, the transformed rows of the image between zeros, and the
// products at each point with a row per tile.
struct Layout {
  int64_t image_row;   // of the image
  int64_t value_row;   // from value to value
  int64_t product_ld, product_step;  // from tile to tile, from point to point
  int64_t values, products, size;

  explicit Layout(const Conv2dArgs& c) {
    image_row = c.in_w * c.in_c;
    value_row = odd_lines(c.padded_w() * c.in_c);
    product_ld = odd_lines(round_up(c.out_c, kTileCols));
    product_step = odd_lines(kBlockTiles * product_ld);
    values = round_up(image_row, kLine);
    products = values + kValues * value_row;
    size = products + kPoints * product_step;
  }
};

class Runner {
 public:
  Runner(const Conv2dArgs& args, Range range, float* scratch)
      : c(args),
        panels(range),
        layout(args),
        zeros(scratch),
        values(scratch + layout.values),
        products(scratch + layout.products) {}

  void run(Range tiles) const {
    clear(zeros, layout.image_row);
    const int64_t left = c.pad_left * c.in_c;
    for (int v = 0; v < kValues; ++v) {
      clear(values + v * layout.value_row, left);
      clear(values + v * layout.value_row + left + layout.image_row, c.pad_right * c.in_c);
    }
    for (int64_t tile = tiles.begin; tile < tiles.end;) {
      const int64_t down = tile / c.out_w, x = tile - down * c.out_w;
      const int64_t end = min_of(c.out_w, x + tiles.end - tile);
      run_row(down * kRows, {x, end});
      tile += end - x;
    }
  }

 private:
  const Conv2dArgs& c;
  Range panels;
  Layout layout;
  float* zeros;
  float* values;
  float* products;

  static void clear(float* to, int64_t count) {
    over_columns(count, [&](int64_t i, auto part) { store(to + i, zero(), part); });
  }

  // Output rows from `row` on, at the columns `across`.
  void run_row(int64_t row, Range across) const {
    transform_image(row, across);
    const EvenShares blocks(across.end - across.begin, kBlockTiles);
    for (int64_t i = 0, x = across.begin; i < blocks.shares; x += blocks.size(i), ++i) {
      const Range block = {x, x + blocks.size(i)};
      for (int point = 0; point < kPoints; ++point) {
        for (int64_t panel = panels.begin; panel < panels.end; ++panel) multiply(point, panel, block);
      }
      transform_products(row, block);
    }
  }

  void transform_image(int64_t row, Range across) const {
    const float* rows[kInputs];
    for (int i = 0; i < kInputs; ++i) {
      const int64_t y = row * kStride - c.pad_top + i;
      rows[i] = y >= 0 && y < c.in_h ? c.x + y * layout.image_row : zeros;
    }
    const int64_t first = max_of(0, across.begin * kStride - c.pad_left) * c.in_c;
    const int64_t end = min_of(c.in_w, (across.end - 1) * kStride + c.kernel_w - c.pad_left) * c.in_c;
    float* to = values + c.pad_left * c.in_c;
    over_columns(end - first, [&](int64_t i, auto part) {
      Vec d[kInputs], v[kValues];
      for (int j = 0; j < kInputs; ++j) d[j] = load(rows[j] + first + i, part);
      input(d, v);
      for (int j = 0; j < kValues; ++j) store(to + j * layout.value_row + first + i, v[j], part);
    });
  }

  void multiply(int point, int64_t panel, Range block) const {
    const int64_t run = c.kernel_w * c.in_c;
    TileArgs t;
    t.a_ld = kStride * c.in_c;
    t.runs = point < kFinite ? 2 : 1;
    t.run = run;
    t.run_stride = layout.value_row;
    t.b = c.packed + (panel * kValues + slot(point, 0)) * run * kTileCols;
    t.y_ld = layout.product_ld;
    t.cols = whole_cols(c.out_c - panel * kTileCols);
    t.accumulate = false;
    t.upcoming = t.b;
    clear_epilogue(t);
    t.a = values + slot(point, 0) * layout.value_row + block.begin * t.a_ld;
    t.y = products + point * layout.product_step + (panel - panels.begin) * kTileCols;
    const EvenShares groups(block.end - block.begin, kTileRows);
    for (int64_t i = 0; i < groups.shares; ++i) {
      run_tile(groups.size(i), t);
      t.a += groups.size(i) * t.a_ld;
      t.y += groups.size(i) * t.y_ld;
    }
  }

  void transform_products(int64_t row, Range block) const {
    const int64_t first = panels.begin * kTileCols;
    over_columns(min_of(panels.end * kTileCols, c.out_c) - first, [&](int64_t channel, auto part) {
      const Finish finish(c.epilogue, first + channel, part);
      const bool whole = row + kRows <= c.out_h && is_cheap(c.epilogue.activation);
      for (int64_t x = block.begin; x < block.end; ++x) {
        const float* from = products + (x - block.begin) * layout.product_ld + channel;
        whole ? finish_whole(from, row * c.out_w + x, finish) : finish_part(from, row, x, finish);
      }
    });
  }

  VLA_INLINE void sums(const float* from, Vec (&y)[kRows]) const {
    Vec m[kPoints];
    for (int p = 0; p < kPoints; ++p) m[p] = load(from + p * layout.product_step);
    output(m, y);
  }

  template <typename Part>
  VLA_INLINE void finish_whole(const float* from, int64_t pixel, const Finish<Part>& finish) const {
    Vec y[kRows];
    sums(from, y);
    for (int i = 0; i < kRows; ++i, pixel += c.out_w) {
      store(c.y + pixel * c.y_ld + finish.channel, finish.cheap(y[i], pixel), finish.part);
    }
  }

  template <typename Part>
  __attribute__((noinline)) void finish_part(const float* from, int64_t row, int64_t x,
                                             const Finish<Part>& finish) const {
    Vec y[kRows];
    sums(from, y);
    float memory[kRows * Vec::kWidth];
    for (int i = 0; i < kRows; ++i) store(memory + i * Vec::kWidth, y[i]);
    for (int64_t i = 0; i < min_of(kRows, c.out_h - row); ++i) {
      const int64_t pixel = (row + i) * c.out_w + x;
      const Vec v = finish.any(load(memory + i * Vec::kWidth), pixel);
      store(c.y + pixel * c.y_ld + finish.channel, v, finish.part);
    }
  }
};

}  // namespace

int64_t winograd_columns_packed_size(int64_t out_c, int64_t in_c) {
  return round_up(out_c, kTileCols) * kValues * kSide * in_c;
}

void winograd_columns_pack(const float* w, int64_t out_c, int64_t in_c, float* packed, Range panels) {
  const int64_t run = kSide * in_c;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    float* to = packed + panel * kValues * run * kTileCols;
    for (int64_t at = 0; at < run * kTileCols; ++at) {
      const int64_t col = panel * kTileCols + at % kTileCols, k = at / kTileCols;
      double u[kValues] = {};
      if (col < out_c) filter(w + col * kSide * run + k, run, u);
      for (int v = 0; v < kValues; ++v) to[v * run * kTileCols + at] = static_cast<float>(u[v]);
    }
  }
}

int64_t winograd_columns_scratch(const Conv2dArgs& c) { return Layout(c).size; }

void winograd_columns(const Conv2dArgs& c, Range tiles, Range panels, float* scratch) {
  Runner(c, panels, scratch).run(tiles);
}

}  // namespace vla::VLA_ISA
