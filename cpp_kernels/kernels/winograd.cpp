// 3x3 convolution with stride 1 or 2 by Winograd's method: the filter and tiles of the image are turned into the
// values of polynomials at a few points, multiplied there, and turned back. With stride 1 a tile of 2x2 output
// pixels then takes 16 products per pair of channels where the direct sum takes 36, and a tile of 4x4 takes 36
// instead of 144; with stride 2 they take 25 and 81.
//
// Seen over all channels and many tiles, each of the points is a matrix product of its own. They run on the
// register tile of every other product, a block of image tiles at a time, so that what lies between the transforms
// stays close. The transformed image is stored as the register tile reads it: for each point and group of tiles,
// kLine channels of each tile in turn.
#include "kernels/table.hpp"
#include "kernels/tile.hpp"
#include "kernels/winograd_columns.hpp"
#include "kernels/winograd_finish.hpp"
#include "kernels/winograd_transforms.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kLine = 16;  // floats

// Tiles in a block. Every block reads all filters, so it should be worth that; the whole image would not stay in
// any cache.
constexpr int64_t kBlockTiles = 4 * kTileRows;
// What the products of the panels that are computed together may take of the second-level cache.
constexpr int64_t kProductFloats = 32 * 1024;

// Rounded up to an odd number of cache lines, so that things this far apart do not compete for the same set.
VLA_INLINE int64_t odd_lines(int64_t floats) { return (ceil_div(floats, kLine) | 1) * kLine; }

// The two-dimensional transform: its points and values are pairs of the one-dimensional ones.
template <typename W>
struct Plane {
  static constexpr int kPoints = W::kPoints * W::kPoints;
  static constexpr int kValues = W::kValues * W::kValues;

  static constexpr int point(int value) {
    return W::point(value / W::kValues) * W::kPoints + W::point(value % W::kValues);
  }
  // Values that belong to a point; they are adjacent in its matrix product.
  static constexpr int phases(int point) { return W::phases(point / W::kPoints) * W::phases(point % W::kPoints); }
  static constexpr int phase(int value) {
    return W::phase(value / W::kValues) * W::phases(W::point(value % W::kValues)) + W::phase(value % W::kValues);
  }
  // Values of the points before.
  static constexpr int before(int point) {
    int values = 0;
    for (int p = 0; p < point; ++p) values += phases(p);
    return values;
  }
};

// Filters are packed panel by panel, and within a panel point by point, phase by phase, channel by channel.
template <typename W>
void pack(const float* w, int64_t out_c, int64_t in_c, float* packed, Range panels) {
  using P = Plane<W>;
  constexpr int V = W::kValues;
  const int64_t depth = round_up(in_c, kLine);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    float* to = packed + panel * P::kValues * depth * kTileCols;
    for (int64_t at = 0; at < depth * kTileCols; ++at) {
      const int64_t col = panel * kTileCols + at % kTileCols, in = at / kTileCols;
      double rows[3 * V] = {}, u[P::kValues] = {};
      if (col < out_c && in < in_c) {
        const float* filter = w + col * 9 * in_c + in;
        for (int y = 0; y < 3; ++y) {
          const float* row = filter + y * 3 * in_c;
          W::filter({row[0], row[in_c], row[2 * in_c]}, rows + y * V, 1);
        }
        for (int x = 0; x < V; ++x) W::filter({rows[x], rows[V + x], rows[2 * V + x]}, u + x, V);
      }
      for (int v = 0; v < P::kValues; ++v) {
        const int64_t slot = P::before(P::point(v)) + P::phase(v);
        to[slot * depth * kTileCols + at] = static_cast<float>(u[v]);
      }
    }
  }
}

// How tiles are taken in blocks, and where a block's parts are in the scratch memory: a pixel of zeros, the
// transformed image, and the products of some panels, a matrix for each point with a row per tile.
template <typename W>
struct Layout {
  using P = Plane<W>;

  int64_t tiles_across, tiles_down;
  int64_t limit;      // tiles in a block
  int64_t depth;      // channels, in whole lines
  int64_t together;   // panels
  int64_t product_ld, product_step;  // from tile to tile, from point to point
  int64_t image, products, size;
  int64_t image_at[P::kPoints];  // of each point, from `image`

  explicit Layout(const Conv2dArgs& c) {
    tiles_across = ceil_div(c.out_w, W::kOutputs);
    tiles_down = ceil_div(c.out_h, W::kOutputs);
    limit = min_of(kBlockTiles, tiles_across * tiles_down);
    depth = round_up(c.in_c, kLine);
    const int64_t panel = P::kPoints * limit * kTileCols;
    together = max_of(1, min_of(ceil_div(c.out_c, kTileCols), kProductFloats / panel));
    product_ld = odd_lines(together * kTileCols);
    product_step = odd_lines(limit * product_ld);
    image = depth;
    products = image;
    for (int p = 0; p < P::kPoints; ++p) {
      image_at[p] = products - image;
      products += odd_lines(P::phases(p) * limit * depth);
    }
    size = products + P::kPoints * product_step;
  }
};

template <typename W>
class Runner {
  using P = Plane<W>;
  static constexpr int V = W::kValues, N = W::kPoints, S = W::kOutputs, D = W::kInputs;

 public:
  Runner(const Conv2dArgs& args, Range range, float* scratch)
      : c(args),
        panels(range),
        layout(args),
        zeros(scratch),
        image(scratch + layout.image),
        products(scratch + layout.products) {}

  void run(Range tiles) const {
    for (int64_t i = 0; i < layout.depth; i += Vec::kWidth) store(zeros + i, zero());
    const EvenShares blocks(tiles.end - tiles.begin, layout.limit);
    for (int64_t i = 0, tile = tiles.begin; i < blocks.shares; tile += blocks.size(i), ++i) {
      const int64_t next = tile + blocks.size(i);
      run_block({tile, next}, {next, i + 1 < blocks.shares ? next + blocks.size(i + 1) : next});
    }
  }

 private:
  const Conv2dArgs& c;
  Range panels;
  Layout<W> layout;
  float* zeros;
  float* image;
  float* products;

  void run_block(Range tiles, Range next) const {
    transform_image(tiles);
    for (int64_t p = panels.begin; p < panels.end; p += layout.together) {
      const Range some = {p, min_of(panels.end, p + layout.together)};
      for (int point = 0; point < P::kPoints; ++point) {
        fetch(tiles, next, some, point);
        multiply(point, tiles.end - tiles.begin, some);
      }
      transform_products(tiles, some);
    }
  }

  Range down_of(int64_t tile, int64_t side, int64_t limit) const {
    const int64_t begin = tile / layout.tiles_across * side;
    return {begin, min_of(limit, begin + side)};
  }
  Range across_of(int64_t tile, int64_t side, int64_t limit) const {
    const int64_t begin = tile % layout.tiles_across * side;
    return {begin, min_of(limit, begin + side)};
  }

  // The point-th part of what is read after the products at this point, towards the second-level cache: the pixels
  // of the next block, and the residual of this one.
  void fetch(Range tiles, Range next, Range some, int point) const {
    constexpr int64_t kSide = S * W::kStride;
    const auto part_of = [&](Range all, int64_t i) { return all.begin + (all.end - all.begin) * i / P::kPoints; };
    for (int64_t tile = part_of(next, point); some.begin == panels.begin && tile < part_of(next, point + 1); ++tile) {
      const Range down = down_of(tile, kSide, c.in_h), across = across_of(tile, kSide, c.in_w);
      for (int64_t y = down.begin; y < down.end; ++y) fetch_row(c.x, c.in_c, y * c.in_w, across, {0, c.in_c});
    }
    if (c.epilogue.residual == nullptr) return;
    const Range channels = {some.begin * kTileCols, min_of(some.end * kTileCols, c.out_c)};
    for (int64_t tile = part_of(tiles, point); tile < part_of(tiles, point + 1); ++tile) {
      const Range down = down_of(tile, S, c.out_h), across = across_of(tile, S, c.out_w);
      for (int64_t y = down.begin; y < down.end; ++y) {
        fetch_row(c.epilogue.residual, c.epilogue.residual_ld, y * c.out_w, across, channels);
      }
    }
  }

  static void fetch_row(const float* from, int64_t ld, int64_t row, Range across, Range channels) {
    for (int64_t x = row + across.begin; x < row + across.end; ++x) {
      for (int64_t i = channels.begin; i < channels.end; i += kLine) prefetch_far(from + x * ld + i);
    }
  }

  // Where a tile's channels are among those of its group, for each value.
  struct Group {
    int64_t rows;
    int64_t at[P::kValues];
  };

  void transform_image(Range tiles) const {
    const EvenShares groups(tiles.end - tiles.begin, kTileRows);
    for (int64_t i = 0, tile = tiles.begin; i < groups.shares; ++i) {
      Group group;
      group.rows = groups.size(i);
      for (int v = 0; v < P::kValues; ++v) {
        const int point = P::point(v);
        group.at[v] = layout.image_at[point] +
                      ((tile - tiles.begin) * P::phases(point) + P::phase(v) * group.rows) * layout.depth;
      }
      for (int64_t row = 0; row < group.rows; ++row, ++tile) transform_tile(tile, group, image + row * kLine);
    }
  }

  void transform_tile(int64_t tile, const Group& group, float* to) const {
    const int64_t down = tile / layout.tiles_across, across = tile - down * layout.tiles_across;
    const int64_t y = down * S * W::kStride - c.pad_top, x = across * S * W::kStride - c.pad_left;
    const float* pixels[D * D];
    for (int64_t i = 0; i < D; ++i) {
      for (int64_t j = 0; j < D; ++j) pixels[i * D + j] = pixel(y + i, x + j);
    }
    over_columns(c.in_c, [&](int64_t channel, auto part) {
      transform_pixels(pixels, channel, part, group, to + channel / kLine * group.rows * kLine + channel % kLine);
    });
    for (int64_t channel = round_up(c.in_c, Vec::kWidth); channel < layout.depth; channel += Vec::kWidth) {
      for (int v = 0; v < P::kValues; ++v) {
        store(to + group.at[v] + channel / kLine * group.rows * kLine + channel % kLine, zero());
      }
    }
  }

  const float* pixel(int64_t y, int64_t x) const {
    const bool inside = y >= 0 && y < c.in_h && x >= 0 && x < c.in_w;
    return inside ? c.x + (y * c.in_w + x) * c.in_c : zeros;
  }

  template <typename Part>
  __attribute__((noinline)) void transform_pixels(const float* const* pixels, int64_t channel, Part part,
                                                  const Group& group, float* to) const {
    Vec half[V][D];
    for (int j = 0; j < D; ++j) {
      Vec column[D], values[V];
      for (int i = 0; i < D; ++i) column[i] = load(pixels[i * D + j] + channel, part);
      W::input(column, values);
      for (int i = 0; i < V; ++i) half[i][j] = values[i];
    }
    for (int i = 0; i < V; ++i) {
      Vec values[V];
      W::input(half[i], values);
      for (int j = 0; j < V; ++j) store(to + group.at[i * V + j], values[j]);
    }
  }

  // The products at one point of `tiles` tiles with some panels.
  void multiply(int point, int64_t tiles, Range some) const {
    const int64_t all = P::phases(point) * layout.depth;
    const int64_t step = round_up(ceil_div(all, ceil_div(all, kDepth)), kLine);
    for (int64_t k = 0; k < all; k += step) {
      for (int64_t panel = some.begin; panel < some.end; ++panel) {
        multiply_panel(point, tiles, panel, some, {k, min_of(all, k + step)});
      }
    }
  }

  const float* filters(int point, int64_t panel, int64_t k) const {
    return c.packed + ((panel * P::kValues + P::before(point)) * layout.depth + k) * kTileCols;
  }

  // Where the filters are that are used after those of `panel` over `k`.
  const float* upcoming(int point, int64_t panel, Range some, Range k) const {
    if (panel + 1 < some.end) return filters(point, panel + 1, k.begin);
    if (k.end < P::phases(point) * layout.depth) return filters(point, some.begin, k.end);
    if (point + 1 < P::kPoints) return filters(point + 1, some.begin, 0);
    return filters(0, some.end < panels.end ? some.end : panels.begin, 0);
  }

  void multiply_panel(int point, int64_t tiles, int64_t panel, Range some, Range k) const {
    const int64_t all = P::phases(point) * layout.depth;
    TileArgs t;
    t.a_ld = kLine;
    t.run = kLine;
    t.runs = (k.end - k.begin) / kLine;
    t.b = filters(point, panel, k.begin);
    t.y_ld = layout.product_ld;
    t.cols = whole_cols(c.out_c - panel * kTileCols);
    t.accumulate = k.begin > 0;
    clear_epilogue(t);
    const EvenShares groups(tiles, kTileRows);
    t.upcoming_lines = upcoming_lines_of<float>(groups.shares);
    const float* next = upcoming(point, panel, some, k);
    const float* from = image + layout.image_at[point];
    t.y = products + point * layout.product_step + (panel - some.begin) * kTileCols;
    for (int64_t i = 0; i < groups.shares; ++i) {
      const int64_t rows = groups.size(i);
      t.run_stride = rows * kLine;
      t.a = from + k.begin * rows;
      t.upcoming = upcoming_for(i, next, k.end - k.begin, t.b, t.upcoming_lines);
      run_tile(rows, t);
      from += rows * all;
      t.y += rows * layout.product_ld;
    }
  }

  void transform_products(Range tiles, Range some) const {
    const int64_t columns = min_of(some.end * kTileCols, c.out_c) - some.begin * kTileCols;
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const int64_t down = tile / layout.tiles_across, across = tile - down * layout.tiles_across;
      const float* from = products + (tile - tiles.begin) * layout.product_ld;
      const Place place = {min_of(S, c.out_h - down * S), min_of(S, c.out_w - across * S),
                           down * S * c.out_w + across * S, some.begin * kTileCols};
      over_columns(columns, [&](int64_t i, auto part) {
        Place at = place;
        at.channel += i;
        place.whole() && is_cheap(c.epilogue.activation) ? finish_whole(from + i, at, part)
                                                              : finish_part(from + i, at, part);
      });
    }
  }

  // Where a tile's results are in the output image: the pixels that the image has, the first of them, and a channel.
  struct Place {
    int64_t rows, cols;
    int64_t pixel;
    int64_t channel;
    bool whole() const { return rows == S && cols == S; }
  };

  // half[row][point] for the rows of a tile. Like what follows, a loop that keeps what it needs in registers; unrolled
  // it would not.
  VLA_INLINE void transform_columns(const float* from, float* half) const {
    VLA_ROLLED for (int j = 0; j < N; ++j) {
      Vec column[N], values[S];
      for (int i = 0; i < N; ++i) column[i] = load(from + (i * N + j) * layout.product_step);
      W::output(column, values);
      for (int i = 0; i < S; ++i) store(half + (i * N + j) * Vec::kWidth, values[i]);
    }
  }

  VLA_INLINE static void transform_row(const float* half, Vec (&values)[S]) {
    Vec line[N];
    for (int j = 0; j < N; ++j) line[j] = load(half + j * Vec::kWidth);
    W::output(line, values);
  }

  // A tile that lies in the image, whose activation is cheap.
  template <typename Part>
  __attribute__((noinline)) void finish_whole(const float* from, const Place& place, Part part) const {
    alignas(64) float half[S * N * Vec::kWidth];
    transform_columns(from, half);
    const Finish finish(c.epilogue, place.channel, part);
    VLA_ROLLED for (int i = 0; i < S; ++i) {
      Vec values[S];
      transform_row(half + i * N * Vec::kWidth, values);
      for (int j = 0; j < S; ++j) {
        const int64_t pixel = place.pixel + i * c.out_w + j;
        store(c.y + pixel * c.y_ld + place.channel, finish.cheap(values[j], pixel), part);
      }
    }
  }

  template <typename Part>
  __attribute__((noinline)) void finish_part(const float* from, const Place& place, Part part) const {
    alignas(64) float half[S * N * Vec::kWidth], sums[S * Vec::kWidth];
    transform_columns(from, half);
    const Finish finish(c.epilogue, place.channel, part);
    for (int64_t i = 0; i < place.rows; ++i) {
      Vec values[S];
      transform_row(half + i * N * Vec::kWidth, values);
      for (int j = 0; j < S; ++j) store(sums + j * Vec::kWidth, values[j]);
      for (int64_t j = 0; j < place.cols; ++j) {
        const int64_t pixel = place.pixel + i * c.out_w + j;
        store(c.y + pixel * c.y_ld + place.channel, finish.any(load(sums + j * Vec::kWidth), pixel), part);
      }
    }
  }
};

// body(Winograd<..>{}) with the transforms for a 3x3 filter.
template <typename Body>
VLA_INLINE auto with_transforms(const WinogradForm& form, Body body) {
  const int64_t side = form.side;
  if (form.stride == 1) return side == 2 ? body(Winograd<1, 2>{}) : body(Winograd<1, 4>{});
  return side == 2 ? body(Winograd<2, 2>{}) : body(Winograd<2, 4>{});
}

}  // namespace

int64_t winograd_packed_size(const WinogradForm& form, int64_t out_c, int64_t in_c) {
  if (form.kernel == 7) return winograd_columns_packed_size(out_c, in_c);
  const int64_t filters = round_up(out_c, kTileCols) * round_up(in_c, kLine);
  return with_transforms(form, [&](auto w) { return Plane<decltype(w)>::kValues * filters; });
}

void winograd_pack(const WinogradForm& form, const float* w, int64_t out_c, int64_t in_c, float* packed,
                   Range panels) {
  if (form.kernel == 7) return winograd_columns_pack(w, out_c, in_c, packed, panels);
  with_transforms(form, [&](auto t) { pack<decltype(t)>(w, out_c, in_c, packed, panels); });
}

int64_t winograd_scratch(const WinogradForm& form, const Conv2dArgs& c) {
  if (form.kernel == 7) return winograd_columns_scratch(c);
  return with_transforms(form, [&](auto t) { return Layout<decltype(t)>(c).size; });
}

void winograd(const WinogradForm& form, const Conv2dArgs& c, Range tiles, Range panels, float* scratch) {
  if (form.kernel == 7) return winograd_columns(c, tiles, panels, scratch);
  with_transforms(form, [&](auto t) { Runner<decltype(t)>(c, panels, scratch).run(tiles); });
}

}  // namespace vla::VLA_ISA
