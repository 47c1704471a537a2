// Axes in another order: a transposition of matrices, or of matrices of rows.
#include "kernels/copy.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

// Columns `cols` of one matrix of single values.
void turn_values(const TransposeArgs& t, const float* x, float* y, Range cols) {
  int64_t row = 0;
  for (; row + Vec::kWidth <= t.rows; row += Vec::kWidth) {
    int64_t c = cols.begin;
    for (; c + Vec::kWidth <= cols.end; c += Vec::kWidth) {
      transpose(x + row * t.x_row + c, t.x_row, y + c * t.y_col + row, t.y_col);
    }
    for (; c < cols.end; ++c) {
      for (int64_t r = row; r < row + Vec::kWidth; ++r) y[c * t.y_col + r] = x[r * t.x_row + c];
    }
  }
  for (; row < t.rows; ++row) {
    for (int64_t c = cols.begin; c < cols.end; ++c) y[c * t.y_col + row] = x[row * t.x_row + c];
  }
}

void turn_rows(const TransposeArgs& t, const float* x, float* y, Range cols) {
  for (int64_t c = cols.begin; c < cols.end; ++c) {
    for (int64_t r = 0; r < t.rows; ++r) {
      copy(x + r * t.x_row + c * t.x_col, t.width, y + c * t.y_col + r * t.y_row);
    }
  }
}

}  // namespace

void transpose(const TransposeArgs& t, Range bands) {
  for (int64_t band = bands.begin; band < bands.end; ++band) {
    const int64_t batch = band / t.bands_per_batch(), first = band % t.bands_per_batch() * TransposeArgs::kBand;
    const Range cols = {first, min_of(t.cols, first + TransposeArgs::kBand)};
    const float* x = t.x + batch * t.x_batch;
    float* y = t.y + batch * t.y_batch;
    t.width == 1 ? turn_values(t, x, y, cols) : turn_rows(t, x, y, cols);
  }
}

}  // namespace vla::VLA_ISA
