// The register tile of the INT8 products: 32-bit sums over the whole of k, and the epilogue of the fp32 kernels.
//
// A panel holds, for kInt8TileCols channels side by side: their scales (fp32), where their sums start (int32), and
// for each group of kGroup input values the weights that go with it. Runs are filled up to whole groups with zero
// weights, so that the input values past the end of a run do not count, whatever they are.
#pragma once

#include "kernels/int8.hpp"
#include "kernels/tile.hpp"
#include "simd/int8.hpp"

namespace vla::VLA_ISA {

constexpr int kInt8TileCols = kInt8TileVecs * Vec::kWidth;
constexpr int64_t kGroupWeights = int64_t{kInt8TileCols} * kGroup;  // of a panel, for one group

VLA_INLINE int64_t groups_of(int64_t run) { return ceil_div(run, kGroup); }

// Where the parts of a panel begin.
struct Int8Panel {
  const float* scales;
  const int32_t* starts;
  const PackedWeight* weights;

  VLA_INLINE static int64_t bytes(int64_t groups) {
    constexpr int64_t kHead = kInt8TileCols * static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
    return kHead + groups * kGroupWeights * static_cast<int64_t>(sizeof(PackedWeight));
  }
  VLA_INLINE Int8Panel(const void* packed, int64_t groups, int64_t panel) {
    const char* at = static_cast<const char*>(packed) + panel * bytes(groups);
    scales = reinterpret_cast<const float*>(at);
    starts = reinterpret_cast<const int32_t*>(at + kInt8TileCols * sizeof(float));
    weights = reinterpret_cast<const PackedWeight*>(at + kInt8TileCols * (sizeof(float) + sizeof(int32_t)));
  }
};

struct Int8TileArgs {
  // A row's values: `lines` times `runs` runs of `groups` groups, whose starts are line_stride and run_stride apart.
  const Quantized* a;
  int64_t a_ld;
  int64_t lines, line_stride;
  int64_t runs, run_stride;
  int64_t groups;
  Int8Panel panel;
  const float* scales;  // of the rows, scale_step apart
  int64_t scale_step;
  float* y;
  int64_t y_ld;
  int64_t cols;        // at most kInt8TileCols
  Epilogue epilogue;  // starts at the tile's first row and column
  // Where the sums go, rows kInt8TileCols apart, in place of y: for those that something else follows first.
  int32_t* sums = nullptr;
};

// rows is 1 .. kInt8TileRows.
void run_int8_tile(int64_t rows, const Int8TileArgs& args);

// What follows the sums [rows][kInt8TileCols] of any number of rows.
void finish_int8(const int32_t* sums, int64_t rows, const Int8TileArgs& args);

// The epilogue of a tile at `row` and `col` of the whole output.
VLA_INLINE Epilogue epilogue_at(const Epilogue& e, int64_t row, int64_t col) {
  Epilogue here = e;
  if (e.bias) here.bias = e.bias + col;
  if (e.residual) here.residual = e.residual + row * e.residual_ld + col;
  if (e.gamma) {
    here.gamma = e.gamma + col;
    here.beta = e.beta + col;
  }
  return here;
}

}  // namespace vla::VLA_ISA
