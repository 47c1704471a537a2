#include "kernels/row_sum.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

// y = (x - mean) * scale, times weight plus bias where there are any.
void write_row(const NormArgs& a, int64_t row, float mean, float scale) {
  const float* x = a.x + row * a.x_ld;
  float* y = a.y + row * a.y_ld;
  const Vec m = splat(mean), s = splat(scale);
  over_columns(a.cols, [&](int64_t c, auto part) {
    Vec v = (load(x + c, part) - m) * s;
    if (a.weight) v = v * load(a.weight + c, part);
    if (a.bias) v = v + load(a.bias + c, part);
    store(y + c, v, part);
  });
}

}  // namespace

void layer_norm(const NormArgs& a, Range rows) {
  const float count = static_cast<float>(a.cols);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = a.x + row * a.x_ld;
    const float mean = row_sum(x, a.cols, [](Vec v) { return v; }) / count;
    const Vec m = splat(mean);
    const float variance = row_sum(x, a.cols, [m](Vec v) { return (v - m) * (v - m); }) / count;
    write_row(a, row, mean, 1.0f / __builtin_sqrtf(variance + a.eps));
  }
}

void rms_norm(const NormArgs& a, Range rows) {
  const float count = static_cast<float>(a.cols);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float square = row_sum(a.x + row * a.x_ld, a.cols, [](Vec v) { return v * v; }) / count;
    write_row(a, row, 0.0f, 1.0f / __builtin_sqrtf(square + a.eps));
  }
}

void mean_rows(const float* x, int64_t x_ld, int64_t rows, float* y, Range cols) {
  const Vec count = splat(static_cast<float>(rows));
  over_columns(cols.end - cols.begin, [&](int64_t c, auto part) {
    const float* first = x + cols.begin + c;
    Vec total = zero();
    for (int64_t r = 0; r < rows; ++r) total = total + load(first + r * x_ld, part);
    store(y + cols.begin + c, total / count, part);
  });
}

}  // namespace vla::VLA_ISA
