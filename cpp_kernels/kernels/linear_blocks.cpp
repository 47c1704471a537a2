// Linear layers whose weights are kept in blocks. A pass of few rows expands them in registers: reading them is what
// takes the time then. One of more rows expands a part of a panel at a time into memory at hand, and multiplies that as
// any other. Both add up in the order in which `linear` does, so that a row's result is the same in every pass.
#include "kernels/blocks.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kStretch = 4 * kStretchSteps;  // of k
constexpr int64_t kBlockRows = 12 * kTileRows;   // as in `linear`

// Adjacent panels that a tile of few rows multiplies at once, for enough sums that do not wait for each other.
constexpr int kThinPanels = 2;
constexpr int kMostRowsOfThinPanels = kTileRows / 2;

struct ThinArgs {
  const float* x;
  int64_t x_ld;
  const uint8_t* panel;
  int64_t k;
  float* sums;   // [R][P * kTileCols]
  float* aside;  // as many, of earlier stretches of a part
};

template <int K, BlockForm F, int R, int V>
VLA_INLINE void step(Rows<R, V>& sums, const Quads<R>& x, const BlockIntegers<F, V>& integers,
                     const BlockScales<F, V>& scales) {
  Lanes<V> lanes;
  integers.template expand<K>(scales, lanes);
  sums.template multiply_add<K % 4>(x, lanes);
}

// A block of kBlockValues k.
template <BlockForm F, int R, int V>
VLA_INLINE void multiply_block(Rows<R, V>& sums, const float* x, int64_t x_ld, const uint8_t* block, int64_t panel) {
  using Integers = BlockIntegers<F, V>;
  BlockScales<F, V> scales;
  scales.load(block, panel);
  const uint8_t* group = block + kHeadBytes<F>;
  VLA_ROLLED
  for (int64_t k = 0; k < kBlockValues; k += Integers::kAdjacent) {
    Integers integers;
    integers.load(group, panel);
    Quads<R> quads;
    quads.load(x, x_ld);
    step<0>(sums, quads, integers, scales);
    step<1>(sums, quads, integers, scales);
    step<2>(sums, quads, integers, scales);
    step<3>(sums, quads, integers, scales);
    if constexpr (Integers::kAdjacent == 8) {
      quads.load(x + 4, x_ld);
      step<4>(sums, quads, integers, scales);
      step<5>(sums, quads, integers, scales);
      step<6>(sums, quads, integers, scales);
      step<7>(sums, quads, integers, scales);
    }
    x += Integers::kAdjacent;
    group += kGroupBytes<F>;
  }
}

// Towards the second-level cache, what lies as far ahead as the panels being read are long.
template <BlockForm F>
VLA_INLINE void fetch_block(const uint8_t* block) {
  for (int64_t at = 0; at < panel_block_bytes(F); at += kLineBytes) prefetch_far(block + at);
}

// R rows of x times P panels.
template <BlockForm F, int R, int P>
__attribute__((noinline)) void multiply(const ThinArgs& t) {
  constexpr int64_t kSumsLd = P * kTileCols;
  const int64_t panel = panel_bytes(F, t.k), depth = linear_depth(t.k);
  const uint8_t* block = t.panel;
  for (int64_t k0 = 0; k0 < t.k; k0 += depth) {
    const int64_t part_end = min_of(t.k, k0 + depth);
    for (int64_t from = k0; from < part_end; from += kStretch) {
      const int64_t to = min_of(part_end, from + kStretch);
      Rows<R, P * kTileVecs> sums;
      sums.clear();
      for (int64_t k = from; k < to; k += kBlockValues) {
        multiply_block<F>(sums, t.x + k, t.x_ld, block, panel);
        for (int p = 0; p < P; ++p) fetch_block<F>(block + (P + p) * panel);
        block += panel_block_bytes(F);
      }
      if (from > k0) sums.add_from(t.aside, kSumsLd);
      if (to < part_end) {
        sums.store(t.aside, kSumsLd);
        continue;
      }
      if (k0 > 0) sums.add_from(t.sums, kSumsLd);
      sums.store(t.sums, kSumsLd);
    }
  }
}

template <BlockForm F, int P, int R>
VLA_INLINE void dispatch_rows(int64_t rows, const ThinArgs& t) {
  if constexpr (R > 1) {
    if (rows != R) return dispatch_rows<F, P, R - 1>(rows, t);
  }
  multiply<F, R, P>(t);
}

// Sums and what follows them, of at most kTileRows rows and P panels.
template <BlockForm F, int P>
void thin_tile(const LinearArgs& g, Range rows, int64_t panel) {
  constexpr int kMostRows = P == 1 ? kTileRows : kMostRowsOfThinPanels;
  alignas(64) float sums[kMostRows * P * kTileCols], aside[kMostRows * P * kTileCols];
  const int64_t count = rows.end - rows.begin, col = panel * kTileCols;
  const auto* packed = reinterpret_cast<const uint8_t*>(g.packed) + panel * panel_bytes(F, g.k);
  dispatch_rows<F, P, kMostRows>(count, {g.x + rows.begin * g.x_ld, g.x_ld, packed, g.k, sums, aside});
  TileArgs rest = {};
  rest.y = g.y + rows.begin * g.y_ld + col;
  rest.y_ld = g.y_ld;
  rest.cols = min_of(P * kTileCols, g.n - col);
  set_epilogue(rest, g.epilogue, rows.begin, col);
  finish_in_memory(sums, count, rest, P * kTileCols);
}

template <BlockForm F>
void thin(const LinearArgs& g, Range rows, Range panels) {
  int64_t p = panels.begin;
  if (rows.end - rows.begin <= kMostRowsOfThinPanels) {
    for (; p + kThinPanels <= panels.end; p += kThinPanels) thin_tile<F, kThinPanels>(g, rows, p);
  }
  for (; p < panels.end; ++p) thin_tile<F, 1>(g, rows, p);
}

// Products of some rows with one panel over [k0, k0 + depth), whose weights have been expanded. Those that are expanded
// next, from `next` on, are fetched meanwhile.
void panel_part(const LinearArgs& g, Range rows, int64_t panel, int64_t k0, int64_t depth, const float* expanded,
                const uint8_t* next) {
  const int64_t col = panel * kTileCols;
  TileArgs t;
  t.a_ld = g.x_ld;
  t.runs = 1;
  t.run = depth;
  t.run_stride = 0;
  t.b = expanded;
  t.y_ld = g.y_ld;
  t.cols = min_of(kTileCols, g.n - col);
  t.accumulate = k0 > 0;
  clear_epilogue(t);
  const EvenShares tiles(rows.end - rows.begin, kTileRows);
  for (int64_t i = 0, row = rows.begin; i < tiles.shares; row += tiles.size(i), ++i) {
    t.a = g.x + row * g.x_ld + k0;
    t.y = g.y + row * g.y_ld + col;
    t.upcoming = next + i * (depth / 4) * kLineBytes;
    if (k0 + depth == g.k) set_epilogue(t, g.epilogue, row, col);
    run_tile(tiles.size(i), t);
  }
}

void thick(BlockForm form, const LinearArgs& g, Range rows, Range panels, float* scratch) {
  const int64_t depth = linear_depth(g.k);
  const auto* packed = reinterpret_cast<const uint8_t*>(g.packed);
  for (int64_t k0 = 0; k0 < g.k; k0 += depth) {
    const int64_t end = min_of(g.k, k0 + depth);
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      const uint8_t* panel = packed + p * panel_bytes(form, g.k);
      expand_blocks(form, panel, {k0 / kBlockValues, end / kBlockValues}, scratch);
      const uint8_t* next = panel + panel_bytes(form, g.k) + k0 / kBlockValues * panel_block_bytes(form);
      panel_part(g, rows, p, k0, end - k0, scratch, next);
    }
  }
}

}  // namespace

void linear_blocks(BlockForm form, const LinearArgs& g, Range rows, Range panels, float* scratch) {
  if (rows.end - rows.begin > kTileRows) {
    const EvenShares blocks(rows.end - rows.begin, g.block_rows > 0 ? g.block_rows : kBlockRows);
    for (int64_t i = 0, row = rows.begin; i < blocks.shares; row += blocks.size(i), ++i) {
      thick(form, g, {row, row + blocks.size(i)}, panels, scratch);
    }
    return;
  }
  if (rows.begin == rows.end) return;
  switch (form) {
    case BlockForm::kQ8_0:
      return thin<BlockForm::kQ8_0>(g, rows, panels);
    case BlockForm::kQ4_0:
      return thin<BlockForm::kQ4_0>(g, rows, panels);
    case BlockForm::kQ4_1:
      return thin<BlockForm::kQ4_1>(g, rows, panels);
  }
}

}  // namespace vla::VLA_ISA
