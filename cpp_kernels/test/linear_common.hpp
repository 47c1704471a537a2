// Linear layers of any size with what may follow them, and their answers in double precision.
#pragma once

#include "kernels_common.hpp"

namespace vla::test {

struct Problem {
  int64_t m, n, k;
  int64_t x_extra = 0, y_extra = 0;  // leading dimensions beyond the columns
  bool bias = false, residual = false, film = false;
  bool one_residual_row = false;
  Activation activation = Activation::kNone;

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " activation " +
           std::to_string(static_cast<int>(activation));
  }
};

// Operands of a problem, and its answer in double precision.
struct Case {
  Problem p;
  Floats x, w, bias, residual, gamma, beta;
  Epilogue epilogue;

  explicit Case(const Problem& problem, uint32_t seed = 7) : p(problem) {
    Random random(seed);
    x = random.floats(p.m * x_ld());
    w = random.floats(p.n * p.k);
    bias = random.floats(p.n);
    residual = random.floats(p.m * (p.n + 3));
    gamma = random.floats(p.n);
    beta = random.floats(p.n);
    if (p.bias) epilogue.bias = bias.data();
    if (p.residual) {
      epilogue.residual = residual.data();
      epilogue.residual_ld = p.one_residual_row ? 0 : p.n + 3;
    }
    if (p.film) {
      epilogue.gamma = gamma.data();
      epilogue.beta = beta.data();
    }
    epilogue.activation = p.activation;
  }
  int64_t x_ld() const { return p.k + p.x_extra; }
  double expected(int64_t row, int64_t col) const {
    double sum = 0;
    for (int64_t i = 0; i < p.k; ++i) {
      sum += static_cast<double>(x[static_cast<size_t>(row * x_ld() + i)]) * w[static_cast<size_t>(col * p.k + i)];
    }
    return vla::test::epilogue(sum, epilogue, row, col);
  }
  LinearArgs args(const Floats& packed_w, Matrix& y) const {
    LinearArgs a;
    a.x = x.data();
    a.x_ld = x_ld();
    a.packed = packed_w.data();
    a.y = y.data();
    a.y_ld = y.ld();
    a.m = p.m;
    a.n = p.n;
    a.k = p.k;
    a.epilogue = epilogue;
    return a;
  }
  Matrix result() const { return Matrix(p.m, p.n, p.n + p.y_extra); }
};

// Whether `kernel` computes the same bits of c's result, with these weights, however its range of `all_rows` and
// `all_panels` is cut.
template <typename Kernel>
void check_bits(const Case& c, const Floats& weights, int64_t all_rows, int64_t all_panels, Kernel kernel) {
  Matrix whole = c.result();
  kernel(c.args(weights, whole), {0, all_rows}, {0, all_panels});
  for (const int64_t row_step : {1, 2, 7, 14, 31}) {
    for (const int64_t panel_step : {1, 3}) {
      Matrix parts = c.result();
      const LinearArgs args = c.args(weights, parts);
      for (int64_t r = 0; r < all_rows; r += row_step) {
        for (int64_t q = 0; q < all_panels; q += panel_step) {
          kernel(args, {r, std::min(all_rows, r + row_step)}, {q, std::min(all_panels, q + panel_step)});
        }
      }
      CHECK(same_bits(whole.copy(), parts.copy()));
    }
  }
}

}  // namespace vla::test
