#include "kernels/math.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {
namespace {

float row_max(const float* x, int64_t cols) {
  Vec m0 = splat(-__builtin_inff()), m1 = m0;
  int64_t c = 0;
  for (; c + 2 * Vec::kWidth <= cols; c += 2 * Vec::kWidth) {
    m0 = max(m0, load(x + c));
    m1 = max(m1, load(x + c + Vec::kWidth));
  }
  float largest = max_lane(max(m0, m1));
  for (; c < cols; ++c) {
    if (!(x[c] <= largest)) largest = x[c];
  }
  return largest;
}

}  // namespace

void softmax(const SoftmaxArgs& a, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = a.x + row * a.x_ld;
    float* y = a.y + row * a.y_ld;
    const Vec largest = splat(row_max(x, a.cols));
    Vec total = zero();
    over_columns(a.cols, [&](int64_t c, auto part) {
      const Vec e = keep(exp(load(x + c, part) - largest), part);
      store(y + c, e, part);
      total = total + e;
    });
    const Vec sum_of_row = splat(sum(total));
    over_columns(a.cols, [&](int64_t c, auto part) { store(y + c, load(y + c, part) / sum_of_row, part); });
  }
}

}  // namespace vla::VLA_ISA
