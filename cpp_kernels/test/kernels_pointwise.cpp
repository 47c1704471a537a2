#include <limits>

#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

// Activation of every value of x on its own.
Floats apply(const KernelTable& table, const Floats& x, Activation activation) {
  Floats y(x.size());
  PointwiseArgs a;
  a.x = x.data();
  a.y = y.data();
  a.cols = a.x_ld = a.y_ld = static_cast<int64_t>(x.size());
  a.activation = activation;
  table.pointwise(a, {0, 1});
  return y;
}

float combined(Binary op, float u, float v) {
  switch (op) {
    case Binary::kAdd:
      return u + v;
    case Binary::kSub:
      return u - v;
    case Binary::kMul:
      return u * v;
    case Binary::kDiv:
      return u / v;
    case Binary::kMin:
      return std::min(u, v);
    case Binary::kMax:
      return std::max(u, v);
  }
  return 0.0f;
}

Floats grid(float low, float high, int64_t count) {
  Floats x;
  for (int64_t i = 0; i <= count; ++i) {
    x.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(count));
  }
  return x;
}

}  // namespace

TEST(activations_are_accurate_everywhere) {
  Floats x = grid(-12.0f, 12.0f, 40001);
  for (const float scale : {1e-6f, 1e-3f, 30.0f, 80.0f}) {
    for (const float v : grid(-scale, scale, 101)) x.push_back(v);
  }
  for (int kind = 0; kind < static_cast<int>(Activation::kExp); ++kind) {
    const check::Context context("activation " + std::to_string(kind));
    for_each_isa([&](const KernelTable& table) {
      const Floats y = apply(table, x, static_cast<Activation>(kind));
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = activated(x[i], static_cast<Activation>(kind));
        CHECK_CLOSE(y[i], expected, 2.5e-7 * std::max(1.0, std::fabs(static_cast<double>(x[i]))));
      }
    });
  }
}

TEST(the_exponential_function_keeps_its_relative_accuracy) {
  Floats x = grid(-87.0f, 87.9f, 40001);
  for_each_isa([&](const KernelTable& table) {
    const Floats y = apply(table, x, Activation::kExp);
    for (size_t i = 0; i < x.size(); ++i) CHECK_CLOSE(y[i] / std::exp(static_cast<double>(x[i])), 1.0, 3e-7);
  });
}

TEST(small_values_keep_their_relative_accuracy) {
  const Floats x = {1e-30f, -1e-20f, 1e-10f, -1e-5f, 1e-4f, 0.01f, -0.1f};
  for_each_isa([&](const KernelTable& table) {
    const Floats y = apply(table, x, Activation::kTanh);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::tanh(static_cast<double>(x[i]));
      CHECK_CLOSE(y[i] / expected, 1.0, 2e-7);
    }
  });
}

TEST(extremes) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for_each_isa([&](const KernelTable& table) {
    const Floats tanh = apply(table, {inf, -inf, 1e30f, -1e30f}, Activation::kTanh);
    CHECK(tanh == (Floats{1.0f, -1.0f, 1.0f, -1.0f}));
    const Floats gelu = apply(table, {1e6f, -1e6f}, Activation::kGelu);
    CHECK(gelu[0] == 1e6f && gelu[1] == 0.0f);
    const Floats silu = apply(table, {1e6f, -1e6f}, Activation::kSilu);
    CHECK(silu[0] == 1e6f && std::fabs(silu[1]) < 1e-30f);
    const Floats mish = apply(table, {1e6f, -1e6f}, Activation::kMish);
    CHECK(mish[0] == 1e6f && std::fabs(mish[1]) < 1e-30f);
    const Floats sigmoid = apply(table, {1e6f, -1e6f, -inf}, Activation::kSigmoid);
    CHECK(sigmoid[0] == 1.0f && sigmoid[1] < 1e-30f && sigmoid[2] < 1e-30f);
    const Floats exp = apply(table, {-inf, 0.0f, inf}, Activation::kExp);
    CHECK(exp[0] == 0.0f && exp[1] == 1.0f && exp[2] > 1e38f);
    for (int kind = 0; kind <= static_cast<int>(kLastActivation); ++kind) CHECK(std::isnan(apply(table, {nan}, static_cast<Activation>(kind))[0]));
  });
}

TEST(modulation_and_leading_dimensions) {
  const int64_t rows = 4, cols = 37, x_ld = 41;
  Random random(9);
  const Floats x = random.floats(rows * x_ld), gamma = random.floats(cols), beta = random.floats(cols);
  for_each_isa([&](const KernelTable& table) {
    Matrix y(rows, cols, 39);
    PointwiseArgs a;
    a.x = x.data();
    a.x_ld = x_ld;
    a.y = y.data();
    a.y_ld = 39;
    a.cols = cols;
    a.activation = Activation::kRelu;
    a.gamma = gamma.data();
    a.beta = beta.data();
    table.pointwise(a, {0, 1});
    table.pointwise(a, {1, rows});
    CHECK(y.intact());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const size_t i = static_cast<size_t>(c);
        const double relu = std::max(0.0f, x[static_cast<size_t>(r * x_ld + c)]);
        CHECK_CLOSE(y.at(r, c), (1.0 + gamma[i]) * relu + beta[i], 3e-7);
      }
    }
  });
}

TEST(binary_operations) {
  const int64_t rows = 3;
  Random random(1);
  for (const int64_t cols : {1, 8, 16, 23, 64}) {
    const Floats p = random.floats(rows * (cols + 1)), q = random.floats(rows * (cols + 2), 0.5f, 2.0f);
    for (const bool one_row : {false, true}) {
      for (int op = 0; op <= static_cast<int>(kLastBinary); ++op) {
        for_each_isa([&](const KernelTable& table) {
          Matrix y(rows, cols, cols + 3);
          BinaryArgs a;
          a.a = p.data();
          a.a_ld = cols + 1;
          a.b = q.data();
          a.b_ld = one_row ? 0 : cols + 2;
          a.y = y.data();
          a.y_ld = y.ld();
          a.cols = cols;
          a.op = static_cast<Binary>(op);
          table.binary(a, {0, rows});
          CHECK(y.intact());
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < cols; ++c) {
              const float u = p[static_cast<size_t>(r * a.a_ld + c)], v = q[static_cast<size_t>(r * a.b_ld + c)];
              CHECK(y.at(r, c) == combined(static_cast<Binary>(op), u, v));
            }
          }
        });
      }
    }
  }
}

TEST(one_value_for_a_row) {
  const int64_t rows = 5, cols = 23;
  Random random(2);
  const Floats p = random.floats(rows * cols), q = random.floats(rows * 3);
  for (const int64_t b_ld : {0, 3}) {
    for_each_isa([&](const KernelTable& table) {
      Matrix y(rows, cols, cols + 1);
      BinaryArgs a;
      a.a = p.data();
      a.a_ld = a.cols = cols;
      a.b = q.data();
      a.b_ld = b_ld;
      a.b_value = true;
      a.y = y.data();
      a.y_ld = y.ld();
      a.op = Binary::kSub;
      table.binary(a, {0, 2});
      table.binary(a, {2, rows});
      CHECK(y.intact());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          CHECK(y.at(r, c) == p[static_cast<size_t>(r * cols + c)] - q[static_cast<size_t>(r * b_ld)]);
        }
      }
    });
  }
}

CHECK_MAIN()
