// The product of a matrix with packed panels, blocked for the caches.
#include "kernels/table.hpp"
#include "kernels/tile.hpp"

namespace vla::VLA_ISA {
namespace {

// Rows that pass by one part of a panel before the next is taken: their values of x over kLinearDepth stay in the
// second-level cache for all panels.
constexpr int64_t kBlockRows = 12 * kTileRows;

// What passes by one part of a panel after the other; panel `then` comes after them.
struct Block {
  Range rows;
  Range panels;
  int64_t then;
};

// Products of a block with one panel over [k0, k0 + depth).
template <typename W>
void panel_part(const LinearArgs& g, const Block& block, int64_t panel, int64_t k0, int64_t depth) {
  const auto* packed = reinterpret_cast<const W*>(g.packed);
  const int64_t col = panel * kTileCols;
  TileArgs t;
  t.a_ld = g.x_ld;
  t.runs = 1;
  t.run = depth;
  t.run_stride = 0;
  const W* b = packed + col * g.k + k0 * kTileCols;
  set_panel(t, b);
  t.y_ld = g.y_ld;
  t.cols = min_of(kTileCols, g.n - col);
  t.accumulate = k0 > 0;
  const bool last = k0 + depth == g.k;
  clear_epilogue(t);
  const W* next = next_part(packed, g.k, block.panels, panel, k0, depth, block.then);
  const EvenShares tiles(block.rows.end - block.rows.begin, kTileRows);
  t.upcoming_lines = upcoming_lines_of<W>(tiles.shares);
  for (int64_t i = 0, row = block.rows.begin; i < tiles.shares; row += tiles.size(i), ++i) {
    t.a = g.x + row * g.x_ld + k0;
    t.y = g.y + row * g.y_ld + col;
    t.upcoming = upcoming_for(i, next, depth, b, t.upcoming_lines);
    if (last) set_epilogue(t, g.epilogue, row, col);
    run_tile(tiles.size(i), t);
  }
}

}  // namespace

void linear(const LinearArgs& g, Range rows, Range panels) {
  const auto part = g.bf16 ? panel_part<Bf16> : panel_part<float>;
  const EvenShares blocks(rows.end - rows.begin, g.block_rows > 0 ? g.block_rows : kBlockRows);
  const int64_t depth = linear_depth(g.k);
  // A thread takes the next panels after these, if there are any.
  const bool more = panels.end < ceil_div(g.n, kTileCols);
  for (int64_t i = 0, row = rows.begin; i < blocks.shares; row += blocks.size(i), ++i) {
    const bool last = i + 1 == blocks.shares;
    const Block block = {{row, row + blocks.size(i)}, panels, last && more ? panels.end : panels.begin};
    for (int64_t k0 = 0; k0 < g.k; k0 += depth) {
      for (int64_t p = panels.begin; p < panels.end; ++p) {
        part(g, block, p, k0, min_of(depth, g.k - k0));
      }
    }
  }
}

}  // namespace vla::VLA_ISA
