// The register tile that every matrix product in the engine is made of: linear layers, convolutions, and
// both products of attention.
#pragma once

#include "kernels/kernels.hpp"
#include "simd/vec.hpp"

namespace vla::VLA_ISA {

constexpr int kTileCols = kTileVecs * Vec::kWidth;

// The part of k that is multiplied before the next panel is taken, where a panel's part is to stay in the first-level
// cache while every tile of rows passes by.
constexpr int64_t kDepth = 192;

// Sums over this many steps of four k are put aside and later added up: a long chain of sums rounds more than a
// few short ones.
constexpr int64_t kStretchSteps = 32;

// The same part of k in linear layers: whole blocks of 32, so that it is the same one whatever form weights have. A
// panel's part of this depth is read anew from the second-level cache by every tile of rows, which keeps up; y is read
// and written less often than with shorter parts.
constexpr int64_t kLinearDepth = 512;
VLA_INLINE int64_t linear_depth(int64_t k) { return round_up(ceil_div(k, ceil_div(k, kLinearDepth)), kBlockValues); }

// What a product does to the second of two results that it is part of.
enum class Also { kNothing, kStore, kAdd, kSubtract };

// y[r][0 .. cols) (+)= sum over k of a[r][k] * b[k][0 .. cols), then what follows the product.
struct TileArgs {
  // The k values of a row are `runs` runs of `run` adjacent values, whose starts are `run_stride` apart.
  const float* a;
  int64_t a_ld;
  int64_t runs, run, run_stride;
  const float* b;  // [runs * run][kTileCols], adjacent
  const Bf16* b_bf16 = nullptr;  // where given, the same in place of b, to be expanded
  float* y;
  int64_t y_ld;
  int64_t cols;     // at most kTileCols
  bool accumulate;  // y already holds the sum over earlier k
  // Set for the last part of k only; all start at the tile's first row and column.
  const float* row_factors = nullptr;  // of the sums, one for each row
  const float* bias;
  const float* residual;
  int64_t residual_ld;
  Activation activation;
  const float* gamma;
  const float* beta;
  // What is needed next: one line per four k, kManyLines of them, or all that a panel has, are fetched towards the
  // second-level cache meanwhile.
  const void* upcoming;
  int64_t upcoming_lines = 1;
  // The second result, of which the product is only a part: a whole tile, rows y_ld apart.
  Also also = Also::kNothing;
  float* also_y = nullptr;
};

constexpr int64_t kLineBytes = 64;
// Lines of a panel of weights W, for four k.
template <typename W>
constexpr int64_t kPanelLines = 4 * kTileCols * static_cast<int64_t>(sizeof(W)) / kLineBytes;
constexpr int64_t kManyLines = 4;

// Lines that each of `tiles` fetches: many where they are too few to fetch all of a panel one by one, and all where
// many by each of them would not be enough.
template <typename W>
VLA_INLINE int64_t upcoming_lines_of(int64_t tiles) {
  if (tiles * kManyLines < kPanelLines<W>) return kPanelLines<W>;
  return tiles <= kPanelLines<W> / 2 ? kManyLines : 1;
}

// Where a tile's `upcoming` points: the tiles that pass by one part of a panel share the fetching of the part
// that is used after it, at `next`; those left over fetch what they have.
template <typename W>
VLA_INLINE const void* upcoming_for(int64_t tile, const W* next, int64_t depth, const W* own, int64_t lines = 1) {
  if (tile * lines >= kPanelLines<W>) return own;
  return reinterpret_cast<const char*>(next) + tile * lines * (kLineBytes / 4) * depth;
}

// The part of a panel used after [k0, k0 + depth) of `panel`, where panels are walked within a part of k, and that of
// panel `then` follows them all.
template <typename W>
VLA_INLINE const W* next_part(const W* packed, int64_t k, Range panels, int64_t panel, int64_t k0, int64_t depth,
                              int64_t then) {
  if (panel + 1 < panels.end) return packed + ((panel + 1) * k + k0) * kTileCols;
  if (k0 + depth < k) return packed + (panels.begin * k + k0 + depth) * kTileCols;
  return packed + then * k * kTileCols;
}

VLA_INLINE void set_panel(TileArgs& t, const float* b) { t.b = b; }
VLA_INLINE void set_panel(TileArgs& t, const Bf16* b) { t.b_bf16 = b; }

// rows is 1 .. kTileRows. An element's value depends neither on rows nor on its place in the tile. Half a panel takes
// half the time.
void run_tile(int64_t rows, const TileArgs& args);

// Columns of whole vectors that the first `cols` of a panel are among, no more than a tile needs for them.
VLA_INLINE int64_t whole_cols(int64_t cols) { return cols <= kTileCols / 2 ? kTileCols / 2 : kTileCols; }

// What follows the product, for less than a whole tile or with a costly activation; sums is [rows][sums_ld].
void finish_in_memory(const float* sums, int64_t rows, const TileArgs& args, int64_t sums_ld = kTileCols);

// y[r][0 .. cols) = sum over k of a[r][k] * b[k][0 .. cols) for adjacent panels, of operands that are at hand: short
// products, one after another. y is written in whole panels but for the last, of which half may be left out.
struct PanelsArgs {
  const float* a;
  int64_t a_ld;
  int64_t k;
  const float* b;  // panels [k][kTileCols]
  float* y;
  int64_t y_ld;
  int64_t cols;
};

// rows is 1 .. kTileRows.
void run_panels(int64_t rows, const PanelsArgs& args);

// `count` things in shares of at most `limit`, as even as possible.
struct EvenShares {
  int64_t shares, base, larger;
  VLA_INLINE EvenShares(int64_t count, int64_t limit)
      : shares(ceil_div(count, limit)), base(shares ? count / shares : 0), larger(shares ? count % shares : 0) {}
  VLA_INLINE int64_t size(int64_t share) const { return base + (share < larger ? 1 : 0); }
};

// Adds what follows the product to the arguments of a tile at `row` and `col` of the whole output.
VLA_INLINE void set_epilogue(TileArgs& tile, const Epilogue& e, int64_t row, int64_t col) {
  tile.bias = e.bias ? e.bias + col : nullptr;
  tile.residual = e.residual ? e.residual + row * e.residual_ld + col : nullptr;
  tile.residual_ld = e.residual_ld;
  tile.activation = e.activation;
  tile.gamma = e.gamma ? e.gamma + col : nullptr;
  tile.beta = e.gamma ? e.beta + col : nullptr;
}

VLA_INLINE void clear_epilogue(TileArgs& tile) {
  tile.bias = tile.residual = tile.gamma = tile.beta = nullptr;
  tile.residual_ld = 0;
  tile.activation = Activation::kNone;
}

}  // namespace vla::VLA_ISA
