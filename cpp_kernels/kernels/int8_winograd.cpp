// 3x3 INT8 convolution with stride 1 by Winograd's method on tiles of 4x4 output pixels, with exactly the sums of the
// direct method: 36 products per pair of channels in place of 144.
//
// Everything is in whole numbers. Pixels are at most 127 in size, so that transformed ones are at most 100 * 127, and
// transformed filters, which carry as much of the method's divisors as 16 bits hold, 144 * 127. What the products give
// when they are turned back is 24 * 24 = 64 * 9 times the sum. All of it may wrap around 32 bits: times the inverse of
// nine it is 64 times the sum, modulo 2^32, and so the sum itself as long as that is less than 2^25 in size. It is for
// kMostChannels, so more of them are summed part by part.
#include "kernels/int8_pack.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int kTaps = 3, kOutputs = 4, kSide = kOutputs + kTaps - 1;
constexpr int kPoints = kSide * kSide, kPixels = kOutputs * kOutputs;
constexpr int64_t kMostChannels = 224;
static_assert(kTaps * kTaps * kMostChannels * kInt8Limit * kInt8Limit < int64_t{1} << 25);
static_assert(kMostChannels % kGroup == 0);
constexpr int32_t kInverseOfNine = 0x38e38e39;
static_assert(uint32_t{9} * uint32_t{kInverseOfNine} == 1);

constexpr int64_t kLine = 64;  // bytes
// Tiles in a block: every block reads all filters, and what it takes of the second-level cache is limited.
constexpr int64_t kLeastTiles = 4 * kInt8TileRows;
constexpr int64_t kImageBytes = 192 * 1024;

// Bytes, rounded up to an odd number of cache lines.
VLA_INLINE int64_t odd_lines(int64_t bytes) { return (ceil_div(bytes, kLine) | 1) * kLine; }

// The part-th of the groups that are summed together.
struct Parts {
  EvenShares shares;
  explicit Parts(int64_t channels) : shares(groups_of(channels), kMostChannels / kGroup) {}
  VLA_INLINE int64_t count() const { return shares.shares; }
  VLA_INLINE int64_t size(int64_t part) const { return shares.size(part); }
  VLA_INLINE int64_t begin(int64_t part) const { return part * shares.base + min_of(part, shares.larger); }
};

// The polynomials of the points 0, 1, -1, 2, -2 and infinity.
VLA_INLINE void transform_filter(const int (&g)[kTaps], int* u, int step) {
  u[0] = 6 * g[0];
  u[step] = -4 * (g[0] + g[1] + g[2]);
  u[2 * step] = -4 * (g[0] - g[1] + g[2]);
  u[3 * step] = g[0] + 2 * g[1] + 4 * g[2];
  u[4 * step] = g[0] - 2 * g[1] + 4 * g[2];
  u[5 * step] = 12 * g[2];  // half of what it takes
}

VLA_INLINE void transform_input(const Shorts (&d)[kSide], Shorts (&v)[kSide]) {
  const Shorts near = d[4] - times_power<2>(d[2]), odd_near = d[3] - times_power<2>(d[1]);
  const Shorts far = d[4] - d[2], odd_far = times_power<1>(d[3] - d[1]);
  v[0] = times_power<2>(d[0] - d[2]) + far;
  v[1] = near + odd_near;
  v[2] = near - odd_near;
  v[3] = far + odd_far;
  v[4] = far - odd_far;
  v[5] = times_power<2>(d[1] - d[3]) + (d[5] - d[3]);
}

VLA_INLINE void transform_output(const Sums (&m)[kSide], Sums (&y)[kOutputs]) {
  const Sums near = m[1] + m[2], odd_near = m[1] - m[2];
  const Sums far = m[3] + m[4], odd_far = times_power<1>(m[3] - m[4]);
  y[0] = m[0] + near + far;
  y[1] = odd_near + odd_far;
  y[2] = near + times_power<2>(far);
  y[3] = odd_near + times_power<2>(odd_far) + times_power<1>(m[5]);
}

// Panels are those of int8_tile.hpp, with kPoints times the groups: part by part, point by point, group by group.
int64_t panel_groups(int64_t channels) { return kPoints * groups_of(channels); }

// Writes the filter of one output channel, whose taps have their input channels side by side, into column `j`.
void pack_filter(const float* filter, int64_t channels, float scale, int64_t j, PackedWeight* panel) {
  Quantized taps[kTaps * kTaps][kMostChannels];
  PackedWeight* column = panel + j / Vec::kWidth * Vec::kWidth * kGroup;
  const int64_t lane = j % Vec::kWidth;
  const Parts parts(channels);
  for (int64_t part = 0; part < parts.count(); ++part) {
    const int64_t first = parts.begin(part) * kGroup, count = min_of(parts.size(part) * kGroup, channels - first);
    for (int tap = 0; tap < kTaps * kTaps; ++tap) int8_quantize(filter + tap * channels + first, count, scale, taps[tap]);
    PackedWeight* to = column + kPoints * parts.begin(part) * kGroupWeights;
    for (int64_t k = 0; k < count; ++k) {
      int half[kSide * kTaps], u[kPoints];
      for (int x = 0; x < kTaps; ++x) {
        transform_filter({taps[x][k], taps[kTaps + x][k], taps[2 * kTaps + x][k]}, half + x, kTaps);
      }
      for (int i = 0; i < kSide; ++i) {
        transform_filter({half[i * kTaps], half[i * kTaps + 1], half[i * kTaps + 2]}, u + i * kSide, 1);
      }
      for (int point = 0; point < kPoints; ++point) {
        to[(point * parts.size(part) + k / kGroup) * kGroupWeights + weight_place(lane, k % kGroup)] =
            static_cast<PackedWeight>(u[point]);
      }
    }
  }
}

// How tiles are taken in blocks, and where a block's parts are in the scratch memory, in bytes: the transformed image,
// a matrix for each point with a row of channels per tile; the products with a panel, a matrix for each point with a
// row per tile; and the sums, for each line of pixels of the tiles a row per pixel.
struct Layout {
  int64_t across, down;  // tiles
  int64_t limit;         // tiles in a block
  int64_t depth;         // channels, in whole vectors
  int64_t image_step, product_step;  // from point to point
  int64_t products, sums, size;

  explicit Layout(const Conv2dArgs& c) : across(ceil_div(c.out_w, kOutputs)), down(ceil_div(c.out_h, kOutputs)) {
    depth = round_up(c.in_c, Shorts::kWidth);
    const int64_t row = depth * static_cast<int64_t>(sizeof(Quantized));
    limit = max_of(kLeastTiles, kImageBytes / (kPoints * row) / kInt8TileRows * kInt8TileRows);
    limit = min_of(limit, across * down);
    image_step = odd_lines(limit * row);
    product_step = odd_lines(limit * kInt8TileCols * static_cast<int64_t>(sizeof(int32_t)));
    products = kPoints * image_step;
    sums = products + kPoints * product_step;
    size = sums + limit * kPixels * kInt8TileCols * static_cast<int64_t>(sizeof(int32_t));
  }
};

class Runner {
 public:
  Runner(const Conv2dArgs& args, Int8Input input, float* scratch)
      : c(args),
        in(input),
        layout(args),
        parts(args.in_c),
        image_step(layout.image_step / static_cast<int64_t>(sizeof(Quantized))),
        product_step(layout.product_step / static_cast<int64_t>(sizeof(int32_t))),
        image(reinterpret_cast<Quantized*>(scratch)),
        products(reinterpret_cast<int32_t*>(reinterpret_cast<char*>(scratch) + layout.products)),
        sums(reinterpret_cast<int32_t*>(reinterpret_cast<char*>(scratch) + layout.sums)) {}

  void run(Range tiles, Range panels) const {
    const EvenShares blocks(tiles.end - tiles.begin, layout.limit);
    for (int64_t i = 0, tile = tiles.begin; i < blocks.shares; tile += blocks.size(i), ++i) {
      const Range block = {tile, tile + blocks.size(i)};
      for (int64_t t = block.begin; t < block.end; ++t) transform_tile(t, image + (t - block.begin) * layout.depth);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) run_panel(block, panel);
    }
  }

 private:
  const Conv2dArgs& c;
  Int8Input in;
  Layout layout;
  Parts parts;
  int64_t image_step, product_step;
  Quantized* image;
  int32_t* products;
  int32_t* sums;

  int64_t line_step() const { return layout.limit * kOutputs * kInt8TileCols; }

  // Outputs outside the image, which are dropped, are all that comes from pixels past its end: any pixels will do.
  void transform_tile(int64_t tile, Quantized* to) const {
    const int64_t down = tile / layout.across, y = down * kOutputs, x = (tile - down * layout.across) * kOutputs;
    const auto* values = reinterpret_cast<const Quantized*>(in.values);
    const Quantized* pixels[kPoints];
    for (int64_t i = 0; i < kSide; ++i) {
      const Quantized* row = values + min_of(y + i, c.padded_h() - 1) * c.padded_w() * c.in_c;
      for (int64_t j = 0; j < kSide; ++j) pixels[i * kSide + j] = row + min_of(x + j, c.padded_w() - 1) * c.in_c;
    }
    for (int64_t channel = 0; channel < c.in_c; channel += Shorts::kWidth) transform_pixels(pixels, channel, to + channel);
  }

  __attribute__((noinline)) void transform_pixels(const Quantized* const* pixels, int64_t channel, Quantized* to) const {
    Shorts half[kSide][kSide];
    for (int j = 0; j < kSide; ++j) {
      Shorts column[kSide], values[kSide];
      for (int i = 0; i < kSide; ++i) column[i] = load_shorts(pixels[i * kSide + j] + channel);
      transform_input(column, values);
      for (int i = 0; i < kSide; ++i) half[i][j] = values[i];
    }
    for (int i = 0; i < kSide; ++i) {
      Shorts values[kSide];
      transform_input(half[i], values);
      for (int j = 0; j < kSide; ++j) store_shorts(to + (i * kSide + j) * image_step, values[j]);
    }
  }

  void run_panel(Range tiles, int64_t panel) const {
    const Int8Panel weights(c.packed, panel_groups(c.in_c), panel);
    for (int64_t part = 0; part < parts.count(); ++part) {
      for (int point = 0; point < kPoints; ++point) {
        if (part == 0) fetch(tiles, panel, point);
        multiply(tiles.end - tiles.begin, weights, part, point);
      }
      for (int64_t tile = 0; tile < tiles.end - tiles.begin; ++tile) {
        for (int col = 0; col < kInt8TileCols; col += Vec::kWidth) {
          transform_products(products + tile * kInt8TileCols + col, part > 0,
                             sums + tile * kOutputs * kInt8TileCols + col);
        }
      }
    }
    finish(tiles, panel, weights);
  }

  // The point-th part of where the panel's results go and of the residual, which may be far away.
  void fetch(Range tiles, int64_t panel, int point) const {
    const int64_t count = tiles.end - tiles.begin, col = panel * kInt8TileCols;
    for (int64_t t = count * point / kPoints; t < count * (point + 1) / kPoints; ++t) {
      const int64_t down = (tiles.begin + t) / layout.across, across = tiles.begin + t - down * layout.across;
      for (int64_t y = down * kOutputs; y < min_of(c.out_h, (down + 1) * kOutputs); ++y) {
        for (int64_t x = across * kOutputs; x < min_of(c.out_w, (across + 1) * kOutputs); ++x) {
          fetch_pixel(y * c.out_w + x, col);
        }
      }
    }
  }

  void fetch_pixel(int64_t pixel, int64_t col) const {
    for (int64_t i = col; i < col + kInt8TileCols; i += 16) {
      prefetch_to_write(c.y + pixel * c.y_ld + i);
      if (c.epilogue.residual) prefetch_far(c.epilogue.residual + pixel * c.epilogue.residual_ld + i);
    }
  }

  void multiply(int64_t tiles, const Int8Panel& weights, int64_t part, int point) const {
    const int64_t first = parts.begin(part), groups = parts.size(part);
    Int8TileArgs t{image + point * image_step + first * kGroup, layout.depth, 1, 0, 1, 0, groups, weights, nullptr, 0,
                   nullptr, 0, kInt8TileCols, {}};
    t.panel.weights += (kPoints * first + point * groups) * kGroupWeights;
    t.sums = products + point * product_step;
    // The weights of the next point follow these.
    const char* next = reinterpret_cast<const char*>(t.panel.weights + groups * kGroupWeights);
    const int64_t bytes = groups * kGroupWeights * static_cast<int64_t>(sizeof(PackedWeight));
    const EvenShares shares(tiles, kInt8TileRows);
    for (int64_t i = 0; i < shares.shares; ++i) {
      for (int64_t at = bytes * i / shares.shares / kLine * kLine; at < bytes * (i + 1) / shares.shares; at += kLine) {
        prefetch_far(next + at);
      }
      run_int8_tile(shares.size(i), t);
      t.a += shares.size(i) * layout.depth;
      t.sums += shares.size(i) * kInt8TileCols;
    }
  }

  // The sums of one tile in a vector of columns, from what the products at all points are there.
  __attribute__((noinline)) void transform_products(const int32_t* from, bool add, int32_t* to) const {
    Sums half[kOutputs][kSide];
    for (int j = 0; j < kSide; ++j) {
      Sums column[kSide], values[kOutputs];
      for (int i = 0; i < kSide; ++i) column[i] = load_sums(from + (i * kSide + j) * product_step);
      transform_output(column, values);
      for (int i = 0; i < kOutputs; ++i) half[i][j] = values[i];
    }
    for (int i = 0; i < kOutputs; ++i) {
      Sums values[kOutputs];
      transform_output(half[i], values);
      for (int j = 0; j < kOutputs; ++j) {
        int32_t* at = to + i * line_step() + j * kInt8TileCols;
        const Sums sum = over_power<6>(values[j] * kInverseOfNine);
        store_sums(at, add ? load_sums(at) + sum : sum);
      }
    }
  }

  void finish(Range tiles, int64_t panel, const Int8Panel& weights) const {
    const int64_t col = panel * kInt8TileCols;
    Int8TileArgs t{nullptr, 0, 0, 0, 0, 0, 0, weights, in.scales, 0, nullptr, c.y_ld, min_of(kInt8TileCols, c.out_c - col),
                   {}};
    for (int64_t tile = tiles.begin, end; tile < tiles.end; tile = end) {
      const int64_t down = tile / layout.across, y = down * kOutputs, x = (tile - down * layout.across) * kOutputs;
      end = min_of(tiles.end, (down + 1) * layout.across);
      const int64_t pixels = min_of(c.out_w - x, (end - tile) * kOutputs);
      const int32_t* line = sums + (tile - tiles.begin) * kOutputs * kInt8TileCols;
      for (int64_t i = 0; i < min_of(kOutputs, c.out_h - y); ++i) {
        const int64_t pixel = (y + i) * c.out_w + x;
        t.y = c.y + pixel * c.y_ld + col;
        t.epilogue = epilogue_at(c.epilogue, pixel, col);
        finish_int8(line + i * line_step(), pixels, t);
      }
    }
  }
};

}  // namespace

int64_t int8_winograd_packed_bytes(int64_t out_c, int64_t in_c) {
  return ceil_div(out_c, kInt8TileCols) * Int8Panel::bytes(panel_groups(in_c));
}

void int8_winograd_pack(const float* w, int64_t out_c, int64_t in_c, std::byte* packed, Range panels) {
  pack_int8_panels(w, out_c, kTaps * kTaps * in_c, panel_groups(in_c), packed, panels,
                   [&](const float* filter, float scale, int64_t j, PackedWeight* weights) {
                     pack_filter(filter, in_c, scale, j, weights);
                     return 0;
                   });
}

int64_t int8_winograd_scratch(const Conv2dArgs& c) { return Layout(c).size / static_cast<int64_t>(sizeof(float)); }

void int8_winograd(const Conv2dArgs& c, Int8Input in, Range tiles, Range panels, float* scratch) {
  Runner(c, in, scratch).run(tiles, panels);
}

}  // namespace vla::VLA_ISA
