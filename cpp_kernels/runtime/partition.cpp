#include "runtime/partition.hpp"

namespace vla {
namespace {

// Where shares may be taken over by others: enough that what is left of a held-up thread's share can be.
constexpr int64_t kPiecesPerThread = 4;
// About two microseconds of matrix product on one core, twice what handing out a job costs.
constexpr int64_t kMinChunkCost = int64_t{1} << 19;

// Every chunk of rows reads all of the weights, so it should have enough rows to be worth that; and the first panel
// that a chunk reads is one that nobody has fetched ahead.
constexpr int64_t kMinTilesPerChunk = 12;
constexpr int64_t kMinPanelsPerChunk = 4;

constexpr int64_t kTransformCost = 4;

// Chunks for `units` of work that cost `cost` together: as many for each thread, of at least `least` units if possible.
int64_t even_chunks(int64_t units, int64_t least, int64_t cost, const Sharing& sharing) {
  const int64_t affordable = cost / kMinChunkCost;
  if (sharing.threads <= 1 || units <= 1 || affordable <= 1) return 1;
  if (std::min(affordable, units) < sharing.threads) return std::min(affordable, units);
  if (sharing.schedule == Schedule::kStatic) return sharing.threads;
  const int64_t pieces = std::min(affordable, units / least) / sharing.threads;
  return sharing.threads * std::clamp(pieces, int64_t{1}, kPiecesPerThread);
}

Grid grid_of(TileSize tile, int64_t m, int64_t n) {
  Grid grid;
  grid.rows = m;
  grid.panels = ceil_div(n, tile.cols);
  return grid;
}

}  // namespace

int64_t chunk_count(int64_t units, int64_t unit_cost, const Sharing& sharing) {
  return even_chunks(units, 1, units * unit_cost, sharing);
}

Grid cut_linear(TileSize tile, int64_t m, int64_t n, int64_t k, const Sharing& sharing) {
  Grid grid = grid_of(tile, m, n);
  const int64_t tiles = ceil_div(m, tile.rows);
  const int64_t cost = 2 * tiles * tile.rows * grid.panels * tile.cols * k;
  // Each thread reads its part of one operand and the whole of the other: share out the larger one, as long as
  // it has enough pieces.
  const int64_t enough = int64_t{2} * sharing.threads;
  const bool weights_larger = n > m;
  const bool by_panels = weights_larger ? grid.panels >= enough || tiles < grid.panels : tiles < enough;
  if (by_panels) {
    grid.panel_chunks = even_chunks(grid.panels, kMinPanelsPerChunk, cost, sharing);
  } else {
    grid.row_chunks = even_chunks(tiles, kMinTilesPerChunk, cost, sharing);
  }
  return grid;
}

Grid cut_strassen(TileSize tile, int64_t m, int64_t n, int64_t k, const Sharing& sharing) {
  Grid grid = grid_of(tile, m / 2, n / 2);
  const int64_t tiles = ceil_div(grid.rows, tile.rows);
  // By rows, because with a cut by panels every thread would add up the whole of x.
  grid.row_chunks = even_chunks(tiles, kMinTilesPerChunk, 14 * (m / 2) * (n / 2) * (k / 2), sharing);
  return grid;
}

Grid cut_conv2d(TileSize tile, int64_t m, int64_t n, int64_t k, const Sharing& sharing) {
  Grid grid = grid_of(tile, m, n);
  const int64_t tiles = ceil_div(m, tile.rows);
  const int64_t cost = 2 * tiles * tile.rows * grid.panels * tile.cols * k;
  if (tiles >= 2 * sharing.threads) {
    grid.row_chunks = even_chunks(tiles, kMinTilesPerChunk, cost, sharing);
  } else {
    grid.panel_chunks = even_chunks(grid.panels, kMinPanelsPerChunk, cost, sharing);
  }
  return grid;
}

Grid cut_winograd(TileSize tile, int64_t tiles, int64_t out_c, int64_t in_c, const WinogradForm& form,
                  const Sharing& sharing) {
  Grid grid = grid_of(tile, tiles, out_c);
  const int64_t units = ceil_div(tiles, tile.rows);
  const int64_t cost = 2 * units * tile.rows * grid.panels * tile.cols * in_c * form.products();
  // A thread with a part of the tiles reads all filters, and one with a part of the filters transforms the whole
  // image, which costs about four times as much per value.
  const bool filters_larger = out_c > kTransformCost * tiles || units < sharing.threads;
  if (grid.panels < sharing.threads || !filters_larger) {
    grid.row_chunks = even_chunks(units, kMinTilesPerChunk, cost, sharing);
  } else {
    grid.panel_chunks = even_chunks(grid.panels, grid.panels, cost, sharing);
  }
  return grid;
}

}  // namespace vla
