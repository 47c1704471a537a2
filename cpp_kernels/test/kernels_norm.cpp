#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

constexpr int64_t kRows = 5;
constexpr double kEps = 1e-5;

struct Moments {
  double mean = 0, variance = 0, square = 0;
  Moments(const float* x, int64_t cols) {
    for (int64_t c = 0; c < cols; ++c) mean += x[c] / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      variance += (x[c] - mean) * (x[c] - mean) / static_cast<double>(cols);
      square += static_cast<double>(x[c]) * x[c] / static_cast<double>(cols);
    }
  }
};

void check_norms(int64_t cols, float offset, bool weight, bool bias) {
  const check::Context context(std::to_string(cols) + " columns");
  Random random(2);
  const int64_t x_ld = cols + 3;
  const Floats x = random.floats(kRows * x_ld, offset - 2.0f, offset + 2.0f);
  const Floats w = random.floats(cols), b = random.floats(cols);
  for_each_isa([&](const KernelTable& table) {
    for (const bool rms : {false, true}) {
      Matrix y(kRows, cols, cols + 1);
      NormArgs a;
      a.x = x.data();
      a.x_ld = x_ld;
      a.weight = weight ? w.data() : nullptr;
      a.bias = bias ? b.data() : nullptr;
      a.y = y.data();
      a.y_ld = y.ld();
      a.cols = cols;
      a.eps = static_cast<float>(kEps);
      const auto norm = rms ? table.rms_norm : table.layer_norm;
      norm(a, {0, 2});
      norm(a, {2, kRows});
      CHECK(y.intact());
      for (int64_t r = 0; r < kRows; ++r) {
        const float* row = x.data() + r * x_ld;
        const Moments m(row, cols);
        const double scale = 1.0 / std::sqrt((rms ? m.square : m.variance) + kEps);
        for (int64_t c = 0; c < cols; ++c) {
          const size_t i = static_cast<size_t>(c);
          double expected = (row[c] - (rms ? 0.0 : m.mean)) * scale;
          if (weight) expected *= w[i];
          if (bias) expected += b[i];
          CHECK_CLOSE(y.at(r, c), expected, 2e-6 * (1.0 + std::fabs(offset)));
        }
      }
    }
  });
}

}  // namespace

TEST(widths) {
  for (const int64_t cols : {2, 3, 15, 16, 17, 32, 33, 48, 50, 512}) check_norms(cols, 0.0f, true, true);
}
TEST(parameters_may_be_missing) {
  check_norms(37, 0.0f, false, false);
  check_norms(37, 0.0f, true, false);
}
TEST(a_mean_much_larger_than_the_spread) { check_norms(512, 100.0f, true, true); }

TEST(one_column_is_its_own_mean) {
  for_each_isa([](const KernelTable& table) {
    const float x = 3.0f, bias = 0.25f;
    float y = 0.0f;
    NormArgs a;
    a.x = &x;
    a.x_ld = a.y_ld = a.cols = 1;
    a.bias = &bias;
    a.y = &y;
    a.eps = 1e-5f;
    table.layer_norm(a, {0, 1});
    CHECK(y == 0.25f);
  });
}

TEST(mean_over_rows) {
  for (const int64_t cols : {1, 15, 40, 65}) {
    const int64_t rows = 13, ld = cols + 2;
    Random random(4);
    const Floats x = random.floats(rows * ld);
    for_each_isa([&](const KernelTable& table) {
      Matrix y(1, cols, cols);
      const int64_t split = cols / 3;
      table.mean_rows(x.data(), ld, rows, y.data(), {0, split});
      table.mean_rows(x.data(), ld, rows, y.data(), {split, cols});
      CHECK(y.intact());
      for (int64_t c = 0; c < cols; ++c) {
        double mean = 0;
        for (int64_t r = 0; r < rows; ++r) mean += x[static_cast<size_t>(r * ld + c)] / static_cast<double>(rows);
        CHECK_CLOSE(y.at(0, c), mean, 3e-7);
      }
    });
  }
}

CHECK_MAIN()
