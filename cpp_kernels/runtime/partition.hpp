// How the output of one operation is cut into chunks for the threads of a team.
//
// Each output element is computed by the same sequence of operations whichever chunk it falls into, so results depend
// neither on the number of threads nor on the schedule.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/int8.hpp"

namespace vla {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The chunk-th of `chunks` nearly equal parts of [0, units).
constexpr Range slice_of(int64_t units, int64_t chunks, int64_t chunk) {
  return Range{units * chunk / chunks, units * (chunk + 1) / chunks};
}

enum class Schedule : int32_t { kStatic = 0, kDynamic = 1 };

// Who an operation is cut for. Every thread gets the same number of chunks: one with the static schedule, several with
// the dynamic one, so that a thread which is held up does not hold up the others, but none so small that handing it
// out costs more than it saves.
struct Sharing {
  int threads = 1;
  Schedule schedule = Schedule::kDynamic;
  int64_t parallel_cutoff = 0;  // an operation of fewer output elements is done by one thread
  int64_t block_rows = 0;       // for the kernels, see LinearArgs
  int threads_per_branch = 0;   // threads of an operation in a branch; 0: all, branches run one after the other
};

// Chunks for `units` equal pieces of work, each of `unit_cost` floating-point operations.
int64_t chunk_count(int64_t units, int64_t unit_cost, const Sharing& sharing);

// The register tile of the kernels that compute the pieces.
struct TileSize {
  TileSize(const KernelTable& kernels) : rows(kernels.tile_rows), cols(kernels.tile_cols) {}
  TileSize(const Int8Table& kernels) : rows(kernels.tile_rows), cols(kernels.tile_cols) {}
  int64_t rows;
  int64_t cols;
};

// A matrix cut into row_chunks x panel_chunks pieces.
struct Grid {
  int64_t rows = 0;
  int64_t panels = 0;
  int64_t row_chunks = 1;
  int64_t panel_chunks = 1;

  int64_t chunks() const { return row_chunks * panel_chunks; }
  Range row_range(int64_t chunk) const { return slice_of(rows, row_chunks, chunk % row_chunks); }
  Range panel_range(int64_t chunk) const { return slice_of(panels, panel_chunks, chunk / row_chunks); }
};

// For y[m][n] = x[m][k] * w[n][k]^T.
Grid cut_linear(TileSize tile, int64_t m, int64_t n, int64_t k, const Sharing& sharing);

// For the same by Strassen's method: rows and panels of the grid are pairs of them.
Grid cut_strassen(TileSize tile, int64_t m, int64_t n, int64_t k, const Sharing& sharing);

// For a convolution with m output pixels: cut by rows where there are enough of them, because a cut by panels has
// every thread gather the patches anew.
Grid cut_conv2d(TileSize tile, int64_t m, int64_t n, int64_t k, const Sharing& sharing);

// For a convolution by Winograd's method, with rows of the grid for its tiles.
Grid cut_winograd(TileSize tile, int64_t tiles, int64_t out_c, int64_t in_c, const WinogradForm& form,
                  const Sharing& sharing);

}  // namespace vla
