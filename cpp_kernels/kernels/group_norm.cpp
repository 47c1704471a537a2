// Norm of groups of columns over all rows. The columns of a block of rows each get a mean and a sum of squared
// distances from it; those of a group are put together exactly, as both have as many values in each column.
#include "kernels/math.hpp"
#include "kernels/row_sum.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

constexpr int64_t kVecs = 4;  // that walk down the rows together

Range rows_of_block(const GroupNormArgs& a, int64_t block) {
  const int64_t first = block * a.block_rows();
  return {first, min_of(a.rows, first + a.block_rows())};
}

// Means and squared distances of N vectors of columns from x on, over `rows` rows.
template <int64_t N, typename Part>
VLA_INLINE void column_moments(const float* x, int64_t ld, int64_t rows, Part part, float* means, float* squares) {
  Vec mean[N], square[N];
  for (int64_t i = 0; i < N; ++i) mean[i] = square[i] = zero();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < N; ++i) mean[i] = mean[i] + load(x + r * ld + i * Vec::kWidth, part);
  }
  for (int64_t i = 0; i < N; ++i) mean[i] = mean[i] / splat(static_cast<float>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < N; ++i) {
      const Vec d = load(x + r * ld + i * Vec::kWidth, part) - mean[i];
      square[i] = fma(d, d, square[i]);
    }
  }
  for (int64_t i = 0; i < N; ++i) {
    store(means + i * Vec::kWidth, mean[i], part);
    store(squares + i * Vec::kWidth, square[i], part);
  }
}

void piece_moments(const GroupNormArgs& a, int64_t block, int64_t panel, float* moments) {
  const Range rows = rows_of_block(a, block);
  const int64_t begin = panel * GroupNormArgs::kPanel, end = min_of(a.cols, begin + GroupNormArgs::kPanel);
  const int64_t count = rows.end - rows.begin;
  const float* x = a.x + rows.begin * a.x_ld;
  float* means = moments + block * 2 * a.cols;
  float* squares = means + a.cols;
  int64_t c = begin;
  for (; c + kVecs * Vec::kWidth <= end; c += kVecs * Vec::kWidth) {
    column_moments<kVecs>(x + c, a.x_ld, count, Whole{}, means + c, squares + c);
  }
  over_columns(end - c, [&](int64_t i, auto part) {
    column_moments<1>(x + c + i, a.x_ld, count, part, means + c + i, squares + c + i);
  });
}

}  // namespace

void group_norm_moments(const GroupNormArgs& a, Range pieces, float* moments) {
  for (int64_t piece = pieces.begin; piece < pieces.end; ++piece) {
    piece_moments(a, piece / a.panels(), piece % a.panels(), moments);
  }
}

void group_norm_factors(const GroupNormArgs& a, const float* moments, float* factors) {
  const int64_t width = a.cols / a.groups;
  const double count = static_cast<double>(a.rows) * static_cast<double>(width);
  for (int64_t first = 0; first < a.cols; first += width) {
    double total = 0.0, squares = 0.0;
    for (int64_t block = 0; block < a.blocks(); ++block) {
      const Range rows = rows_of_block(a, block);
      const float* means = moments + block * 2 * a.cols + first;
      total += static_cast<double>(rows.end - rows.begin) *
               static_cast<double>(row_sum(means, width, [](Vec v) { return v; }));
    }
    const float mean = static_cast<float>(total / count);
    const Vec m = splat(mean);
    for (int64_t block = 0; block < a.blocks(); ++block) {
      const Range rows = rows_of_block(a, block);
      const float* means = moments + block * 2 * a.cols + first;
      squares += static_cast<double>(rows.end - rows.begin) *
                 static_cast<double>(row_sum(means, width, [m](Vec v) { return (v - m) * (v - m); }));
      squares += static_cast<double>(row_sum(means + a.cols, width, [](Vec v) { return v; }));
    }
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(squares / count) + a.eps);
    over_columns(width, [&](int64_t c, auto part) {
      store(factors + first + c, m, part);
      store(factors + a.cols + first + c, load(a.weight + first + c, part) * splat(scale), part);
    });
  }
}

namespace {

template <Activation kActivation>
void normalized_rows(const GroupNormArgs& a, Range rows, const float* factors) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = a.x + row * a.x_ld;
    float* y = a.y + row * a.y_ld;
    over_columns(a.cols, [&](int64_t c, auto part) {
      const Vec centred = load(x + c, part) - load(factors + c, part);
      const Vec v = fma(centred, load(factors + a.cols + c, part), load(a.bias + c, part));
      store(y + c, activate(v, kActivation), part);
    });
  }
}

}  // namespace

void group_norm(const GroupNormArgs& a, Range rows, const float* factors) {
  with_activation(a.activation, [&](auto activation) { normalized_rows<activation.value>(a, rows, factors); });
}

}  // namespace vla::VLA_ISA
