#include "runtime/partition.hpp"

namespace vla {
namespace {

constexpr int64_t kChunksPerThread = 4;
// About ten microseconds of matrix product on one core: a hundred times the cost of taking a chunk.
constexpr int64_t kMinChunkCost = int64_t{1} << 20;

// Every chunk of rows reads all of the weights, so it should have enough rows to be worth that.
constexpr int64_t kMinTilesPerChunk = 12;

constexpr int64_t kTransformCost = 4;

int64_t row_chunks(int64_t chunks, int64_t tiles, int threads) {
  return std::min({chunks, tiles, std::max<int64_t>(threads, tiles / kMinTilesPerChunk)});
}

Grid grid_of(const KernelTable& kernels, int64_t m, int64_t n) {
  Grid grid;
  grid.rows = m;
  grid.panels = ceil_div(n, kernels.tile_cols);
  grid.tile_rows = kernels.tile_rows;
  return grid;
}

}  // namespace

int64_t chunk_count(int64_t units, int64_t unit_cost, int threads) {
  if (threads <= 1 || units <= 1) return 1;
  const int64_t affordable = units * unit_cost / kMinChunkCost;
  return std::clamp(affordable, int64_t{1}, std::min(units, threads * kChunksPerThread));
}

Grid cut_linear(const KernelTable& kernels, int64_t m, int64_t n, int64_t k, int threads) {
  Grid grid = grid_of(kernels, m, n);
  const int64_t tiles = ceil_div(m, grid.tile_rows);
  const int64_t tile_cost = 2 * grid.tile_rows * kernels.tile_cols * k;
  const int64_t chunks = chunk_count(tiles * grid.panels, tile_cost, threads);
  // Each thread reads its part of one operand and the whole of the other: share out the larger one, as long as
  // it has enough pieces.
  const bool weights_larger = n > m;
  const int64_t enough = std::min<int64_t>(chunks, threads) * 2;
  const bool by_panels = weights_larger ? grid.panels >= enough || tiles < grid.panels : tiles < enough;
  if (by_panels) {
    grid.panel_chunks = std::min(chunks, grid.panels);
  } else {
    grid.row_chunks = row_chunks(chunks, tiles, threads);
  }
  return grid;
}

Grid cut_conv2d(const KernelTable& kernels, int64_t m, int64_t n, int64_t k, int threads) {
  Grid grid = grid_of(kernels, m, n);
  const int64_t tiles = ceil_div(m, grid.tile_rows);
  const int64_t tile_cost = 2 * grid.tile_rows * kernels.tile_cols * k;
  const int64_t chunks = chunk_count(tiles * grid.panels, tile_cost, threads);
  if (tiles >= 2 * threads) {
    grid.row_chunks = row_chunks(chunks, tiles, threads);
  } else {
    grid.panel_chunks = std::min(chunks, grid.panels);
  }
  return grid;
}

Grid cut_winograd(const KernelTable& kernels, int64_t tiles, int64_t out_c, int64_t in_c, int64_t side, int threads) {
  Grid grid = grid_of(kernels, tiles, out_c);
  const int64_t products = (side + 2) * (side + 2);
  const int64_t tile_cost = 2 * grid.tile_rows * kernels.tile_cols * in_c * products;
  const int64_t units = ceil_div(tiles, grid.tile_rows);
  const int64_t chunks = chunk_count(units * grid.panels, tile_cost, threads);
  // A thread with a part of the tiles reads all filters, and one with a part of the filters transforms the whole
  // image, which costs about four times as much per value.
  const bool filters_larger = out_c > kTransformCost * tiles || units < threads;
  if (grid.panels < threads || !filters_larger) {
    grid.row_chunks = row_chunks(chunks, units, threads);
  } else {
    grid.panel_chunks = std::min<int64_t>({chunks, grid.panels, threads});
  }
  return grid;
}

}  // namespace vla
