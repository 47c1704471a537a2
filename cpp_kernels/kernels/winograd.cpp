// 3x3 convolution with stride 1 by Winograd's method: the filter and tiles of the image are turned into the values
// of polynomials at a few points, multiplied there, and turned back. A tile of 2x2 output pixels then takes 16
// products per pair of channels where the direct sum takes 36, and a tile of 4x4 takes 36 instead of 144.
//
// Seen over all channels and many tiles, each of the points is a matrix product of its own. They run on the
// register tile of every other product, a block of image tiles at a time, so that what lies between the transforms
// stays close.
#include "kernels/math.hpp"
#include "kernels/table.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kLine = 16;  // floats

// Tiles in a block. Every block reads all filters, so it should be worth that; the whole image would not stay in
// any cache.
constexpr int64_t kBlockTiles = 78;

// Rounded up to an odd number of cache lines, so that things this far apart do not compete for the same set.
VLA_INLINE int64_t odd_lines(int64_t floats) { return (ceil_div(floats, kLine) | 1) * kLine; }

// The one-dimensional transforms for S output values, at the points 0, +-p, .. and infinity. Their polynomials
// have leading coefficient one for `input`; the filter's transform carries the divisors, in double precision.
template <int S>
struct Transform;

template <>
struct Transform<2> {
  static constexpr double kPoints[] = {0.0, 1.0, -1.0};

  VLA_INLINE static void input(const Vec (&d)[4], Vec (&v)[4]) {
    v[0] = d[2] - d[0];
    v[1] = d[2] + d[1];
    v[2] = d[2] - d[1];
    v[3] = d[3] - d[1];
  }
  VLA_INLINE static void output(const Vec (&m)[4], Vec (&y)[2]) {
    y[0] = m[0] + (m[1] + m[2]);
    y[1] = m[3] + (m[1] - m[2]);
  }
};

// The points 11/16 and 3/2 cost what 1 and 2 do, with a quarter of the largest error; what is made of them is exact.
template <>
struct Transform<4> {
  static constexpr double kNear = 0.6875, kFar = 1.5;
  static constexpr double kPoints[] = {0.0, kNear, -kNear, kFar, -kFar};
  static constexpr float kA = kNear, kB = kFar;

  VLA_INLINE static void input(const Vec (&d)[6], Vec (&v)[6]) {
    const Vec near = splat(-kA * kA), far = splat(-kB * kB);
    const Vec sum = splat(-(kA * kA + kB * kB)), product = splat(kA * kA * kB * kB);
    const Vec even_a = fma(far, d[2], d[4]), odd_a = fma(far, d[1], d[3]);
    const Vec even_b = fma(near, d[2], d[4]), odd_b = fma(near, d[1], d[3]);
    v[0] = fma(product, d[0], fma(sum, d[2], d[4]));
    v[1] = fma(splat(kA), odd_a, even_a);
    v[2] = fma(splat(-kA), odd_a, even_a);
    v[3] = fma(splat(kB), odd_b, even_b);
    v[4] = fma(splat(-kB), odd_b, even_b);
    v[5] = fma(product, d[1], fma(sum, d[3], d[5]));
  }
  VLA_INLINE static void output(const Vec (&m)[6], Vec (&y)[4]) {
    const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2];
    const Vec even_b = m[3] + m[4], odd_b = m[3] - m[4];
    y[0] = m[0] + (even_a + even_b);
    y[1] = fma(splat(kB), odd_b, splat(kA) * odd_a);
    y[2] = fma(splat(kB * kB), even_b, splat(kA * kA) * even_a);
    y[3] = fma(splat(kB * kB * kB), odd_b, fma(splat(kA * kA * kA), odd_a, m[5]));
  }
};

// The filter's transform of three values: at each point the polynomial's value over the product of the point's
// distances from the others, and at infinity the leading coefficient.
template <int S>
VLA_INLINE void filter_transform(const double (&g)[3], double* u, int64_t step) {
  const auto& points = Transform<S>::kPoints;
  for (int i = 0; i < S + 1; ++i) {
    double divisor = 1.0;
    for (int j = 0; j < S + 1; ++j) divisor *= j == i ? 1.0 : points[i] - points[j];
    u[i * step] = (g[0] + points[i] * (g[1] + points[i] * g[2])) / divisor;
  }
  u[(S + 1) * step] = g[2];
}

template <int S>
void pack(const float* w, int64_t out_c, int64_t in_c, float* packed, Range panels) {
  constexpr int N = S + 2;
  const int64_t matrix = round_up(out_c, kTileCols) * in_c;
  for (int64_t at = panels.begin * kTileCols * in_c; at < panels.end * kTileCols * in_c; ++at) {
    const int64_t col = at / (kTileCols * in_c) * kTileCols + at % kTileCols, in = at / kTileCols % in_c;
    double rows[3 * N] = {}, u[N * N] = {};
    if (col < out_c) {
      const float* filter = w + col * 9 * in_c + in;
      for (int y = 0; y < 3; ++y) {
        const float* row = filter + y * 3 * in_c;
        filter_transform<S>({row[0], row[in_c], row[2 * in_c]}, rows + y * N, 1);
      }
      for (int x = 0; x < N; ++x) filter_transform<S>({rows[x], rows[N + x], rows[2 * N + x]}, u + x, N);
    }
    for (int p = 0; p < N * N; ++p) packed[p * matrix + at] = static_cast<float>(u[p]);
  }
}

// How tiles are taken in blocks, and where a block's parts are in the scratch memory: a pixel of zeros, the
// transformed image and the products, both as N * N matrices with a row per tile.
template <int S>
struct Layout {
  static constexpr int kMatrices = (S + 2) * (S + 2);

  int64_t tiles_across;
  int64_t limit;                     // tiles in a block
  int64_t image_ld, image_step;      // from tile to tile, from matrix to matrix
  int64_t product_ld, product_step;
  int64_t image, products, size;

  explicit Layout(const Conv2dArgs& c) {
    tiles_across = ceil_div(c.out_w, S);
    limit = min_of(kBlockTiles, tiles_across * ceil_div(c.out_h, S));
    image_ld = odd_lines(c.in_c);
    image_step = odd_lines(limit * image_ld);
    product_ld = odd_lines(round_up(c.out_c, kTileCols));
    product_step = odd_lines(limit * product_ld);
    image = round_up(c.in_c, kLine);
    products = image + kMatrices * image_step;
    size = products + kMatrices * product_step;
  }
};

template <int S>
class Runner {
  static constexpr int N = S + 2;
  static constexpr int kMatrices = N * N;

 public:
  Runner(const Conv2dArgs& args, Range range, float* scratch)
      : c(args),
        panels(range),
        layout(args),
        zeros(scratch),
        image(scratch + layout.image),
        products(scratch + layout.products) {}

  void run(Range tiles) const {
    over_columns(c.in_c, [&](int64_t i, auto part) { store(zeros + i, zero(), part); });
    const EvenShares blocks(tiles.end - tiles.begin, layout.limit);
    for (int64_t i = 0, tile = tiles.begin; i < blocks.shares; tile += blocks.size(i), ++i) {
      run_block({tile, tile + blocks.size(i)});
    }
  }

 private:
  const Conv2dArgs& c;
  Range panels;
  Layout<S> layout;
  float* zeros;
  float* image;
  float* products;

  void run_block(Range tiles) const {
    transform_image(tiles);
    for (int p = 0; p < kMatrices; ++p) multiply(p, tiles.end - tiles.begin);
    transform_products(tiles);
  }

  void transform_image(Range tiles) const {
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const int64_t row = tile / layout.tiles_across, col = tile - row * layout.tiles_across;
      const float* pixels[kMatrices];
      for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) pixels[i * N + j] = pixel(row * S - c.padding + i, col * S - c.padding + j);
      }
      float* to = image + (tile - tiles.begin) * layout.image_ld;
      over_columns(c.in_c, [&](int64_t channel, auto part) { transform_pixels(pixels, channel, part, to + channel); });
    }
  }

  const float* pixel(int64_t y, int64_t x) const {
    const bool inside = y >= 0 && y < c.in_h && x >= 0 && x < c.in_w;
    return inside ? c.x + (y * c.in_w + x) * c.in_c : zeros;
  }

  template <typename Part>
  VLA_INLINE void transform_pixels(const float* const* pixels, int64_t channel, Part part, float* to) const {
    Vec half[N][N];
    for (int j = 0; j < N; ++j) {
      Vec column[N], values[N];
      for (int i = 0; i < N; ++i) column[i] = load(pixels[i * N + j] + channel, part);
      Transform<S>::input(column, values);
      for (int i = 0; i < N; ++i) half[i][j] = values[i];
    }
    for (int i = 0; i < N; ++i) {
      Vec values[N];
      Transform<S>::input(half[i], values);
      for (int j = 0; j < N; ++j) store(to + (i * N + j) * layout.image_step, values[j]);
    }
  }

  // products[point] = image[point] * filter[point] for `tiles` rows.
  void multiply(int64_t point, int64_t tiles) const {
    const int64_t matrix = round_up(c.out_c, kTileCols) * c.in_c;
    const float* packed = c.packed + point * matrix;
    const int64_t depth = round_up(ceil_div(c.in_c, ceil_div(c.in_c, kDepth)), 4);
    for (int64_t k = 0; k < c.in_c; k += depth) {
      const int64_t part = min_of(depth, c.in_c - k);
      const bool last = k + part == c.in_c && point + 1 < kMatrices;
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        // After the last panel comes the next part of k, or the next point.
        const float* next = last && panel + 1 == panels.end
                                ? packed + matrix + panels.begin * kTileCols * c.in_c
                                : next_part(packed, c.in_c, panels, panel, k, part);
        multiply_panel(point, tiles, panel, {k, k + part}, next);
      }
    }
  }

  void multiply_panel(int64_t point, int64_t tiles, int64_t panel, Range k, const float* next) const {
    TileArgs t;
    t.a_ld = layout.image_ld;
    t.runs = 1;
    t.run = k.end - k.begin;
    t.run_stride = 0;
    t.b = c.packed + (point * round_up(c.out_c, kTileCols) + panel * kTileCols) * c.in_c + k.begin * kTileCols;
    t.y_ld = layout.product_ld;
    t.cols = kTileCols;
    t.accumulate = k.begin > 0;
    clear_epilogue(t);
    const EvenShares shares(tiles, kTileRows);
    t.upcoming_lines = upcoming_lines_of(shares.shares);
    t.a = image + point * layout.image_step + k.begin;
    t.y = products + point * layout.product_step + (panel - panels.begin) * kTileCols;
    for (int64_t i = 0; i < shares.shares; ++i) {
      t.upcoming = upcoming_for(i, next, t.run, t.b, t.upcoming_lines);
      run_tile(shares.size(i), t);
      t.a += shares.size(i) * layout.image_ld;
      t.y += shares.size(i) * layout.product_ld;
    }
  }

  void transform_products(Range tiles) const {
    const int64_t first = panels.begin * kTileCols, columns = min_of(panels.end * kTileCols, c.out_c) - first;
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const int64_t row = tile / layout.tiles_across, col = tile - row * layout.tiles_across;
      const float* from = products + (tile - tiles.begin) * layout.product_ld;
      over_columns(columns, [&](int64_t channel, auto part) {
        float sums[S * S * Vec::kWidth];
        transform_sums(from + channel, sums);
        finish(sums, row * S, col * S, first + channel, part);
      });
    }
  }

  VLA_INLINE void transform_sums(const float* from, float* sums) const {
    Vec half[S][N];
    for (int j = 0; j < N; ++j) {
      Vec column[N], values[S];
      for (int i = 0; i < N; ++i) column[i] = load(from + (i * N + j) * layout.product_step);
      Transform<S>::output(column, values);
      for (int i = 0; i < S; ++i) half[i][j] = values[i];
    }
    for (int i = 0; i < S; ++i) {
      Vec values[S];
      Transform<S>::output(half[i], values);
      for (int j = 0; j < S; ++j) store(sums + (i * S + j) * Vec::kWidth, values[j]);
    }
  }

  // What follows the product, for those pixels of a tile that the image has.
  template <typename Part>
  VLA_INLINE void finish(const float* sums, int64_t y0, int64_t x0, int64_t channel, Part part) const {
    const Epilogue& e = c.epilogue;
    const Vec bias = e.bias ? load(e.bias + channel, part) : zero();
    const Vec scale = e.gamma ? load(e.gamma + channel, part) + splat(1.0f) : zero();
    const Vec shift = e.gamma ? load(e.beta + channel, part) : zero();
    for (int64_t i = 0; i < min_of(S, c.out_h - y0); ++i) {
      for (int64_t j = 0; j < min_of(S, c.out_w - x0); ++j) {
        const int64_t pixel = (y0 + i) * c.out_w + x0 + j;
        Vec v = load(sums + (i * S + j) * Vec::kWidth) + bias;
        if (e.residual) v = v + load(e.residual + pixel * e.residual_ld + channel, part);
        v = activate(v, e.activation);
        if (e.gamma) v = fma(v, scale, shift);
        store(c.y + pixel * c.y_ld + channel, v, part);
      }
    }
  }
};

}  // namespace

int64_t winograd_packed_size(int64_t side, int64_t out_c, int64_t in_c) {
  return (side + 2) * (side + 2) * round_up(out_c, kTileCols) * in_c;
}

void winograd_pack(int64_t side, const float* w, int64_t out_c, int64_t in_c, float* packed, Range panels) {
  side == 2 ? pack<2>(w, out_c, in_c, packed, panels) : pack<4>(w, out_c, in_c, packed, panels);
}

int64_t winograd_scratch(int64_t side, const Conv2dArgs& c) {
  return side == 2 ? Layout<2>(c).size : Layout<4>(c).size;
}

void winograd(int64_t side, const Conv2dArgs& c, Range tiles, Range panels, float* scratch) {
  side == 2 ? Runner<2>(c, panels, scratch).run(tiles) : Runner<4>(c, panels, scratch).run(tiles);
}

}  // namespace vla::VLA_ISA
