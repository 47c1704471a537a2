#include "kernels/int8_rows.hpp"
#include "kernels/int8_table.hpp"
#include "kernels/int8_tile.hpp"

namespace vla::VLA_ISA {
namespace {

// What the rows that pass by one panel after the other may take of the second-level cache.
constexpr int64_t kBlockBytes = 256 * 1024;

int64_t block_rows(const LinearArgs& g, int64_t ld) {
  if (g.block_rows > 0) return g.block_rows;
  const int64_t fit = kBlockBytes / (ld * static_cast<int64_t>(sizeof(Quantized)));
  return max_of(kInt8TileRows, fit / kInt8TileRows * kInt8TileRows);
}

}  // namespace

int64_t int8_rows_bytes(int64_t m, int64_t k) {
  return m * int8_rows_ld(k) * static_cast<int64_t>(sizeof(Quantized));
}

void int8_linear(const LinearArgs& g, Int8Input in, Range rows, Range panels) {
  const auto* values = reinterpret_cast<const Quantized*>(in.values);
  const int64_t ld = int8_rows_ld(g.k), groups = groups_of(g.k);
  const EvenShares blocks(rows.end - rows.begin, block_rows(g, ld));
  for (int64_t i = 0, first = rows.begin; i < blocks.shares; first += blocks.size(i), ++i) {
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      const int64_t col = p * kInt8TileCols;
      Int8TileArgs t{nullptr, ld, 1, 0, 1, 0, groups, Int8Panel(g.packed, groups, p), nullptr, 1,
                     nullptr, g.y_ld, min_of(kInt8TileCols, g.n - col), {}};
      const EvenShares tiles(blocks.size(i), kInt8TileRows);
      for (int64_t j = 0, row = first; j < tiles.shares; row += tiles.size(j), ++j) {
        t.a = values + row * ld;
        t.scales = in.scales + row;
        t.y = g.y + row * g.y_ld + col;
        t.epilogue = epilogue_at(g.epilogue, row, col);
        run_int8_tile(tiles.size(j), t);
      }
    }
  }
}

}  // namespace vla::VLA_ISA
